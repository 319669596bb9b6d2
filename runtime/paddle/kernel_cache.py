# SPDX-License-Identifier: Apache-2.0
"""Where compiled loops are kept: once for a user and a version of our sources, wherever a copy of these lies.

Every node has a runtime directory of its own for each version; beside the sources, machine code would be made again
for each of them, which takes seconds. A digest of all sources that loops may be made of names the folder: numba
itself looks at the file of a loop alone, not at those whose loops it calls.

What numba keeps are pickles, which run whatever they say when they are read. So a folder counts only if nobody but
this user and root can have put anything there: not into it, nor into any directory or link on the way to it. Where
there is no such folder, nothing is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from numba.core import config
from numba.core.caching import UserProvidedCacheLocator

from paddle_node.linux import ownership

_log = logging.getLogger(__name__)

PACKAGE = Path(__file__).resolve().parent
_PARTS = ("compiling.py", "kernel_cache.py", "ops", "optim", "pserver")
_UNUSED_S = 30 * 24 * 3600.0
_LOCK_S, _LOOK_S = 60.0, 0.05


def folders() -> Iterator[Path]:
    """Yield the folders for all versions, the best one first: that for numba, the user's, one beside the sources."""
    if config.CACHE_DIR:  # type: ignore[attr-defined]
        yield Path(config.CACHE_DIR) / "paddle"  # type: ignore[attr-defined]
    else:
        with contextlib.suppress(RuntimeError):  # no home
            base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
            yield Path(base) / "paddle" / "kernels"
        yield PACKAGE / "__pycache__" / "kernels"


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
def place() -> Path | None:
    """Make the folder of this version, and remove those that nobody made anew for a month; return it.

    Where none can be made or trusted that is told, and None returned.
    """
    problems = []
    for folder in folders():
        made = (folder / digest()).absolute()
        try:
            problem = ownership.problem(str(made), may_be_roots=True) or _make(made)
        except OSError as error:
            problem = f"{made}: {error.strerror}"
        if not problem:
            return made
        problems.append(problem)
    _log.warning(
        "compiled loops are not kept, and every process makes its own, which takes seconds: %s; "
        "name a directory of your own in XDG_CACHE_HOME",
        "; ".join(problems),
    )
    return None


def _make(made: Path) -> str:
    if not made.is_dir():
        for each in (*reversed(made.parents), made):
            if not each.is_dir():
                each.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(OSError):
            oldest = time.time() - _UNUSED_S
            for other in made.parent.iterdir():
                if other.stat().st_mtime < oldest:
                    shutil.rmtree(other, ignore_errors=True)
    for folder, _, names in os.walk(made):
        for name in ("", *names):
            if (problem := ownership.problem(str(Path(folder, name)), may_be_roots=True)) != "":
                return problem
    return ""


@contextlib.contextmanager
def made_once(name: str) -> Iterator[bool]:
    """Compile here what several processes of a node need: one compiles, the others wait and then find it kept.

    Nobody waits once it was done on such a processor, nor for longer than a minute. Yields whether nothing is to be
    done for the others: it was, or nothing is kept.
    """
    kept = place()
    done = None if kept is None else kept / f"{name}.{get_host_cpu_name()}.made"
    if done is None or done.exists():
        yield True
        return
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # without locks each makes its own
            _lock(held.enter_context(done.with_suffix(".lock").open("a")))
        yield done.exists()
        with contextlib.suppress(OSError):
            done.touch()


def _lock(file: IO[str]) -> None:
    deadline = time.monotonic() + _LOCK_S
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOOK_S)


class Shared(UserProvidedCacheLocator):
    """numba's interface to all that; it steps back for sources that are not ours."""

    def __init__(self, py_func: object, py_file: str) -> None:
        path, kept = Path(py_file).resolve().relative_to(PACKAGE), place()
        if kept is None:
            raise ValueError("nothing is kept")
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno  # type: ignore[attr-defined]
        self._cache_path = str(kept / "_".join(path.with_suffix("").parts))

    @classmethod
    def from_function(cls, py_func: object, py_file: str) -> Shared | None:
        """Return the place of one loop, or None."""
        try:
            found = cls(py_func, py_file)
            found.ensure_cache_path()  # type: ignore[no-untyped-call]
        except (OSError, ValueError):  # no room; or not a source of ours
            return None
        return found
