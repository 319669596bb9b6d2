# SPDX-License-Identifier: Apache-2.0
"""The runtimes that jobs of a root directory share: each is kept while an agent uses it, and 30 days longer.

An agent holds a shared lock on the directory it uses; who removes an old one must get the lock for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Dict, Iterator

from agent.files import disk
from agent.files.cache import UNUSED_S


class Runtimes:
    """The runtimes below one folder.

    Args:
        building: where a tree is moved before it is removed, so that nobody sees half of one.
    """

    def __init__(self, folder: str, building: str) -> None:
        self._folder = folder
        self._building = building
        self._held: Dict[str, int] = {}

    def hold(self, path: str) -> bool:
        """Use a runtime from now on; False when it is not there, or is just being removed."""
        if os.path.dirname(path) != self._folder or path in self._held:
            return os.path.isdir(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.utime(fd)
            if not os.path.samestat(os.fstat(fd), os.stat(path)):
                raise FileNotFoundError(path)
        except OSError:  # somebody removes it
            os.close(fd)
            return False
        self._held[path] = fd
        return True

    def prune(self) -> Iterator[None]:
        """Remove, one at a time, the runtimes that no agent uses and none has used for UNUSED_S."""
        with contextlib.suppress(OSError):  # what cannot be removed is in nobody's way
            for path in disk.older_than(self._folder, UNUSED_S):
                self._remove(path)
                yield

    def _remove(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside = "%s/%s.%s" % (self._building, os.path.basename(path), os.urandom(8).hex())
            os.rename(path, aside)
            disk.remove_tree(aside)
        finally:
            os.close(fd)
