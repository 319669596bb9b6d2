# SPDX-License-Identifier: Apache-2.0
"""Builds a tree from cached files aside, and publishes it by one rename."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import Callable, Dict, Iterator, List, Set

from agent.files import disk
from agent.files.cache import Cache
from agent.files.copying import SMALL, copy, copy_small
from agent.files.digests import digest_of
from agent.files.manifest import Entry, File, Folder, Symlink
from agent.files.unpacking import unpack


class Builder:
    """Builds trees below one folder.

    Args:
        folder: on the file system of the trees; the builder's own.
    """

    def __init__(self, folder: str, cache: Cache) -> None:
        self._folder = folder
        self._cache = cache
        self._asides: Set[str] = set()
        umask = os.umask(0)
        os.umask(umask)
        self._kept = ~umask  # bits of a mode that survive when a file is made

    def build(
        self,
        final: str,
        entries: Dict[str, Entry],
        files: Dict[str, str],
        collect: List[str],
    ) -> Iterator[None]:
        """Build a tree and make it appear as `final`; what is there already stays.

        Args:
            files: small extra files, name -> content.
            collect: directories that are made if need be.

        Raises:
            OSError: the disk is full, for one; nothing is left.
        """
        yield from self._publish(final, lambda aside: self._fill(aside, entries, files, collect))

    def unpack(self, final: str, bundle: str) -> Iterator[None]:
        """Make a tree of a bundle's files appear as `final`.

        Raises:
            OSError: the disk is full, for one; nothing is left.
            ValueError: it is no bundle.
        """
        yield from self._publish(final, partial(unpack, bundle))

    def _publish(self, final: str, fill: Callable[[str], Iterator[None]]) -> Iterator[None]:
        parent, base = os.path.split(final)
        aside = "%s/%s.%s" % (self._folder, base, os.urandom(8).hex())
        os.makedirs(parent, exist_ok=True)
        os.mkdir(aside)
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
        """Remove what is half built."""
        for aside in self._asides:
            disk.remove_tree(aside)

    def _fill(
        self, aside: str, entries: Dict[str, Entry], files: Dict[str, str], collect: List[str]
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
        _set_modes(aside, entries)

    def _place(self, target: str, entry: File) -> Iterator[None]:
        if not self._cache.lend(entry.digest, target, entry.mode):
            yield from self._copy(target, entry)

    def _copy(self, target: str, entry: File) -> Iterator[None]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(target, flags, entry.mode)
        try:
            if entry.size <= SMALL:
                copy_small(self._cache.path(entry.digest), fd, entry.size)
            else:
                yield from copy(self._cache.path(entry.digest), fd)
            if entry.mode & self._kept != entry.mode:
                os.fchmod(fd, entry.mode)
        finally:
            os.close(fd)
        # another job may have been lent it, and have written to it meanwhile
        if self._cache.is_untouched(entry.digest):
            return
        found = yield from digest_of(target)
        if found != entry.digest:
            raise OSError(
                errno.EAGAIN, "a job changed it while it was copied for this one; start again", target
            )


def _set_modes(aside: str, entries: Dict[str, Entry]) -> None:
    """Directories last and deepest first: one may forbid to write into it."""
    for path, entry in sorted(entries.items(), reverse=True):
        if isinstance(entry, Folder):
            os.chmod(aside + "/" + path, entry.mode)
