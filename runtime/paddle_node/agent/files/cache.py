# SPDX-License-Identifier: Apache-2.0
"""Files by their digest under ROOT_DIR, so that a file travels to a node once.

A file is there whole or not at all: it is written aside, its digest is checked, and it appears by rename. It
is checked again before a use unless nothing has touched it since it was found right and the machine has not been
restarted: a crash can leave the right size with wrong bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Iterator, Set, Union

from paddle_node.agent.files import disk
from paddle_node.agent.files.digests import SIZE, blake2b
from paddle_node.agent.files.storage import mount_of
from paddle_node.agent.files.verified import Verified

STALE_S = 24 * 3600.0
UNUSED_S = 30 * 24 * 3600.0
USED_S = 24 * 3600.0  # a use is written down once a day
HASH_SIZE = 1 << 20
LENT_NS = 10**9
SETTLED_SIZE = 1 << 20  # a smaller file is read again in no time
_SILENT = ("tmpfs", "ramfs")  # a write through mapped memory does not show in a file's times there


class Cache:
    """The cache of one root directory; made on first use."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._aside = folder + "/incoming"
        self._verified = Verified(folder + "/verified")
        self._folders: Set[str] = set()
        self._may_lend = False
        self._lent: Set[str] = set()

    def prepare(self) -> None:
        """Make the folders, and remove what interrupted transfers left a day ago.

        Raises:
            OSError: a folder cannot be made, or is somebody else's.
        """
        if self._folders:
            return
        for folder in (self._folder, self._aside):
            disk.own_folder(folder)
        for path in disk.older_than(self._aside, STALE_S):
            disk.remove(path)
        self._verified.load()
        mount = mount_of(os.path.realpath(self._folder))
        self._may_lend = mount is not None and mount.kind not in _SILENT
        self._folders.update(name for name in os.listdir(self._folder) if len(name) == 1)
        self._folders.add("")

    def path(self, digest: str) -> str:
        """Where a file is or would be."""
        return "%s/%s/%s" % (self._folder, digest[:1], digest)

    def has(self, digest: str, size: int) -> bool:
        """Whether it is there, by its size."""
        try:
            return os.stat(self.path(digest), follow_symlinks=False).st_size == size
        except OSError:
            return False

    def use(self, digest: str, size: int) -> bool:
        """Count it as used now; False unless it is there and was verified."""
        path = self.path(digest)
        try:
            status = os.stat(path, follow_symlinks=False)
            if status.st_size != size or not self._verified.holds(digest, status):
                return False
            if last_use(status) < time.time() - USED_S:
                _note_use(path, status)
                settled = self._verified.is_settled(digest)
                self._verified.note(digest, os.stat(path, follow_symlinks=False), settled)
        except OSError:
            return False
        return True

    def check(self, digest: str, size: int) -> Iterator[None]:
        """Read a file, a step at a time, and remove it if it is damaged; a good one counts as used now."""
        if not self.has(digest, size):
            return
        path = self.path(digest)
        found = blake2b(digest_size=SIZE)
        try:
            with open(path, "rb", buffering=0) as file:
                piece = file.read(HASH_SIZE)
                while piece:
                    found.update(piece)
                    yield
                    piece = file.read(HASH_SIZE)
                _note_use(file.fileno(), os.fstat(file.fileno()))
                status = os.fstat(file.fileno())
        except OSError:
            found.update(b"unreadable")  # removed meanwhile, or on a bad block
        if found.hexdigest() == digest:
            self._verified.note(digest, status)
        else:
            disk.remove(path)

    def prune(self) -> Iterator[None]:
        """Remove, a folder at a time, the files that have not been used for UNUSED_S."""
        with contextlib.suppress(OSError):  # a cache that cannot be pruned serves as well
            for name in os.listdir(self._folder):
                if len(name) == 1:
                    for path in disk.older_than(self._folder + "/" + name, UNUSED_S, last_use):
                        disk.remove(path)
                        self._verified.forget(os.path.basename(path))
                    yield

    def save(self) -> None:
        """Save the records of the files for the next job."""
        self._verified.save()

    def aside(self) -> str:
        """A new path for a file on its way."""
        # no pid in the name: after a restart of a container the next agent has the same one
        return self._aside + "/" + os.urandom(16).hex()

    def put(self, digest: str, data: memoryview) -> None:
        """Make a file appear whose digest was checked.

        Raises:
            OSError: the disk is full, for one; nothing is left.
        """
        aside = self.aside()
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            disk.write_at(fd, data, 0)
        except OSError:
            disk.remove(aside)
            raise
        finally:
            os.close(fd)
        self.adopt(aside, digest)

    def lend(self, digest: str, target: str, mode: int, changed_ns: int = 0) -> bool:
        """Link a file into a job's tree instead of copying it; return False if it cannot be linked.

        With `changed_ns` it gets this modification time, unless that is in the future on this node.

        A job may write to its files, so no two jobs ever share one: a file that has a second name is copied for the
        next job, and one that was written to under its second name is found out before that, and sent anew.
        """
        if not self._may_lend:
            return False
        path = self.path(digest)
        try:
            status = os.stat(path, follow_symlinks=False)
            # an earlier job may have written to it and be gone since the file was looked at for this one
            if status.st_nlink != 1 or not self._verified.holds(digest, status):
                return False
            os.link(path, target, follow_symlinks=False)
        except OSError:
            return False
        status = os.stat(target, follow_symlinks=False)
        if status.st_nlink != 2:  # another agent was as fast
            os.unlink(target)
            return False
        if status.st_mode & 0o777 != mode:
            os.chmod(target, mode)
        # a write within the same tick of the file system's clock must show
        now_ns = time.time_ns()
        changed_ns = min(changed_ns or status.st_mtime_ns - LENT_NS, now_ns - LENT_NS)
        os.utime(target, ns=(now_ns, changed_ns))
        self._verified.note(digest, os.stat(target, follow_symlinks=False))
        if status.st_size >= SETTLED_SIZE:
            self._lent.add(digest)
        return True

    def settle(self) -> None:
        """The job is over here: what it was lent and left as it was need not be read when its directory is removed."""
        if not self._lent:
            return
        ours = signal.signal(signal.SIGIO, signal.SIG_IGN)  # comes to whoever holds a lease that is broken
        found = {}
        for digest in self._lent:
            with contextlib.suppress(OSError):  # somebody writes, or may; or it was removed meanwhile
                found[digest] = _unwritten(self.path(digest))
        signal.signal(signal.SIGIO, ours)
        self._lent.clear()
        right = {digest for digest, status in found.items() if self._verified.holds(digest, status)}
        self._verified.load()  # other agents have noted files meanwhile
        for digest, status in found.items():
            if digest in right or self._verified.holds(digest, status):
                self._verified.note(digest, status, settled=True)
        self._verified.save()

    def is_untouched(self, digest: str) -> bool:
        """Whether nothing has changed about a file since it was found right."""
        try:
            return self._verified.holds(digest, os.stat(self.path(digest), follow_symlinks=False))
        except OSError:
            return False

    def adopt(self, aside: str, digest: str) -> None:
        """Make a file appear that was written to a path of `aside` and checked."""
        if digest[:1] not in self._folders:
            os.makedirs(os.path.dirname(self.path(digest)), mode=0o700, exist_ok=True)
            self._folders.add(digest[:1])
        os.rename(aside, self.path(digest))
        self._verified.note(digest, os.stat(self.path(digest), follow_symlinks=False))


def last_use(status: os.stat_result) -> float:
    """When a file of the cache was used last: its time of modification may be that of a job's file."""
    return max(status.st_atime, status.st_mtime)


def _note_use(file: Union[str, int], status: os.stat_result) -> None:
    os.utime(file, ns=(time.time_ns(), status.st_mtime_ns))


def _unwritten(path: str) -> os.stat_result:
    """What stat says of a file at a moment when no process has it open for writing, or mapped.

    Raises:
        OSError: one has; or the file system cannot tell.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return os.fstat(fd)
    finally:
        os.close(fd)  # the lease ends with it
