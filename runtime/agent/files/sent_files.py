# SPDX-License-Identifier: Apache-2.0
"""The files that an agent sends: which there are, how far each was sent, whether it is still the same."""

from __future__ import annotations

import errno
import os
import stat
from typing import Dict, List, NamedTuple, Optional, Tuple

from agent.files.digests import blake2b

SAMPLE = 4 << 10
LOG_DIR = "log"


def inode(status: os.stat_result) -> Tuple[int, int]:
    """What a file keeps when it is renamed."""
    return status.st_dev, status.st_ino


class Tailed:
    """How far one file was sent.

    Attributes:
        changed: its modification time in nanoseconds when it was looked at last.
        size: and its size then.
        offset: bytes that were sent.
        reset: it is sent from its start, whatever the other side has.
        is_partial: the other side has a beginning of it, and waits for the rest.
    """

    def __init__(self, status: os.stat_result) -> None:
        self.is_partial = False
        self.restart(status)

    def restart(self, status: os.stat_result) -> None:
        """Send it from its start."""
        self.inode = inode(status)
        self.changed = status.st_mtime_ns
        self.size = status.st_size
        self.offset = 0
        self.reset = True
        self._head = b""
        self._last = b""

    def sent(self, fd: int, end: int) -> None:
        """It was sent up to `end`: remember samples of that, to notice a rewrite."""
        if self.offset < SAMPLE:
            self._head = _digest(os.pread(fd, min(SAMPLE, end), 0))
        start = max(0, end - SAMPLE)
        self._last = _digest(os.pread(fd, end - start, start))
        self.offset = end

    @property
    def has_samples(self) -> bool:
        """Whether there is something to compare with."""
        return bool(self._head)

    def is_beginning_of(self, path: str) -> Optional[bool]:
        """Whether a file begins with what was sent, judged by its first bytes and its last; None: unreadable."""
        try:
            with open(path, "rb") as file:
                head = file.read(min(SAMPLE, self.offset))
                file.seek(max(0, self.offset - SAMPLE))
                last = file.read(min(SAMPLE, self.offset))
        except OSError:
            return None
        return (_digest(head), _digest(last)) == (self._head, self._last)


class Listing(NamedTuple):
    """What there is to send, by path relative to the job directory.

    Attributes:
        files: every file once, with its status.
        links: links that are sent as such, with their targets relative to where they are.
    """

    files: Dict[str, os.stat_result]
    links: Dict[str, str]


def listing(job_dir: str, dirs: List[str]) -> Listing:
    """Every file and link of directories; links in logs stand for the files that they lead to.

    Args:
        job_dir: without links in its path.
    """
    found = Listing({}, {})
    plain: Dict[str, Tuple[str, os.stat_result]] = {}
    linked = set()
    todo = [
        (path, path) for path in dirs if not os.path.islink(job_dir + "/" + path)
    ]  # it may lead to all of a disk
    while todo:
        top, relative = todo.pop()
        try:
            entries = list(os.scandir(job_dir + "/" + relative))
        except OSError:
            continue  # not made yet, or removed meanwhile
        for entry in entries:
            path = relative + "/" + entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    todo.append((top, path))
                elif entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    if (
                        top != LOG_DIR
                        and target.startswith(job_dir + "/" + top + "/")
                        and os.path.exists(target)
                    ):
                        found.links[path] = os.path.relpath(target, job_dir + "/" + relative)
                    elif target.startswith(job_dir + "/") and stat.S_ISREG(os.stat(target).st_mode):
                        linked.add(target)
                        found.files[path] = os.stat(target)
                elif entry.is_file(follow_symlinks=False):
                    plain[entry.path] = (path, entry.stat(follow_symlinks=False))
            except OSError:
                continue  # removed meanwhile
    for absolute, (path, status) in plain.items():
        if absolute not in linked:
            found.files[path] = status
    return found


def data_from(fd: int, offset: int, size: int) -> int:
    """Where bytes follow that are no hole; the end of the file where none do."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:  # ENXIO: nothing but a hole; any other: a file system that knows none
        return max(offset, size) if error.errno == errno.ENXIO else offset


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
