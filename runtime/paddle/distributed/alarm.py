# SPDX-License-Identifier: Apache-2.0
"""Signals as bytes on a socket: whoever waits for other things too waits for them in the same place."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator, Sequence


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
