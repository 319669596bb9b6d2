# SPDX-License-Identifier: Apache-2.0
"""A cache of files by digest, below ROOT_DIR, so that each file is sent to a node only once.

A file appears completely or not at all: it is written under a temporary name, verified by its digest, and renamed. It
is verified again before each use, unless it is unchanged since the last verification and the machine has not restarted.
A crash can leave wrong bytes in a file of the right size.

A file counts as unchanged while its inode, size, mtime and ctime are the same. A file is settled if it was unchanged
when all processes that could write to it had exited. Removing its name from the job's directory changes its ctime, but
it still counts as unchanged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Dict, Generator, Iterator, Set, Union

from paddle_node.agent.files import disk
from paddle_node.agent.files.digests import SIZE, blake2b
from paddle_node.agent.files.storage import mount_of
from paddle_node.linux import proc

_FORM = "verified-1"
_SETTLED = " settled"


class Verified:
    """The record of a cache's verified files; `save` stores it for the next job.

    Args:
        path: a file in a folder that only this user can write to.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._head = ""
        self._marks: Dict[str, str] = {}
        self._changed = False

    def load(self) -> None:
        """Load the record of earlier jobs; a record that is unreadable or from an earlier boot counts as empty."""
        self._head = "%s %s" % (_FORM, proc.boot_id())
        self._marks, self._changed = {}, False
        with contextlib.suppress(ValueError):
            head, *lines = proc.lines(self._path)  # without a text file, whose codec would be imported
            if head == self._head and " " in head.strip():
                self._marks = dict(line.split(" ", 1) for line in lines)

    def holds(self, digest: str, status: os.stat_result) -> bool:
        """Return whether the file with this digest was verified and has not changed since, by its stat result."""
        known, now = self._marks.get(digest, ""), _mark(status)
        if not self.is_settled(digest):
            return known == now
        known = known[: -len(_SETTLED)]
        # its ctime, the last item, changed with the number of its links
        return known == now or (status.st_nlink == 1 and known.rpartition(" ")[0] == now.rpartition(" ")[0])

    def is_settled(self, digest: str) -> bool:
        """Return whether this file was still unchanged when all processes that could write to it had exited."""
        return self._marks.get(digest, "").endswith(_SETTLED)

    def note(self, digest: str, status: os.stat_result, settled: bool = False) -> None:
        """Record that the file with this stat result was verified to have this digest."""
        self._marks[digest] = _mark(status) + (_SETTLED if settled else "")
        self._changed = True

    def forget(self, digest: str) -> None:
        """Remove the record of a removed file."""
        if self._marks.pop(digest, None) is not None:
            self._changed = True

    def save(self) -> None:
        """Save the record; a failure only slows down the next job."""
        if not self._changed:
            return
        aside = "%s.%s" % (self._path, os.urandom(8).hex())
        with contextlib.suppress(OSError):
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(fd, "w", encoding="ascii") as file:
                    file.write(self._head + "\n")
                    file.writelines("%s %s\n" % item for item in self._marks.items())
                os.rename(aside, self._path)
            except OSError:
                os.unlink(aside)
        self._changed = False


