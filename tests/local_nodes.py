# SPDX-License-Identifier: Apache-2.0
"""Local nodes that have run a job before, as most nodes have: the runtime is there, and Python has compiled it."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


def warm_nodes(root: Path, count: int) -> Path:
    """A ROOT_DIR for so many local nodes, which find there the runtime that earlier jobs of these tests left."""
    for number in range(count):
        own = root / f"node_{number}" / ".paddle"
        own.mkdir(parents=True, mode=0o700)
        (own / "runtime").symlink_to(_runtimes())
    return root


@functools.cache
def _runtimes() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="paddle-runtimes-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
