# SPDX-License-Identifier: Apache-2.0
"""Digests of the code of a directory that nodes have already, so that a launcher can tell whether all have the same.

Code alone: data may lie in parts on the nodes, and reading it would take a preflight's time.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, Optional

from agent.files.digests import blake2b

MOST_FILES = 2000
MOST_BYTES = 4 << 20  # of one file
_SUFFIXES = (".py", ".sh")
_NEVER = ("__pycache__",)  # and hidden ones
_NEVER_AT_TOP = ("log", "output")


def code_of(folder: str, entry: Optional[str]) -> Dict[str, str]:
    """Digest by path of each Python and shell file below `folder`, and of `entry`; MOST_FILES at most, in order."""
    found: Dict[str, str] = {}
    for path in _paths(folder, entry):
        if len(found) == MOST_FILES:
            break
        try:
            fd = os.open(folder + "/" + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # no named pipe
            with open(fd, "rb") as file:
                found[path] = blake2b(file.read(MOST_BYTES), digest_size=16).hexdigest()
        except OSError as error:
            found[path] = error.strerror or "cannot be read"
    return found


def _paths(folder: str, entry: Optional[str]) -> Iterator[str]:
    if entry is not None:
        yield entry
    for at, folders, files in os.walk(folder):
        hidden = _NEVER + (_NEVER_AT_TOP if at == folder else ())
        folders[:] = sorted(name for name in folders if name not in hidden and not name.startswith("."))
        for name in sorted(files):
            path = os.path.relpath(at + "/" + name, folder)
            if name.endswith(_SUFFIXES) and path != entry:
                yield path