def _mark(status: os.stat_result) -> str:
    return "%d %d %d %d" % (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


STALE_S = 24 * 3600.0
UNUSED_S = 30 * 24 * 3600.0
USED_S = 24 * 3600.0  # a use is recorded once a day
HASH_SIZE = 1 << 20
LENT_NS = 10**9
SETTLED_SIZE = 1 << 20  # a smaller file can be read again in a negligible time
_SILENT = ("tmpfs", "ramfs")  # a write through mapped memory does not change a file's times there


class Cache:
    """The file cache of one root directory, created on first use."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._aside = folder + "/incoming"
        self._verified = Verified(folder + "/verified")
        self._folders: Set[str] = set()
        self._may_lend = False
        self._lent: Set[str] = set()

    def prepare(self) -> None:
        """Create the folders, and remove files that interrupted transfers left more than a day ago.

        Raises:
            OSError: a folder cannot be created, or belongs to a different user.
        """
        if self._folders:
            return
        disk.own_folder(*os.path.split(self._aside))
        for path in disk.older_than(self._aside, STALE_S):
            disk.remove(path)
        self._verified.load()
        mount = mount_of(os.path.realpath(self._folder))
        self._may_lend = mount is not None and mount.kind not in _SILENT
        self._folders.update(name for name in os.listdir(self._folder) if len(name) == 1)
        self._folders.add("")

    def path(self, digest: str) -> str:
        """Return the path at which a file is, or would be, stored."""
        return "%s/%s/%s" % (self._folder, digest[:1], digest)

    def has(self, digest: str, size: int) -> bool:
        """Return whether the cache has a file with this digest and size; its content is not verified."""
        try:
            return os.stat(self.path(digest), follow_symlinks=False).st_size == size
        except OSError:
            return False

    def use(self, digest: str, size: int) -> bool:
        """Record that the file is used now; return False if it is missing or has not been verified."""
        path = self.path(digest)
        try:
            status = os.stat(path, follow_symlinks=False)
            if status.st_size != size or not self._verified.holds(digest, status):
                return False
            now = _noted_use(path, status)
            if now is not status:
                self._verified.note(digest, now, self._verified.is_settled(digest))
        except OSError:
            return False
        return True

    def check(self, digest: str) -> Generator[None, None, bool]:
        """Verify a file's digest, step by step; record a use, or remove the file and return False if it is damaged."""
        path = self.path(digest)
        found = blake2b(digest_size=SIZE)
        try:
            with open(path, "rb", buffering=0) as file:
                piece = file.read(HASH_SIZE)
                while piece:
                    found.update(piece)
                    yield
                    piece = file.read(HASH_SIZE)
                status = _noted_use(file.fileno(), os.fstat(file.fileno()))
        except FileNotFoundError:
            return False
        except OSError:
            found.update(b"unreadable")  # for example, it is on a bad block
        if found.hexdigest() != digest:
            disk.remove(path)
            return False
        self._verified.note(digest, status)
        return True

    def prune(self) -> Iterator[None]:
        """Remove the files that have not been used for UNUSED_S, one folder per step."""
        with contextlib.suppress(OSError):  # a cache that cannot be pruned still works
            for name in os.listdir(self._folder):
                if len(name) == 1:
                    for path in disk.older_than(self._folder + "/" + name, UNUSED_S, last_use):
                        disk.remove(path)
                        self._verified.forget(os.path.basename(path))
                    yield

    def save(self) -> None:
        """Write the records of verified files to disk, for the next job."""
        self._verified.save()

    def aside(self) -> str:
        """Return a new temporary path for a file being received."""
        # without the pid: after a container restart, the next agent has the same one
        return self._aside + "/" + os.urandom(16).hex()

    def put(self, digest: str, data: memoryview) -> None:
        """Add a file to the cache, whose digest was already verified.

        Raises:
            OSError: for example, the disk is full; nothing remains on disk.
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

        With `changed_ns`, the file gets this modification time, unless it is in the future on this node.

        A job may write to its files, so two jobs never share a file: if it already has a second name, it is copied for
        the next job. A file that was modified under its second name is detected before that, and sent again.
        """
        if not self._may_lend:
            return False
        path = self.path(digest)
        try:
            status = os.stat(path, follow_symlinks=False)
            # an earlier job may have written to it and exited since the file was checked for this job
            if status.st_nlink != 1 or not self._verified.holds(digest, status):
                return False
            os.link(path, target, follow_symlinks=False)
        except OSError:
            return False
        status = os.stat(target, follow_symlinks=False)
        if status.st_nlink != 2:  # another agent was faster
            os.unlink(target)
            return False
        if status.st_mode & 0o777 != mode:
            os.chmod(target, mode)
        # a write within the same tick of the file system's clock must be detected
        now_ns = time.time_ns()
        changed_ns = min(changed_ns or status.st_mtime_ns - LENT_NS, now_ns - LENT_NS)
        os.utime(target, ns=(now_ns, changed_ns))
        self._verified.note(digest, os.stat(target, follow_symlinks=False))
        if status.st_size >= SETTLED_SIZE:
            self._lent.add(digest)
        return True

    def settle(self) -> None:
        """Mark the unchanged files lent to an ended job, so that removing its directory does not force a new read."""
        if not self._lent:
            return
        ours = signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent to the holder of a broken lease
        found = {}
        for digest in self._lent:
            with contextlib.suppress(OSError):  # it may be open for writing, or was removed
                found[digest] = _unwritten(self.path(digest))
        signal.signal(signal.SIGIO, ours)
        self._lent.clear()
        right = {digest for digest, status in found.items() if self._verified.holds(digest, status)}
        self._verified.load()  # other agents have recorded files meanwhile
        for digest, status in found.items():
            if digest in right or self._verified.holds(digest, status):
                self._verified.note(digest, status, settled=True)
        self._verified.save()

    def is_untouched(self, digest: str) -> bool:
        """Return whether a file is unchanged since it was verified."""
        try:
            return self._verified.holds(digest, os.stat(self.path(digest), follow_symlinks=False))
        except OSError:
            return False

    def adopt(self, aside: str, digest: str) -> None:
        """Move a verified file from a path that `aside` returned into the cache."""
        if digest[:1] not in self._folders:
            os.makedirs(os.path.dirname(self.path(digest)), mode=0o700, exist_ok=True)
            self._folders.add(digest[:1])
        os.rename(aside, self.path(digest))
        self._verified.note(digest, os.stat(self.path(digest), follow_symlinks=False))


def last_use(status: os.stat_result) -> float:
    """Return the time of a cached file's last use; its modification time may have been set for a job's file."""
    return max(status.st_atime, status.st_mtime)


def _noted_use(file: Union[str, int], status: os.stat_result) -> os.stat_result:
    """Record a use of a file, at most once a day; return its stat result."""
    if last_use(status) >= time.time() - USED_S:
        return status
    os.utime(file, ns=(time.time_ns(), status.st_mtime_ns))
    return os.stat(file)


def _unwritten(path: str) -> os.stat_result:
    """Return the file's stat at a moment when no process has it open for writing or mapped.

    Raises:
        OSError: a process has the file open for writing, or the file system cannot report that.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return os.fstat(fd)
    finally:
        os.close(fd)  # closing it releases the lease
