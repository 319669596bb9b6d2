# SPDX-License-Identifier: Apache-2.0
"""Builds a tree from cached files in a temporary directory, and publishes it with one rename.

Files are copied by reflink where possible, and holes are preserved. A bundle, which contains hundreds of small files
that are sent, cached and verified as one file, is unpacked instead. Its contents, compressed with zlib, are:

    length of the manifest (8 bytes, big-endian) | manifest | contents of its files, in order
"""

from __future__ import annotations

import errno
import os
import zlib
from functools import partial
from typing import Callable, Dict, Iterator, List, Sequence, Set, Tuple

from paddle_node.agent.files import disk
from paddle_node.agent.files.cache import Cache
from paddle_node.agent.files.digests import digest_of
from paddle_node.agent.files.manifest import Entry, check_tree, parse
from paddle_node.contract.to_agent import File, Folder, Symlink

COPY_SIZE = 8 << 20
SMALL = 1 << 20  # bytes copied in one step
_LENGTH = 8


class Builder:
    """The builder of trees below one folder.

    Args:
        folder: a directory on the trees' file system that only the builder uses.
    """

    def __init__(self, folder: str, cache: Cache) -> None:
        self._folder = folder
        self._cache = cache
        self._asides: Set[str] = set()
        umask = os.umask(0)
        os.umask(umask)
        self._kept = ~umask  # mode bits that are preserved

    def build(
        self,
        final: str,
        entries: Dict[str, Entry],
        files: Dict[str, str],
        collect: Sequence[str],
    ) -> Iterator[None]:
        """Build a tree, step by step, and publish it as `final`; do not overwrite existing files.

        Args:
            files: extra small files, name -> content.
            collect: directories that are created if they are missing.

        Raises:
            OSError: for example, the disk is full; nothing remains on disk.
        """
        yield from self._publish(final, lambda aside: self._fill(aside, entries, files, collect))

    def unpack(self, final: str, bundle: str) -> Iterator[None]:
        """Unpack a bundle's files to a tree, step by step, and publish it as `final`.

        Raises:
            OSError: for example, the disk is full; nothing remains on disk.
            ValueError: the file is not a bundle.
        """
        yield from self._publish(final, partial(_unpack, bundle))

    def install(self, final: str, wheels: List[Tuple[str, str]], limit: int) -> Iterator[None]:
        """Unpack wheels, step by step, to a directory that Python can import from, and publish it as `final`.

        Args:
            wheels: the name and path of each wheel.
            limit: the maximum number of unpacked bytes.

        Raises:
            OSError: for example, the disk is full; nothing remains on disk.
            ValueError: a file is not a wheel, or contains something that a wheel must not.
        """
        from paddle_node.agent.files import (
            wheels as unpacking,  # imports zipfile, which most jobs do not need
        )

        yield from self._publish(final, lambda aside: unpacking.unpack(wheels, aside, limit))

    def _publish(self, final: str, fill: Callable[[str], Iterator[None]]) -> Iterator[None]:
        aside = "%s/%s.%s" % (self._folder, os.path.basename(final), os.urandom(8).hex())
        disk.own_parent(final)
        os.mkdir(aside, 0o700)
        os.chmod(aside, 0o777 & self._kept)  # a default access list would replace the umask
        self._asides.add(aside)
        try:
            yield from fill(aside)
            try:
                os.rename(aside, final)
            except OSError as error:
                # another agent published the same tree meanwhile
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            disk.remove_tree(aside)
            self._asides.discard(aside)

    def drop(self) -> None:
        """Remove the incomplete tree, if there is one."""
        for aside in self._asides:
            disk.remove_tree(aside)

    def _fill(
        self, aside: str, entries: Dict[str, Entry], files: Dict[str, str], collect: Sequence[str]
    ) -> Iterator[None]:
        made = {""}
        for path, entry in sorted(entries.items()):
            folder = path if isinstance(entry, Folder) else path.rpartition("/")[0]
            if folder not in made:
                os.makedirs(aside + "/" + folder, exist_ok=True)
                made.add(folder)
            if isinstance(entry, File) and path not in files:
                yield from self._place(aside + "/" + path, entry)
            yield
        # last, so that nothing is ever written through one
        for path, entry in entries.items():
            if isinstance(entry, Symlink):
                os.symlink(entry.target, aside + "/" + path)
        for folder in collect:
            os.makedirs(aside + "/" + folder, exist_ok=True)
        for path, content in files.items():
            disk.write_text(aside + "/" + path, content)
        self._finish_folders(aside, entries)

    def _finish_folders(self, aside: str, entries: Dict[str, Entry]) -> None:
        """Set times and modes of directories, deepest first: new files change the time, and a mode may forbid them."""
        for path, entry in sorted(entries.items(), reverse=True):
            if isinstance(entry, Folder):
                if entry.changed_ns:
                    os.utime(aside + "/" + path, ns=(entry.changed_ns, entry.changed_ns))
                os.chmod(aside + "/" + path, entry.mode & self._kept)

    def _place(self, target: str, entry: File) -> Iterator[None]:
        if not self._cache.lend(entry.digest, target, entry.mode & self._kept, entry.changed_ns):
            yield from self._copy(target, entry)
            if entry.changed_ns:
                os.utime(target, ns=(entry.changed_ns, entry.changed_ns))

    def _copy(self, target: str, entry: File) -> Iterator[None]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(target, flags, entry.mode)
        try:
            if entry.size <= SMALL:
                _copy_small(self._cache.path(entry.digest), fd, entry.size)
            else:
                yield from _copy(self._cache.path(entry.digest), fd)
        finally:
            os.close(fd)
        # another job may have been lent the file and written to it meanwhile
        if self._cache.is_untouched(entry.digest):
            return
        found = yield from digest_of(target)
        if found != entry.digest:
            raise OSError(errno.EAGAIN, "another job changed the file during the copy; start again", target)


