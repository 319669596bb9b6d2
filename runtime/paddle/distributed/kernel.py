# SPDX-License-Identifier: Apache-2.0
"""Ties between processes that the kernel keeps: orphans come to us, and children die with us.

Elsewhere than on Linux both do nothing, and a grandchild may outlive a launch that was killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make orphans below this process its children."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def dying_with(parent: int, blocked: Collection[signal.Signals] = ()) -> Callable[[], None]:
    """What a child of process `parent` runs between fork and exec, so that it is killed when the parent dies.

    Args:
        parent: of the process that runs it, which may be this one.
        blocked: signals that wait in the kernel until the program asks for them.
    """
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: after it only system calls are safe

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        if os.getppid() != parent:  # it died before the tie was there
            os._exit(1)

    return tie


def descendants(ancestor: int) -> list[int]:
    """The living processes below a process, itself left out; found by their parents, never by a name."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdigit() and (parent := _living_parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    below = [ancestor]
    while below:
        own = children.get(below.pop(), [])
        found += own
        below += own
    return found


def _living_parent(pid: str) -> int | None:
    """The parent's id; None for a process that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state == b"Z" else int(parent)
