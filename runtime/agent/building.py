# SPDX-License-Identifier: Apache-2.0
"""Builds a tree from cached files aside, and publishes it by one rename."""

from __future__ import annotations

import errno
import os
import shutil
from typing import Dict, Iterator, List, Set

from agent import disk
from agent.cache import Cache
from agent.copying import SMALL, copy, copy_small
from agent.manifest import Entry, File, Folder, Symlink


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
        read_only: bool = False,
    ) -> Iterator[None]:
        """Build a tree and make it appear as `final`; what is there already stays.

        Args:
            files: small extra files, name -> content.
            collect: directories that are made if need be.
            read_only: nobody writes to its files: they need not be copies.

        Raises:
            OSError: the disk is full, for one; nothing is left.
        """
        parent, base = os.path.split(final)
        aside = "%s/%s.%s" % (self._folder, base, os.urandom(8).hex())
        os.makedirs(parent, exist_ok=True)
        os.mkdir(aside)
        self._asides.add(aside)
        try:
            yield from self._fill(aside, entries, read_only)
            for folder in collect:
                os.makedirs(aside + "/" + folder, exist_ok=True)
            for path, content in files.items():
                disk.write_text(aside + "/" + path, content)
            _set_modes(aside, entries)
            try:
                os.rename(aside, final)
            except OSError as error:
                # another agent published the same tree meanwhile
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            self._asides.discard(aside)

    def drop(self) -> None:
        """Remove what is half built."""
        for aside in self._asides:
            shutil.rmtree(aside, ignore_errors=True)

    def _fill(self, aside: str, entries: Dict[str, Entry], read_only: bool) -> Iterator[None]:
        made = {""}
        modes: Dict[str, int] = {}  # of names that share one file
        for path, entry in sorted(entries.items()):
            folder = path if isinstance(entry, Folder) else path.rpartition("/")[0]
            if folder not in made:
                os.makedirs(aside + "/" + folder, exist_ok=True)
                made.add(folder)
            if isinstance(entry, File):
                may_link = read_only and modes.setdefault(entry.digest, entry.mode) == entry.mode
                if not (may_link and self._link(aside + "/" + path, entry)):
                    yield from self._file(aside + "/" + path, entry)
            yield
        # last, so that nothing is ever written through one
        for path, entry in entries.items():
            if isinstance(entry, Symlink):
                os.symlink(entry.target, aside + "/" + path)

    def _link(self, target: str, entry: File) -> bool:
        try:
            self._cache.link(entry.digest, target, entry.mode)
        except OSError:
            return False
        return True

    def _file(self, target: str, entry: File) -> Iterator[None]:
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


def _set_modes(aside: str, entries: Dict[str, Entry]) -> None:
    """Directories last and deepest first: one may forbid to write into it."""
    for path, entry in sorted(entries.items(), reverse=True):
        if isinstance(entry, Folder):
            os.chmod(aside + "/" + path, entry.mode)
