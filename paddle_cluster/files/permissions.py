# SPDX-License-Identifier: Apache-2.0
"""The permission bits of collected files: those of the node's files, limited by this process's umask."""

from __future__ import annotations

import functools
import os
import stat

from paddle_node.linux import proc

_PRIVATE = "077"


@functools.cache
def _umask() -> int:
    """Return the umask of this process, which no thread changes; without /proc, the most private one."""
    return int(proc.value("/proc/self/status", "Umask") or _PRIVATE, 8)


def permitted(mode: int) -> int:
    """Return the permission bits of the copy of a file with this mode; never setuid, setgid or sticky."""
    return mode & 0o777 & ~_umask()


def permit(fd: int, mode: int) -> bool:
    """Set the permissions of an open file to `mode`; return whether the file has them now."""
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) == mode:
            return True
        os.fchmod(fd, mode)
        return stat.S_IMODE(os.fstat(fd).st_mode) == mode  # some file systems ignore the call
    except OSError:
        return False
