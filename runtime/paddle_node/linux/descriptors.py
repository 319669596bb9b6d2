# SPDX-License-Identifier: Apache-2.0
"""In-memory files (memfd), descriptor passing over local sockets, and the user at a local socket's other end."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import Any, List, Optional, Sequence, Tuple, Union

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_INT = struct.calcsize("i")
HAS_MEMORY = hasattr(os, "memfd_create")
_FIXED = (
    getattr(fcntl, "F_SEAL_SHRINK", 0) | getattr(fcntl, "F_SEAL_GROW", 0) | getattr(fcntl, "F_SEAL_SEAL", 0)
)


def identity(fd: Optional[int]) -> str:
    """Return "device:inode" of an open descriptor, which identifies its file; "" if the descriptor is not open."""
    try:
        status = os.fstat(-1 if fd is None else fd)
    except OSError:
        return ""
    return "%d:%d" % (status.st_dev, status.st_ino)


def memory(name: str, nbytes: int = 0, is_fixed: bool = False) -> int:
    """Create zeroed memory of `nbytes` bytes (memfd) and return its descriptor, which children do not inherit.

    Args:
        name: the name that /proc shows.
        is_fixed: whether the size is sealed. If memory shrank, reading beyond its end would kill the reader (SIGBUS).

    Raises:
        OSError: there is not enough memory.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | (os.MFD_ALLOW_SEALING if is_fixed else 0))
    try:
        os.ftruncate(fd, nbytes)
        if is_fixed:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FIXED)
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_fixed(fd: int) -> bool:
    """Return whether the size of another process's in-memory file is sealed.

    Raises:
        OSError: the descriptor does not refer to an in-memory file.
    """
    return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _FIXED == _FIXED


class memory_file:  # noqa: N801 - used as a function
    """A context manager that provides a path at which this process and its children can read the content.

    If the kernel has no in-memory files, it is a file that only this user can read.
    """

    def __init__(self, name: str, content: bytes) -> None:
        self._name, self._content = name, content
        self._file: Any = None

    def __enter__(self) -> str:
        if HAS_MEMORY and os.path.isdir("/proc/self/fd"):
            self._file = os.fdopen(memory(self._name), "wb")
            path = "/proc/%s/fd/%d" % (os.readlink("/proc/self"), self._file.fileno())
        else:
            import tempfile  # imports `random` and many other modules

            self._file = tempfile.NamedTemporaryFile(prefix=".paddle-")
            path = self._file.name
        self._file.write(self._content)
        self._file.flush()
        return path

    def __exit__(self, *_: object) -> None:
        self._file.close()


def sync(path: Union[str, "os.PathLike[str]"]) -> None:
    """Wait until a file, or the names in a directory, are stored on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def send(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    """Send one message with descriptors over a local socket (SCM_RIGHTS)."""
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("%di" % len(fds), *fds))])


def receive(sock: socket.socket, size: int, most: int) -> Tuple[bytes, List[int]]:
    """Receive one message and its descriptors, which the caller must close and children do not inherit."""
    data, ancillary, _flags, _address = sock.recvmsg(size, socket.CMSG_SPACE(most * _INT))
    fds: List[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += struct.unpack_from("%di" % (len(content) // _INT), content)
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, fds


def is_our_user(sock: socket.socket) -> bool:
    """Return whether the process at the other end of a local socket belongs to this process's user."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())
