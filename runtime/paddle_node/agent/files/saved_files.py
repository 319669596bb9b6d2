# SPDX-License-Identifier: Apache-2.0
"""The directory PADDLE_CHECKPOINT_DIR, in which a job's scripts save their checkpoints.

It is next to the job directories, because it outlives its job: all jobs with the same checkpoint name share it. Files
that match a pattern are collected under `checkpoints/`. If it is empty and has no name, it is removed with its job.
"""

from __future__ import annotations

import os
import stat
from typing import Optional, Sequence

from paddle_node.agent.files import disk
from paddle_node.agent.files.sent_files import Listing
from paddle_node.contract.names import CHECKPOINT_DIR
from paddle_node.contract.to_agent import Saved, Start

FOLDER = "checkpoints"  # below the root directory; also the first part of a collected file's path
MOST_FILES = 100_000


class SavedFiles:
    """The checkpoint directory of one job.

    Attributes:
        name: the name that the user gave, or else the job's ID.
        path: the path of the directory.
    """

    def __init__(self, root_dir: str, job: str, name: str, patterns: Sequence[str]) -> None:
        self._is_named = name != job  # then another job may have just got it
        self.name = name
        self.path = "%s/%s/%s" % (root_dir, FOLDER, name)
        self._patterns = patterns

    def make(self) -> None:
        """Create the directory if it does not exist."""
        disk.own_folder(*os.path.split(self.path))

    def added_to(self, asked: Start) -> Start:
        """Return a `start` message with the directory added to its environment."""
        return asked._replace(env=dict(asked.env, **{CHECKPOINT_DIR: self.path}))

    def absolute(self, path: str) -> Optional[str]:
        """Return the absolute path of a collected file, or None if it is not below this directory."""
        folder, _, rest = path.partition("/")
        return self.path + "/" + rest if folder == FOLDER else None

    def add_to(self, found: Listing) -> None:
        """Add the files to collect from this directory, with their stat results, to a listing."""
        if not self._patterns:
            return
        import fnmatch  # imports regular expressions

        count = 0
        for at, _, names in os.walk(self.path, onerror=lambda error: found.note(error.filename, error)):
            for name in names:
                path = os.path.relpath(at + "/" + name, self.path)
                if not any(fnmatch.fnmatchcase(path, pattern) for pattern in self._patterns):
                    continue
                try:
                    status = os.stat(at + "/" + name, follow_symlinks=False)
                except OSError:
                    continue  # renamed or removed meanwhile
                if not stat.S_ISREG(status.st_mode):
                    continue
                count += 1
                if count <= MOST_FILES:
                    found.files[FOLDER + "/" + path] = status
        if count > MOST_FILES:
            found.problems[self.path] = "%d of its %d files were not collected" % (count - MOST_FILES, count)

    def has_unnamed(self) -> bool:
        """Return whether the directory has files, but no name by which a later job finds them."""
        try:
            return not self._is_named and bool(os.listdir(self.path))
        except OSError:
            return False

    def close(self) -> None:
        """Release the directory at the end of the job."""
        if self._is_named:
            return
        try:
            os.rmdir(self.path)
        except OSError:
            return  # something was saved in it, or it never existed


def of(root_dir: str, job: str, saved: Optional[Saved]) -> Optional[SavedFiles]:
    """Return the checkpoint directory that a `hello` requests for a job's scripts, or None.

    Raises:
        ValueError: the name begins with a dot.
    """
    if saved is None:
        return None
    if saved.name.startswith("."):
        raise ValueError("saved.name must not begin with a dot, got %r" % saved.name)
    return SavedFiles(root_dir, job, saved.name, saved.collect)
