# SPDX-License-Identifier: Apache-2.0
"""Where compiled loops are kept: once for a user and a version of our sources, wherever a copy of these lies.

Every node has a runtime directory of its own for each version; beside the sources, machine code would be made again
for each of them, which takes seconds. A digest of all sources that loops may be made of names the folder: numba
itself looks at the file of a loop alone, not at those whose loops it calls.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import time
from pathlib import Path

from numba.core.caching import UserProvidedCacheLocator

PACKAGE = Path(__file__).resolve().parent
_PARTS = ("compiling.py", "kernel_cache.py", "ops", "optim", "pserver")
_UNUSED_S = 30 * 24 * 3600.0


def folder() -> Path:
    """Return the user's folder for all versions."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "paddle" / "kernels"


@functools.cache
def digest() -> str:
    """Return what our sources are, as hex."""
    state = hashlib.blake2b(digest_size=16)
    for part in _PARTS:
        top = PACKAGE / part
        for path in sorted(top.rglob("*.py")) if top.is_dir() else [top]:
            content = path.read_bytes()
            state.update(f"{path.relative_to(PACKAGE)} {len(content)}\n".encode())
            state.update(content)
    return state.hexdigest()


@functools.cache
def place() -> Path:
    """Make the folder of this version, and remove those that nobody made anew for a month; return it.

    Raises:
        OSError: it cannot be made.
    """
    made = folder() / digest()
    if not made.is_dir():
        made.mkdir(parents=True, mode=0o700)
        with contextlib.suppress(OSError):
            oldest = time.time() - _UNUSED_S
            for other in made.parent.iterdir():
                if other.stat().st_mtime < oldest:
                    shutil.rmtree(other, ignore_errors=True)
    return made


class Shared(UserProvidedCacheLocator):
    """numba's interface to all that; it steps back for sources that are not ours, and where nothing can be written."""

    def __init__(self, py_func: object, py_file: str) -> None:
        path = Path(py_file).resolve().relative_to(PACKAGE)
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno  # type: ignore[attr-defined]
        self._cache_path = str(place() / "_".join(path.with_suffix("").parts))

    @classmethod
    def from_function(cls, py_func: object, py_file: str) -> Shared | None:
        """Return the place of one loop, or None."""
        try:
            found = cls(py_func, py_file)
            found.ensure_cache_path()  # type: ignore[no-untyped-call]
        except (
            OSError,
            ValueError,
            RuntimeError,
        ):  # no home, no room, another's folder; or not a source of ours
            return None
        return found
