# SPDX-License-Identifier: Apache-2.0
"""Trees that all jobs share: runtimes, and environments made from wheels, each in a folder named by its digest.

An agent that uses a tree holds a shared lock on it until the agent exits, so that the tree is not removed while it is
in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Dict, Generator, Iterator, List, Tuple

from paddle_node.agent.files import disk
from paddle_node.agent.files.cache import UNUSED_S

RUNTIMES = "/.paddle/runtime"
ENVIRONMENTS = "/.paddle/environments"
IN_USE = "a job uses it"
_BUILDING = "/.paddle/building"


class SharedFolders:
    """The shared runtimes and environments below one root directory, and this agent's locks on them."""

    def __init__(self, root_dir: str) -> None:
        self._folders = (root_dir + RUNTIMES, root_dir + ENVIRONMENTS)
        self._root_dir = root_dir
        self._held: Dict[str, int] = {}

    def hold(self, path: str) -> bool:
        """Lock a tree for use from now on; return False if it does not exist or is being removed."""
        if os.path.dirname(path) not in self._folders or path in self._held:
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
        except OSError:  # another agent is removing it
            os.close(fd)
            return False
        self._held[path] = fd
        return True

    def prune(self) -> Iterator[None]:
        """Remove trees that are not in use and have not been used for UNUSED_S, one file per step."""
        for folder in self._folders:
            with contextlib.suppress(OSError):  # a tree that cannot be removed does no harm
                for path in disk.older_than(folder, UNUSED_S):
                    yield from _removing(path, self._root_dir)


def cleanable(root_dir: str, older_s: float) -> Tuple[List[str], List[Tuple[str, str]]]:
    """Return the environments below a root directory that no agent uses, and (name, reason) of the environments in use.

    Args:
        older_s: minimum number of seconds since a job last started to use the environment.
    """
    folder = root_dir + ENVIRONMENTS
    gone, kept = [], []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        try:
            fd = _locked(folder + "/" + name)
        except OSError:
            kept.append((name, IN_USE))
            continue
        is_old = os.fstat(fd).st_mtime <= time.time() - older_s
        os.close(fd)
        if is_old:
            gone.append(name)
        else:
            kept.append((name, "a job used it too recently"))
    return gone, kept


def remove(root_dir: str, name: str) -> Generator[None, None, bool]:
    """Remove an environment step by step; return False if that is not possible: for example, a job uses it."""
    try:
        yield from _removing(root_dir + ENVIRONMENTS + "/" + name, root_dir)
    except OSError:
        return False
    return True


def _locked(path: str) -> int:
    """Return a descriptor that holds the exclusive lock of a tree.

    Raises:
        OSError: another process holds a lock on it, or it is not a directory.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _removing(path: str, root_dir: str) -> Iterator[None]:
    """Rename an unused tree before removing it, so that no process sees a partial one."""
    fd = _locked(path)
    try:
        disk.own_folder(root_dir + _BUILDING)
        aside = "%s%s/%s.%s" % (root_dir, _BUILDING, os.path.basename(path), os.urandom(8).hex())
        os.rename(path, aside)
        yield from disk.removing([aside])
    finally:
        os.close(fd)
