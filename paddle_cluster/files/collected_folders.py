# SPDX-License-Identifier: Apache-2.0
"""Creates the local copies of collected directories, with their permissions and times."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from paddle_cluster.files.permissions import permitted
from paddle_node.contract.collected import Directory

_OWN = 0o700  # otherwise, no file could be collected into the directory


class Folders:
    """The directories that nodes sent. Their times are set at the end, because each new file changes them."""

    def __init__(self) -> None:
        self._times: dict[Path, int | None] = {}

    def __contains__(self, target: Path) -> bool:
        return target in self._times

    def make(self, target: Path, folder: Directory) -> None:
        """Create a directory, or change the permissions of an existing one; a link to a directory is not changed.

        Raises:
            OSError: the directory cannot be created.
        """
        self._times.pop(target, None)
        mode = permitted(folder.mode) | _OWN
        try:
            _make(target, mode)
        except FileExistsError:
            if not target.is_dir():
                raise
            if not target.is_symlink():
                with contextlib.suppress(OSError):  # another user's, who has given this one access
                    kept = target.stat().st_mode & ~0o777 & 0o7777  # such as setgid, of a shared workspace
                    target.chmod(mode | kept)
        self._times[target] = folder.mtime

    def remove(self, target: Path) -> bool:
        """Remove a directory that was removed on its node, unless it has files; return whether a node had sent it."""
        if target not in self._times:
            return False
        with contextlib.suppress(OSError):
            target.rmdir()
        return self.forget(target)

    def forget(self, target: Path) -> bool:
        """Forget a directory in whose place a file or link was sent; return whether a node had sent it."""
        return self._times.pop(target, ...) is not ...

    def close(self) -> None:
        """Set the modification times that the directories have on their nodes, if the file system supports them."""
        for target, mtime_ns in self._times.items():
            with contextlib.suppress(OSError, OverflowError):
                if mtime_ns is not None and not target.is_symlink():
                    os.utime(target, ns=(mtime_ns, mtime_ns))


def is_of_an_earlier_job(place: Path, top: Path, is_target: bool) -> bool:
    """Return whether a file below `top` occupies the place of a folder, or a link there would redirect a file."""
    if not str(place).startswith(f"{top}/"):
        return False
    if place.is_symlink():  # a link out of output/ belongs to the user, for example to a larger disk
        return place.resolve().is_relative_to(top.resolve())
    return not is_target and place.is_file()


def _make(target: Path, mode: int) -> None:
    try:
        target.mkdir(mode)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir(mode)
