# SPDX-License-Identifier: Apache-2.0
"""Disk operations: free space, and the folders and small files that a job directory needs in addition to its tree."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from typing import Callable, Iterator, List, Optional, Tuple, Union

from paddle_node.linux import ownership

LARGEST = (1 << 62) - 1  # a message's largest number; some network file systems report nearly 2**63
_LONG = struct.calcsize("l")
_GET_FLAGS = 2 << 30 | _LONG << 16 | 0x6601  # FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h
_SET_FLAGS = 1 << 30 | _LONG << 16 | 0x6602
_TOP_OF_TREES = 0x00020000  # FS_TOPDIR_FL, T of chattr(1)


def deepest(path: str) -> str:
    """Return the deepest existing directory on a path, to query the disk that a new file would use."""
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def free_bytes(path: str) -> int:
    """Return the number of bytes that a user can still write to the disk of `path`, which need not exist."""
    return room(deepest(path))[0]


def free_inodes(path: str) -> Optional[int]:
    """Return the number of free inodes at `path`; None if the file system does not count them."""
    return room(deepest(path))[1]


def room(folder: str) -> Tuple[int, Optional[int]]:
    """Return the free bytes and inodes of a folder's disk, each at most LARGEST; None means inodes are not counted.

    Raises:
        OSError: the file system does not respond properly.
    """
    status = os.statvfs(folder)
    inodes = min(status.f_favail, LARGEST) if status.f_files else None  # btrfs and others do not count inodes
    return min(status.f_bavail * status.f_frsize, LARGEST), inodes


def size_text(count: float) -> str:
    """Format a number of bytes for people, such as "1 byte" or "8.0 MB"."""
    for power, unit in ((30, "GB"), (20, "MB"), (10, "kB")):
        if count >= 1 << power:
            return "%.1f %s" % (count / (1 << power), unit)
    return "%d byte%s" % (count, "" if count == 1 else "s")


def own_folder(path: str, *inner: str) -> None:
    """Create a directory and its parents, accessible only to this user, and a chain of such directories in it.

    Args:
        inner: the name of a directory in `path`, the name of one in that, and so on; after the check of `path`, the
            check of its parents is not repeated.

    Raises:
        PermissionError: the path or one of its parents is a link, belongs to a different user, or is writable by
            others, so that its contents could not be trusted.
    """
    own_parent(path)
    _make_own(path)
    for name in inner:
        problem = ownership.problem_of_new_files(path)
        path += "/" + name
        if problem:
            raise PermissionError(errno.EPERM, problem, path)
        _make_own(path)


def _make_own(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            is_own = (
                stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and ownership.is_closed(fd)
            )
        finally:
            os.close(fd)
        if not is_own:
            text = "is a link, belongs to another user, or others can write to it; remove it, or set another ROOT_DIR"
            raise PermissionError(errno.EPERM, text, path) from None
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.chmod(path, 0o700)


def spread(path: str) -> None:
    """Set the attribute (FS_TOPDIR_FL) by which ext4 spreads a directory's entries; do nothing elsewhere.

    Otherwise, ext4 allocates a tree's files in its parent's block group, and for each file skips all inodes freed there
    in recent minutes, such as an earlier job's: 0.1 to 0.5 ms per file instead of 0.02 ms.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # the kernel reads and writes an int, although the request numbers say long
            flags = struct.unpack("ii", fcntl.ioctl(fd, _GET_FLAGS, bytes(8)))[0]
            if not flags & _TOP_OF_TREES:
                fcntl.ioctl(fd, _SET_FLAGS, struct.pack("ii", flags | _TOP_OF_TREES, 0))
        finally:
            os.close(fd)


def own_parent(path: str) -> None:
    """Create the missing directories above `path`, and check that no other user can write to them.

    Raises:
        PermissionError: other users could replace the files in one of these directories.
    """
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        os.makedirs(parent, exist_ok=True)
    problem = ownership.problem(parent)
    if problem:
        raise PermissionError(errno.EPERM, problem, path)


def older_than(
    folder: str, age_s: float, last: Callable[[os.stat_result], float] = lambda status: status.st_mtime
) -> List[str]:
    """Return the paths in a directory whose last change, by default their mtime, is older than `age_s` seconds.

    Other agents may remove some of them at any time.
    """
    oldest = time.time() - age_s
    found = []
    for name in os.listdir(folder):
        try:
            if last(os.lstat(folder + "/" + name)) < oldest:
                found.append(folder + "/" + name)
        except FileNotFoundError:
            continue
    return found


def write_text(path: str, content: str) -> None:
    """Write a small file, creating its parent folders; refuse to follow a link with its name."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK  # a named pipe would block
    fd = os.open(path, flags, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(content.encode("utf-8", "surrogateescape"))


def ready_folder(path: str, empty: bool) -> None:
    """Create a directory if it does not exist; with `empty`, remove the content of an existing one except hidden files.

    Raises:
        NotADirectoryError: the path is not a directory, or is a link to one; nothing was changed.
    """
    try:
        status: Optional[os.stat_result] = os.lstat(path)
    except FileNotFoundError:
        status = None
    if status is None:
        os.mkdir(path)
    elif not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError("%s is not a real directory; nothing in it was changed" % path)
    elif empty:
        for entry in os.scandir(path):
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
                if os.path.lexists(entry.path):
                    raise OSError(errno.ENOTEMPTY, "cannot be removed", entry.path)
            else:
                os.unlink(entry.path)


def write_at(fd: int, data: Union[bytes, memoryview], offset: int) -> None:
    """Write all of `data` to a descriptor at the given offset. Raises OSError."""
    written = os.pwrite(fd, data, offset)
    if written == len(data):
        return
    view = memoryview(data)[written:]
    while view:
        offset += written
        written = os.pwrite(fd, view, offset)
        view = view[written:]


def remove(path: str) -> None:
    """Remove a file; it is not an error if another agent has already removed it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str) -> None:
    """Remove a directory and its contents as far as possible; a missing directory is not an error."""
    if not os.path.islink(path):
        for _ in removing([path]):
            pass


def sizes(path: str) -> Iterator[int]:
    """Yield the number of bytes that removing a directory would free, per folder.

    Files with other links do not count.
    """
    for folder, names, files in os.walk(path):
        size = 0
        for name in names + files:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
                    size += status.st_blocks * 512
        yield size


def removing(paths: List[str]) -> Iterator[None]:
    """Remove directories as far as possible, one file per step. Processes can continue to use open files.

    Jobs may leave directories that their own user cannot read or write to; these get the permissions first.
    """
    for path in paths:
        folders = []
        _make_accessible(path)
        for folder, names, files in os.walk(path):
            folders.append(folder)
            for name in names:
                _make_accessible(os.path.join(folder, name))
            for name in names + files:  # links to directories are among the names
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))
                yield
        for folder in reversed(folders):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _make_accessible(folder: str) -> None:
    with contextlib.suppress(OSError):
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            os.chmod(folder, 0o700)
