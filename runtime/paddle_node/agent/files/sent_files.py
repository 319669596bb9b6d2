# SPDX-License-Identifier: Apache-2.0
"""The files that an agent sends: which there are, how far each was sent, whether it is still the same."""

from __future__ import annotations

import errno
import os
import time
from typing import Dict, Optional, Sequence, Tuple

from paddle_node.agent.files.digests import blake2b
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.fingerprint import DIGEST_SIZE, Fingerprint
from paddle_node.contract.names import LOG

SAMPLE = 4 << 10
YOUNG_NS = (
    50_000_000  # a file that changed so short a time ago may change again without another time: clocks tick
)
_CHANGING = -1


def inode(status: os.stat_result) -> Tuple[int, int]:
    """What a file keeps when it is renamed."""
    return status.st_dev, status.st_ino


class Tailed:
    """How far one file was sent.

    Attributes:
        changed: its modification time in nanoseconds when it was looked at last.
        size: and its size then.
        sent: size and digest of what was sent.
        reset: it is sent from its start, whatever the other side has.
        is_partial: the other side has a beginning of it, and waits for the rest.
        is_old: it was there before the job began, and has not changed since.
        problem: why it could not be read, or empty.
        late_changes: how often it changed after the job's processes had ended.
    """

    __slots__ = (
        "_head",
        "_last",
        "_read_as",
        "changed",
        "inode",
        "is_old",
        "is_partial",
        "late_changes",
        "problem",
        "reset",
        "sent",
        "size",
    )

    def __init__(self, status: os.stat_result) -> None:
        self.is_partial = False
        self.is_old = False
        self.late_changes = 0
        self.restart(status)

    def restart(self, status: os.stat_result) -> None:
        """Send it from its start, as it is now."""
        self.inode = inode(status)
        self.changed = status.st_mtime_ns
        self.size = status.st_size
        self.rewind()

    def rewind(self) -> None:
        """Send it from its start."""
        self.sent = new_fingerprint()
        self.reset = True
        self.is_old = False
        self.problem = ""
        self._head = b""
        self._last = b""
        self._read_as: Optional[int] = None

    @property
    def offset(self) -> int:
        """Bytes that were sent."""
        return self.size if self.is_old else self.sent.size

    def add(self, fd: int, offset: int, body: bytes, status: os.stat_result) -> None:
        """It was sent up to the end of `body`: hash that, and remember samples of it, to notice a rewrite.

        Args:
            offset: where body begins; what lies before it and was not sent is a hole.
            status: of the file, before it was read.
        """
        begin = self.sent.size
        if begin == 0 and self._read_as is None and time.time_ns() - status.st_mtime_ns > YOUNG_NS:
            self._read_as = status.st_mtime_ns
        elif self._read_as != status.st_mtime_ns:
            self._read_as = _CHANGING
        self.sent.skip_to(offset)
        self.sent.add(body)
        end = self.sent.size
        has_all = begin == offset == 0
        if begin < SAMPLE:
            self._head = _digest(body[:SAMPLE] if has_all else os.pread(fd, min(SAMPLE, end), 0))
        if has_all and end <= SAMPLE:
            self._last = self._head
        elif len(body) >= SAMPLE:
            self._last = _digest(body[-SAMPLE:])
        else:
            start = max(0, end - SAMPLE)
            self._last = _digest(os.pread(fd, end - start, start))

    @property
    def is_proven(self) -> bool:
        """Whether it was sent without a change since before its first byte was read: what was sent is the file."""
        return self._read_as == self.changed

    def prove(self) -> None:
        """All of it was read again, and is what was sent."""
        self._read_as = self.changed

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
        problems: what could not be read, and why.
        left_out: links that stand for nothing that is collected, with their targets; and what is no file.
    """

    files: Dict[str, os.stat_result]
    links: Dict[str, str]
    problems: Dict[str, str]
    left_out: Dict[str, str]

    def note(self, path: str, error: OSError) -> None:
        """A file or directory could not be read; one that is not there, or no longer, is no problem."""
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            self.problems[path] = error.strerror or str(error)


def listing(job_dir: str, dirs: Sequence[str]) -> Listing:
    """Every file and link of directories; links in logs stand for the files that they lead to.

    Args:
        job_dir: without links in its path.
    """
    found = Listing({}, {}, {}, {})
    plain: Dict[str, Tuple[str, os.stat_result]] = {}
    linked = set()
    todo = [
        (path, path) for path in dirs if not os.path.islink(job_dir + "/" + path)
    ]  # it may lead to all of a disk
    while todo:
        top, relative = todo.pop()
        try:
            entries = list(os.scandir(job_dir + "/" + relative))
        except OSError as error:
            found.note(relative, error)
            continue
        for entry in entries:
            path = relative + "/" + entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    todo.append((top, path))
                elif entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    is_there = os.path.exists(target)
                    if top != LOG and target.startswith(job_dir + "/" + top + "/") and is_there:
                        found.links[path] = os.path.relpath(target, job_dir + "/" + relative)
                    elif target.startswith(job_dir + "/") and os.path.isfile(target):
                        linked.add(target)
                        found.files[path] = os.stat(target)
                    else:
                        found.left_out[path] = os.readlink(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    plain[entry.path] = (path, entry.stat(follow_symlinks=False))
                else:
                    found.left_out[path] = ""
            except OSError as error:
                found.note(path, error)
    for absolute, (path, status) in plain.items():
        if absolute not in linked:
            found.files[path] = status
    return found


def new_fingerprint() -> Fingerprint:
    """Of a file of which nothing has passed by."""
    return Fingerprint(blake2b(digest_size=DIGEST_SIZE))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
