# SPDX-License-Identifier: Apache-2.0
"""Signals as bytes on a socket, which ends of processes are too; and the end of everything below this process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterator, Sequence

from paddle_node.linux import process_tree

KILL_S = 5.0  # how long killed processes may take to be gone
_AGAIN_S = 0.2  # they may have had children in the meantime


@contextlib.contextmanager
def signals_on_socket(numbers: Sequence[signal.Signals]) -> Iterator[socket.socket]:
    """While this lasts, each of these signals becomes a byte with its number; belongs to the main thread.

    One that is ignored, as HUP is after `nohup`, stays so; not CHLD, without which ends of children are lost.
    """
    ours, python = socket.socketpair()
    ours.setblocking(False)
    python.setblocking(False)
    heard = [
        number
        for number in numbers
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, _noted) for number in heard}
    descriptor = signal.set_wakeup_fd(python.fileno(), warn_on_full_buffer=False)
    try:
        yield ours
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        python.close()


def take(place: socket.socket) -> bytes:
    """The bytes that are there; without a wait."""
    try:
        return place.recv(4096)
    except BlockingIOError:
        return b""


def _noted(number: int, frame: object) -> None:
    """Python itself writes the number to the socket."""


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
        take(alarms)
    return []
