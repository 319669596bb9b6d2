# SPDX-License-Identifier: Apache-2.0
"""The end of processes: who ended and how, and the end of everything below this process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection

from paddle.distributed import alarm
from paddle_node.linux import process_tree

KILL_S = 5.0  # how long killed processes may take to be gone
_AGAIN_S = 0.2  # they may have had children in the meantime


def reap() -> tuple[dict[int, int], bool]:
    """Exit codes of children that ended, by process id, negative for a signal; and whether there are others."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = os.waitstatus_to_exitcode(status)


def has_children() -> bool:
    """Whether something below this process still runs: orphans come to us, so that nothing is below no child."""
    _, others = reap()
    return others


def how(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (" (perhaps for want of memory)" if -code == signal.SIGKILL else "")


def send_to_all(*numbers: signal.Signals, but: Collection[int] = ()) -> set[int]:
    """Send signals to every process below this one; return their ids.

    Args:
        but: processes that are left out.
    """
    below = set(_below()).difference(but)
    for pid in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            for number in numbers:
                os.kill(pid, number)
    return below


def _below() -> list[int]:
    """The living processes below this one; found by their parents, never by a name."""
    seen = process_tree.snapshot() if sys.platform == "linux" else {}
    return [pid for pid in process_tree.descendants(seen, [os.getpid()]) if seen[pid].is_alive]


def kill_all(alarms: socket.socket) -> list[int]:
    """Kill every process below this one; return those that did not end within KILL_S.

    Args:
        alarms: gets a byte when a child ends.
    """
    deadline = time.monotonic() + KILL_S
    while has_children():
        left = deadline - time.monotonic()
        if left <= 0:
            return _below()
        send_to_all(signal.SIGKILL)
        select.select([alarms], [], [], min(_AGAIN_S, left))
        alarm.take(alarms)
    return []
