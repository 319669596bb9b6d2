# SPDX-License-Identifier: Apache-2.0
"""A cache of what one job worked out and the next may use: files behind their own digests, so that half a file is none.

Nodes run what is kept here, so that only files of this user count.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from paddle_cluster.system.digests import DIGEST_SIZE
from paddle_cluster.system.state_dir import own_directory, read_own_file, replace_file


def load(path: Path) -> bytes | None:
    """What is kept there, or None."""
    try:
        data = read_own_file(path)
    except OSError:
        return None
    digest, content = data[:DIGEST_SIZE], data[DIGEST_SIZE:]
    return content if _digest(content) == digest else None


def keep(path: Path, content: bytes) -> None:
    """Keep it; where that cannot be, it costs the next job time, nothing else."""
    with contextlib.suppress(OSError):
        own_directory(path.parent)
        replace_file(path, _digest(content) + content)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest()
