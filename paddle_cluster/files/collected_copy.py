# SPDX-License-Identifier: Apache-2.0
"""Writes the local copy of a collected file, under a name that the local file system accepts."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from pathlib import Path

from paddle_cluster.files.collected_places import digest, name_limit
from paddle_cluster.files.ledger import Difference
from paddle_cluster.files.permissions import permit, permitted
from paddle_cluster.text.sizes import size_text
from paddle_node.contract.fingerprint import DIGEST_SIZE, Fingerprint

_READABLE = 0o400  # the owner can always read the copy
_WRITABLE = 0o600  # and write it until it is complete
_FULL = "more than COLLECT_LIMIT_GB of this node"


class Copy:
    """The local copy of one collected file, written chunk by chunk.

    Args:
        node_id: the node that sends it.
        start: the offset of the first chunk, not counting holes.

    Attributes:
        lost: number of bytes that could not be written.
        stored: number of bytes written.
        problem: why bytes could not be written.
        partial: the path of the copy until it is complete.
        is_verified: whether the copy matches the node's list.
        is_permitted: whether the copy has the permissions that it should have.
    """

    __slots__ = (
        "_broken",
        "_fd",
        "_gap",
        "_is_foreign",
        "_mode",
        "_next",
        "_received",
        "_size",
        "_target",
        "_whole_only",
        "_written",
        "is_partial",
        "is_permitted",
        "is_verified",
        "lost",
        "node_id",
        "partial",
        "problem",
        "stored",
    )

    def __init__(self, node_id: int, target: Path, whole_only: bool, start: int) -> None:
        self.node_id = node_id
        self.partial = _beside(target)
        self.lost = 0
        self.stored = 0
        self.problem = ""
        self.is_partial = whole_only
        self._target = target
        self._whole_only = whole_only
        self._broken = False
        self._gap = False
        self._received = _fingerprint()
        self._written: tuple[int, ...] = ()  # the status of the file after the last write
        self._is_foreign = False  # another process changed it at that time
        self.is_verified = False
        self.is_permitted = True
        self._mode = _WRITABLE  # on the node
        self._next = start  # offset on the node
        self._size = 0  # expected local size of a log
        self._fd: int | None = None

    def write(self, offset: int, reset: bool, body: bytes, room: int, mode: int) -> None:
        """Write a chunk to the copy; count the bytes that cannot be written, without raising.

        Args:
            room: number of bytes that may be stored.
            mode: the file's permission bits on its node.
        """
        is_same_mode, self._mode = mode == self._mode, mode
        hole, self._next = max(0, offset - self._next), offset + len(body)
        self.is_verified = False
        self._received.skip_to(offset)
        self._received.add(body)
        if self._broken:  # half a model is worse than none
            self.lost += len(body)
            return
        is_hole = body.count(0) == len(body)
        view = memoryview(b"" if is_hole else body)
        before = self.stored
        try:
            fd = self._descriptor(reset)
            if not is_same_mode:
                self._permit(fd, _WRITABLE)
            if self._gap and not self._whole_only and room:
                self._append(fd, b"\n[bytes are missing here]\n")
                self._gap = False
            if hole or is_hole:
                self._extend(fd, hole + len(body) - len(view), offset + len(body) - len(view))
            self._put(fd, offset, view[:room])
            self._written = _identity(os.fstat(fd))
            if len(view) > room:
                raise OSError(errno.EDQUOT, _FULL)
        except OSError as error:
            self.problem = error.strerror or str(error)
            self.lost += max(1, len(view) - (self.stored - before))
            self._gap = True
            self._broken = self._whole_only
            if self._broken and self.is_partial:  # its blocks may be enough for another file
                self.lost, self.stored = self.lost + self.stored, 0
                self.discard()

    def rename(self, target: Path) -> None:
        """Move the file to another path."""
        self.close()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._target, target)
        except OSError as error:
            self.lost, self.problem = self.lost + 1, error.strerror or str(error)
        self._target, self.partial = target, _beside(target)

    def publish(self, mtime_ns: int | None) -> None:
        """Move a complete copy to its final name, and set the permissions and time that the file has on its node."""
        if not self._whole_only or self._broken:
            return
        if self._fd is not None and not self._mode & 0o200:
            self._permit(self._fd, _READABLE)
        if mtime_ns is not None and self._fd is not None:
            date(self._fd, mtime_ns)
            self._written = _identity(os.fstat(self._fd))
        if not self.is_partial:
            return
        try:
            os.replace(self.partial, self._target)
            self.is_partial, self.partial = False, self._target  # saves one path object per file
        except OSError as error:
            self.lost, self.problem = self.lost + 1, error.strerror or str(error)

    def verify(self, size: int, digest: str, free_bytes: int) -> Difference | None:
        """Compare the copy with the size and digest in the node's list; return the difference, or None.

        Args:
            free_bytes: free space on the disk.
        """
        self.close()
        found = self._difference(size, digest, free_bytes)
        self.is_verified = found is None
        return found

    def changed(self) -> str:
        """Return a message if the copy has changed since it was verified, otherwise ""."""
        found = self._difference_on_disk(self._received.hexdigest())
        return found.why if found else ""

    def _difference(self, size: int, digest: str, free_bytes: int) -> Difference | None:
        if self.lost:
            again = self.problem != _FULL and free_bytes > size
            return Difference(f"{size_text(self.lost)} missing: {self.problem}", again)
        if self.is_partial:
            return Difference("its end was not received")
        if (self._received.size, self._received.hexdigest()) != (size, digest):
            return Difference(f"the received copy differs: {self._received.size} of {size} bytes")
        return self._difference_on_disk(digest)

    def _difference_on_disk(self, digest: str) -> Difference | None:
        try:
            is_same = self._is_on_disk(digest)
        except FileNotFoundError:  # the user can move a model away at any time
            return None if self._whole_only else Difference("the local copy was removed while the job ran")
        except OSError as error:
            return Difference(f"the local copy cannot be read: {error.strerror or error}")
        return None if is_same else Difference("the local copy was changed while the job ran")

    def _is_on_disk(self, digest: str) -> bool:
        """Return whether the file has the digest; it is read only if another process may have changed it."""
        status = os.stat(self._target, follow_symlinks=False)
        if _identity(status) == self._written and not self._is_foreign:
            return True
        found = _fingerprint()
        for _ in found.reading(str(self._target), self._received.size + 1):
            pass
        return (found.size, found.hexdigest()) == (self._received.size, digest)

    def close(self) -> None:
        """Close the file's descriptor."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None

    def discard(self) -> None:
        """Close the file and remove a partial copy."""
        self.close()
        if self.is_partial:
            with contextlib.suppress(OSError):
                self.partial.unlink()

    def recheck(self) -> None:
        """Record the loss of a local log that another process removed; other files may be moved away at any time."""
        if not self._whole_only:
            self._expect(self._target.stat().st_size if self._target.is_file() else 0)

    def _expect(self, size: int) -> None:
        if size < self._size:
            self.lost += self._size - size
            self.problem = "the local copy was removed or truncated while the job ran"
            self._gap = True
        self._size = size

    def _put(self, fd: int, offset: int, view: memoryview) -> None:
        while view:
            written = os.pwrite(fd, view, offset) if self._whole_only else self._append(fd, view)
            self.stored += written
            offset, view = offset + written, view[written:]

    def _append(self, fd: int, data: bytes | memoryview) -> int:
        written = os.write(fd, data)
        self._size += written
        return written

    def _extend(self, fd: int, hole: int, end: int) -> None:
        """Create a hole in the file: a log grows at its end, any other file up to `end`."""
        size = os.fstat(fd).st_size
        wanted = end if self._whole_only else size + hole
        if wanted > size:
            os.ftruncate(fd, wanted)
        if not self._whole_only:
            self._size += hole

    def _permit(self, fd: int, least: int) -> None:
        self.is_permitted = permit(fd, permitted(self._mode) | least)

    def _descriptor(self, reset: bool) -> int:
        if self._fd is not None and not self._whole_only:
            status = os.fstat(self._fd)
            self._is_foreign = self._is_foreign or _identity(status) != self._written
            if not status.st_nlink:
                self.close()  # the file was removed
        if self._fd is None:
            path = self.partial if self.is_partial else self._target
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if self._whole_only else os.O_APPEND)
            flags |= os.O_TRUNC if reset else 0
            mode = self._mode | _WRITABLE
            try:
                self._fd = os.open(path, flags, mode)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(path, flags, mode)
            except PermissionError:  # a complete copy of a read-only file, or another user's file
                with contextlib.suppress(OSError):
                    path.chmod(_WRITABLE)
                self._fd = os.open(path, flags, mode)
            self._permit(self._fd, _WRITABLE)
            status = os.fstat(self._fd)
            self._is_foreign = self._is_foreign or (
                bool(self._written) and _identity(status) != self._written
            )
            if not self._whole_only:
                self._expect(status.st_size)
        return self._fd


def date(place: int | Path, mtime_ns: int) -> None:
    """Set the modification time of a file or link, in nanoseconds since 1970, if the file system supports it."""
    with contextlib.suppress(OSError, OverflowError):
        os.utime(place, ns=(mtime_ns, mtime_ns), follow_symlinks=isinstance(place, int))


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return a file's metadata that changes when another process writes or replaces the file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _fingerprint() -> Fingerprint:
    return Fingerprint(hashlib.blake2b(digest_size=DIGEST_SIZE))


def _beside(target: Path) -> Path:
    """Return the temporary path of an incomplete file; no other file of the job uses this path."""
    name = f".{target.name}.{digest(target.name)}.part"
    if len(os.fsencode(name)) > name_limit(target.parent):
        name = f".{digest(target.name)}.part"
    return target.with_name(name)
