# SPDX-License-Identifier: Apache-2.0
"""Room on disks, and the few folders and small files that a job directory needs beside its tree."""

from __future__ import annotations

import os
import shutil
import stat
from typing import Optional


def deepest(path: str) -> str:
    """The deepest directory on the way to `path` that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def free_bytes(path: str) -> int:
    """What a user may still write where `path` is or would be."""
    status = os.statvfs(deepest(path))
    return status.f_bavail * status.f_frsize


def write_text(path: str, content: str) -> None:
    """Write a small file, its folders too; a link of that name is refused, not followed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(content.encode("utf-8", "surrogateescape"))


def ready_folder(path: str, empty: bool) -> None:
    """Make a directory, or empty one that is there, but for hidden files.

    Raises:
        NotADirectoryError: something else is there, a link to a directory included; nothing was touched.
    """
    try:
        status: Optional[os.stat_result] = os.lstat(path)
    except FileNotFoundError:
        status = None
    if status is None:
        os.mkdir(path)
    elif not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError("%s is no directory of its own; nothing in it was touched" % path)
    elif empty:
        for entry in os.scandir(path):
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
