# SPDX-License-Identifier: Apache-2.0
"""The state of the files that an agent sends: which exist, the progress of each, and whether a file was replaced."""

from __future__ import annotations

import errno
import os
import time
from typing import Dict, Optional, Sequence, Tuple, Union

from paddle_node.agent.files.digests import blake2b
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.fingerprint import DIGEST_SIZE, Fingerprint
from paddle_node.contract.names import LOG, is_unlinked

SAMPLE = 4 << 10
YOUNG_NS = (
    50_000_000  # a file that changed this recently may change again without a new time: clocks have ticks
)
_CHANGING = -1


def inode(status: os.stat_result) -> Tuple[int, int]:
    """Return the device and inode of a file, which it keeps when it is renamed."""
    return status.st_dev, status.st_ino


class Tailed:
    """The state of sending one growing file.

    Attributes:
        changed: the file's modification time in nanoseconds at the last check. Programs can set it back after a write.
        size: the file's size at the last check.
        sent: the size and digest of the sent bytes.
        reset: whether the file is sent from its start, regardless of the launcher's copy.
        is_partial: whether the launcher has only the beginning of the file and waits for the rest.
        is_old: whether the file existed before the job started and is unchanged.
        problem: the reason why the file could not be read, or empty.
        late_changes: number of times that the file changed after the job's processes had exited.
        mode: the permission bits that were sent with the file.
    """

    __slots__ = (
        "_head",
        "_last",
        "_read_as",
        "_touched",
        "changed",
        "inode",
        "is_old",
        "is_partial",
        "late_changes",
        "mode",
        "problem",
        "reset",
        "sent",
        "size",
    )

    def __init__(self, status: os.stat_result) -> None:
        self.is_partial = False
        self.is_old = False
        self.late_changes = 0
        self.mode = permissions(status)
        self.restart(status)

    def restart(self, status: os.stat_result) -> None:
        """Start sending the file that now has this name, from its beginning."""
        self.inode = inode(status)
        self.check(status)
        self.rewind()

    def check(self, status: os.stat_result) -> None:
        """Record the file's size and times."""
        self.changed, self.size = status.st_mtime_ns, status.st_size
        self._touched = status.st_ctime_ns  # no program can set it

    def was_touched(self, status: os.stat_result) -> bool:
        """Return whether an old file has changed, even if its size and modification time are equal."""
        return self.is_old and status.st_ctime_ns != self._touched

    def rewind(self) -> None:
        """Start sending the same file again, from its beginning."""
        self.sent = new_fingerprint()
        self.reset = True
        self.is_old = False
        self.problem = ""
        self._head = b""
        self._last = b""
        self._read_as: Optional[int] = None

    @property
    def offset(self) -> int:
        """Return the position in the file up to which it has been sent."""
        return self.size if self.is_old else self.sent.size

    def add(self, fd: int, offset: int, body: bytes, status: os.stat_result) -> None:
        """Record that the file was sent up to the end of `body`: hash it, and keep samples to detect rewrites.

        Args:
            offset: position of `body` in the file; unsent bytes before it are a hole.
            status: the file's stat before it was read.
        """
        begin = self.sent.size
        if begin == 0 and self._read_as is None and time.time_ns() - status.st_ctime_ns > YOUNG_NS:
            self._read_as = status.st_ctime_ns
        elif self._read_as != status.st_ctime_ns:
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
        """Return whether the sent bytes equal the file, because it has not changed since before the first read."""
        return self._read_as == self._touched

    def prove(self) -> None:
        """Record that a second reading of the whole file matched the sent bytes."""
        self._read_as = self._touched

    @property
    def has_samples(self) -> bool:
        """Return whether there are samples of the sent bytes to compare the file with."""
        return bool(self._head)

    def is_beginning_of(self, path: str) -> Optional[bool]:
        """Return whether a file begins with the sent bytes, judged by samples; None if it is unreadable."""
        try:
            with open(path, "rb") as file:
                head = file.read(min(SAMPLE, self.offset))
                file.seek(max(0, self.offset - SAMPLE))
                last = file.read(min(SAMPLE, self.offset))
        except OSError:
            return None
        return (_digest(head), _digest(last)) == (self._head, self._last)


class Listing(NamedTuple):
    """A list of the files, directories and links to send, by path relative to the job directory.

    Attributes:
        files: every file, listed once, with its stat result.
        folders: every directory below the listed ones, with its stat result.
        links: the links that are sent as links, with their targets relative to their directory.
        problems: the paths that could not be read, and why.
        left_out: links to targets that are not collected, with the targets; and special files.
    """

    files: Dict[str, os.stat_result]
    folders: Dict[str, os.stat_result]
    links: Dict[str, str]
    problems: Dict[str, str]
    left_out: Dict[str, str]

    def note(self, path: str, error: OSError) -> None:
        """Record a file or directory that could not be read; a missing one is not a problem."""
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            self.problems[path] = error.strerror or str(error)


def listing(job_dir: str, dirs: Sequence[str]) -> Listing:
    """List all files, directories and links in directories; links in logs stand for the files that they lead to.

    Args:
        job_dir: a path without symbolic links.
    """
    found = Listing({}, {}, {}, {}, {})
    plain: Dict[str, Tuple[str, os.stat_result]] = {}
    linked = set()
    todo = [
        (path, path) for path in dirs if not os.path.islink(job_dir + "/" + path)
    ]  # it may lead to a whole disk
    while todo:
        top, relative = todo.pop()
        try:
            entries = list(os.scandir(job_dir + "/" + relative))
        except OSError as error:
            found.note(relative, error)
            continue
        for entry in entries:
            if is_unlinked(entry.name):
                continue
            path = relative + "/" + entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    todo.append((top, path))
                    found.folders[path] = entry.stat(follow_symlinks=False)
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


def permissions(status: os.stat_result) -> int:
    """Return a file's permission bits; setuid, setgid and sticky are not sent."""
    return status.st_mode & 0o777


def without_list(file: Union[int, str], mode: int) -> int:
    """Return a file's permission bits. If it has an access list, omit the group's bits, which show the list's mask."""
    if mode & 0o070:
        try:
            os.getxattr(file, "system.posix_acl_access")
            return mode & ~0o070
        except OSError:
            pass  # no list
    return mode


def new_fingerprint() -> Fingerprint:
    """Return the fingerprint of an empty file."""
    return Fingerprint(blake2b(digest_size=DIGEST_SIZE))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
