# SPDX-License-Identifier: Apache-2.0
"""Computes digests of files in parallel, and caches results of jobs.

Files unchanged since the last job are not hashed again. A cached result begins with its digest, so that a truncated
file is ignored.

A file counts as unchanged if device, inode, size, mtime and ctime are the same, unless it was changed just before it
was hashed. A change within a clock tick would not be visible. Every file that is sent is hashed once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from paddle_cluster.system.state_dir import own_directory, read_own_file, replace_file
from paddle_node.contract import checked_json
from paddle_node.contract.classes import NamedTuple

DIGEST_SIZE = 32  # bytes of blake2b
FRESH_S = 2.0
MANY = 1 << 30  # bytes that take more than a second to hash
UNUSED_S = 30 * 24 * 3600.0
MEMORIES = ".digests"  # below the jobs' state directories

_CHUNK = 1 << 20
_THREADS = min(8, os.cpu_count() or 1)
_AT_ONCE = 64  # number of small files hashed per task
_FORM = 1


class Hashed(NamedTuple):
    """A file's digest and size."""

    digest: str
    size: int


class Digests:
    """A cache of the digests of the files in one tree.

    Args:
        memory: a file that stores the digests for the next job, or None.
        clock: the wall clock of the files' timestamps.
        reads: called with a number of bytes before at least MANY bytes are read.
    """

    def __init__(
        self,
        memory: Path | None,
        clock: Callable[[], float] = time.time,
        reads: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._reads = reads
        self._known = _load(memory)

    def of(self, files: Iterable[tuple[str, os.stat_result]]) -> dict[str, Hashed | OSError]:
        """Return the digest of each file by path, or the error that prevented it.

        Args:
            files: paths and their stat results.
        """
        found: dict[str, Hashed | OSError] = {}
        keep: dict[str, tuple[str, str]] = {}
        todo: dict[str, os.stat_result] = {}
        for path, status in files:
            known = self._known.get(path)
            if known is not None and known[0] == mark(status):
                keep[path] = known
                found[path] = Hashed(known[1], status.st_size)
            else:
                todo[path] = status
        size = sum(status.st_size for status in todo.values())
        if size >= MANY:
            self._reads(size)
        found.update(_hash_all(list(todo)))
        fresh = self._clock() - FRESH_S
        for path, status in todo.items():
            hashed = found[path]
            if isinstance(hashed, Hashed) and max(status.st_mtime, status.st_ctime) < fresh:
                keep[path] = mark(status), hashed.digest
        if self._memory is not None and keep != self._known:
            _save(self._memory, keep)
        self._known = keep
        return found


def file_digest(path: str, stopped: Callable[[], bool] = lambda: False) -> Hashed:
    """Return the digest and size of a file's content.

    Raises:
        OSError: the file cannot be read, or `stopped` returned true.
    """
    state = hashlib.blake2b(digest_size=DIGEST_SIZE)
    size = 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            state.update(data)
            size += len(data)
            if stopped():
                raise InterruptedError
    return Hashed(state.hexdigest(), size)


def memory_of(root: Path, jobs: Path) -> Path:
    """Return the path of the file that caches the digests of a tree.

    Args:
        root: top of the tree.
        jobs: the directory of the jobs' states; a name that begins with a dot is not a job.
    """
    name = hashlib.blake2b(os.fsencode(root.resolve()), digest_size=16).hexdigest()
    return jobs / MEMORIES / f"{name}.json"


def _hash_all(paths: list[str]) -> dict[str, Hashed | OSError]:
    if len(paths) < 2:
        return _hash(paths, lambda: False)
    from concurrent.futures import ThreadPoolExecutor  # most jobs have no new files

    found: dict[str, Hashed | OSError] = {}
    step = max(1, min(_AT_ONCE, len(paths) // (2 * _THREADS)))
    stopped = threading.Event()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="digest") as pool:
        try:
            parts = (paths[at : at + step] for at in range(0, len(paths), step))
            for part in pool.map(lambda part: _hash(part, stopped.is_set), parts):
                found.update(part)
        except BaseException:  # a signal: the pool waits for its threads
            stopped.set()
            raise
    return found


def _hash(paths: list[str], stopped: Callable[[], bool]) -> dict[str, Hashed | OSError]:
    found: dict[str, Hashed | OSError] = {}
    for path in paths:
        try:
            found[path] = file_digest(path, stopped)
        except OSError as error:
            found[path] = error
    return found


def mark(status: os.stat_result) -> str:
    """Return the metadata by which an unchanged file is recognized: device, inode, size, mtime and ctime in ns."""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _load(memory: Path | None) -> dict[str, tuple[str, str]]:
    """Return the stored digests; empty if the file is missing or malformed."""
    if memory is None:
        return {}
    try:
        kept = checked_json.as_object(read_own_file(memory).decode("utf-8", "surrogateescape"))
        if kept["form"] != _FORM:
            return {}
        return {str(path): (str(mark), str(digest)) for path, (mark, digest) in kept["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _save(memory: Path, files: dict[str, tuple[str, str]]) -> None:
    """Store the digests; a failure only costs the next job time."""
    text = json.dumps({"form": _FORM, "files": files}, separators=(",", ":"))
    with contextlib.suppress(OSError):
        own_directory(memory.parent)
        replace_file(memory, text.encode())  # only ASCII: names that are not UTF-8 are escaped
        oldest = time.time() - UNUSED_S
        for other in memory.parent.iterdir():
            if other.stat().st_mtime < oldest:
                other.unlink()


def load_cached(path: Path) -> bytes | None:
    """Return the bytes that an earlier job cached in a file of this user, or None; nodes execute these bytes."""
    try:
        data = read_own_file(path)
    except OSError:
        return None
    digest, content = data[:DIGEST_SIZE], data[DIGEST_SIZE:]
    return content if _digest(content) == digest else None


def cache_file(path: Path, content: bytes) -> None:
    """Write bytes, preceded by their digest, for later jobs; ignore a failure to write."""
    with contextlib.suppress(OSError):
        own_directory(path.parent)
        replace_file(path, _digest(content) + content)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest()
