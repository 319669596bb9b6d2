# SPDX-License-Identifier: Apache-2.0
"""Files by their digest under ROOT_DIR, so that a file travels to a node once.

A file is there whole or not at all: it is written aside, its digest is checked, and it appears by rename. It
is checked again before each use: a crash of the node or a dying disk can leave the right size with wrong bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from typing import Iterator, Set

from agent import disk

DIGEST_SIZE = 32  # bytes of blake2b
STALE_S = 24 * 3600.0
UNUSED_S = 30 * 24 * 3600.0
COPY_SIZE = 8 << 20
HASH_SIZE = 1 << 20
_DIGEST = re.compile("[0-9a-f]{%d}" % (2 * DIGEST_SIZE))
_ZERO_SIZE = 1 << 16


class DigestError(Exception):
    """Bytes arrived that are not what they were said to be."""


class Cache:
    """The cache of one root directory; made on first use."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._aside = folder + "/incoming"
        self._sound: Set[str] = set()

    def prepare(self) -> None:
        """Make the folders, and remove what interrupted transfers left a day ago.

        Raises:
            OSError: a folder cannot be made, or is somebody else's.
        """
        for folder in (self._folder, self._aside):
            disk.own_folder(folder)
        for path in disk.older_than(self._aside, STALE_S):
            _remove(path)

    def path(self, digest: str) -> str:
        """Where a file is or would be."""
        return "%s/%s/%s" % (self._folder, digest[:2], digest)

    def has(self, digest: str, size: int) -> bool:
        """Whether it is there, by its size."""
        try:
            return os.stat(self.path(digest), follow_symlinks=False).st_size == size
        except OSError:
            return False

    def check(self, digest: str, size: int) -> Iterator[None]:
        """Read a file, a step at a time, and remove it if it is damaged; a good one counts as used now."""
        if digest in self._sound or not self.has(digest, size):
            return
        path = self.path(digest)
        found = hashlib.blake2b(digest_size=DIGEST_SIZE)
        try:
            with open(path, "rb", buffering=0) as file:
                piece = file.read(HASH_SIZE)
                while piece:
                    found.update(piece)
                    yield
                    piece = file.read(HASH_SIZE)
                os.utime(file.fileno())
        except OSError:
            found.update(b"unreadable")  # removed meanwhile, or on a bad block
        if found.hexdigest() == digest:
            self._sound.add(digest)
        else:
            _remove(path)

    def prune(self) -> Iterator[None]:
        """Remove, a folder at a time, the files that nobody has used for UNUSED_S."""
        with contextlib.suppress(OSError):  # a cache that cannot be pruned serves as well
            for name in os.listdir(self._folder):
                if len(name) == 2:
                    for path in disk.older_than(self._folder + "/" + name, UNUSED_S):
                        _remove(path)
                    yield

    def incoming(self, digest: str) -> Incoming:
        """Begin to receive one file."""
        # no pid in the name: after a restart of a container the next agent has the same one
        return Incoming(digest, self._aside + "/" + os.urandom(16).hex(), self.path(digest))


class Incoming:
    """One file on its way into the cache."""

    def __init__(self, digest: str, aside: str, path: str) -> None:
        self._digest = digest
        self._aside = aside
        self._path = path
        self._hash = hashlib.blake2b(digest_size=DIGEST_SIZE)
        self._size = 0
        self._fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, offset: int, data: bytes) -> None:
        """Append the next bytes.

        Raises:
            DigestError: they are not the next ones.
            OSError: the disk is full, for one.
        """
        if offset != self._size:
            raise DigestError(
                "%s: bytes at %d arrived, %d were expected" % (self._digest, offset, self._size)
            )
        self._hash.update(data)
        for start in range(0, len(data), _ZERO_SIZE):
            piece = data[start : start + _ZERO_SIZE]
            if piece.strip(b"\0"):  # what is all zeros stays a hole
                _write_at(self._fd, piece, offset + start)
        self._size += len(data)

    def publish(self) -> None:
        """Check the digest and make the file appear.

        Raises:
            DigestError: the bytes are not those of the digest.
        """
        if self._hash.hexdigest() != self._digest:
            raise DigestError(
                "%s: the bytes that arrived have digest %s" % (self._digest, self._hash.hexdigest())
            )
        os.ftruncate(self._fd, self._size)
        os.close(self._fd)
        self._fd = -1
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        os.rename(self._aside, self._path)

    def drop(self) -> None:
        """Leave nothing behind."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        _remove(self._aside)


def is_digest(text: str) -> bool:
    """Whether a text has the form of a digest, so that it can be part of a path."""
    return _DIGEST.fullmatch(text) is not None


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another agent was faster
        os.unlink(path)


def copy(source: str, target: int) -> Iterator[None]:
    """Copy a file into a new descriptor, a step at a time: holes as holes, by reflink where that works."""
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        os.ftruncate(target, size)
        for start, end in _data(fd, size):
            while start < end:
                start += _copy_piece(fd, target, start, min(COPY_SIZE, end - start))
                yield
    finally:
        os.close(fd)


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data, as start and end."""
    offset = 0
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
            offset = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            start, offset = offset, size  # a file system that knows no holes
        yield start, offset


def _copy_piece(source: int, target: int, offset: int, size: int) -> int:
    try:
        copied = os.copy_file_range(source, target, size, offset, offset)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        copied = 0
    if copied == 0:  # an old kernel, or two file systems
        data = os.pread(source, size, offset)
        if not data:
            raise OSError(errno.EIO, "a cached file became shorter while it was copied")
        _write_at(target, data, offset)
        copied = len(data)
    return copied


def _write_at(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        offset += written
        view = view[written:]