def _copy_small(source: str, target: int, size: int) -> None:
    """Copy a file of `size` bytes, at most SMALL, into a new descriptor."""
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        start = 0
        while start < size:
            start += _copy_piece(fd, target, start, size - start)
    finally:
        os.close(fd)


def _copy(source: str, target: int) -> Iterator[None]:
    """Copy a file into a new descriptor, step by step: by reflink where possible, and with holes preserved."""
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
    """Yield the ranges of a file that contain data, as (start, end)."""
    offset = 0
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
            offset = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            start, offset = offset, size  # a file system without support for holes
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
            raise OSError(errno.EIO, "a cached file became shorter while it was being copied")
        disk.write_at(target, data, offset)
        copied = len(data)
    return copied


def _unpack(bundle: str, folder: str) -> Iterator[None]:
    """Write a bundle's files into an empty directory, step by step.

    Raises:
        OSError: for example, the disk is full.
        ValueError: the file is not a bundle.
    """
    with open(bundle, "rb", buffering=0) as packed:
        try:
            data = memoryview(zlib.decompress(packed.read()))
        except zlib.error as error:
            raise ValueError("cannot unpack a bundle: %s" % error) from error
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    entries = parse(bytes(data[_LENGTH:start]))
    check_tree(entries)
    made = {""}
    for path, entry in entries.items():
        if isinstance(entry, Symlink):
            raise ValueError("a bundle must not contain links, got %r" % path)
        parent = path.rpartition("/")[0] if isinstance(entry, File) else path
        if parent not in made:
            os.makedirs(folder + "/" + parent, exist_ok=True)
            made.add(parent)
        if isinstance(entry, File):
            end = start + entry.size
            _write(folder + "/" + path, entry.mode, data[start:end])
            start = end
            yield
    if start != len(data):
        raise ValueError("expected a bundle of %d bytes as in its manifest, got %d" % (start, len(data)))


def _write(path: str, mode: int, content: memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        disk.write_at(fd, content, 0)
    finally:
        os.close(fd)
