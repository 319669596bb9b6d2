# SPDX-License-Identifier: Apache-2.0
"""Outbox: the queue of values that a run sends to servers, and the thread that sends them during the run.

The thread sends the collected values as soon as they are large enough for a message. More values are collected during
that time, so messages grow with the time that sending takes. When too few values remain, the thread ends, and they are
sent with the step's last message. Small steps use neither a thread nor an additional message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TypeAlias

from paddle.pserver.wire.named_values import Value, value_bytes
from paddle.threads import ServiceThread, left_to_finish
from paddle_node.contract.classes import NamedTuple

EARLY_BYTES = 1 << 20
"""The least number of bytes for a separate message; 8 ms at 1 Gbit/s."""

Values: TypeAlias = dict[int, dict[str, Value]]


class Parcel(NamedTuple):
    """A message with some of the values that a step sends.

    Attributes:
        values: server -> values by name.
        is_first: whether this is the step's first parcel; the server then discards values from a failed step.
    """

    values: Values
    is_first: bool


class Outbox:
    """A queue of values for servers. One thread runs the program and adds values; a second thread calls `push`."""

    def __init__(self, push: Callable[[Parcel], None]) -> None:
        """Create an empty outbox.

        Args:
            push: function that sends a parcel (other than the last of its step), and returns when it has arrived.
        """
        self._push = push
        self._lock = threading.Lock()  # protects all attributes below except `_early`
        self._early: Collection[int] = ()
        self._waiting: Values = {}
        self._early_bytes = 0
        self._has_pushed = False
        self._sender: ServiceThread[None] | None = None
        self._is_sending = False

    @property
    def is_empty(self) -> bool:
        """Return whether no values have been added since `take` or `drop`."""
        with self._lock:
            return not self._waiting and not self._has_pushed

    def begin(self, early: Collection[int]) -> None:
        """Begin a run; `early` names the servers whose values are sent before `take`."""
        self.drop()
        self._early = early

    def put(self, server: int, name: str, value: Value) -> None:
        """Add a value, which must not change before the end of the step.

        Raises:
            PaddleError: earlier values could not be sent.
        """
        with self._lock:
            self._waiting.setdefault(server, {})[name] = value
            if server in self._early:
                self._early_bytes += value_bytes(value)
            begins = not self._is_sending and self._early_bytes >= EARLY_BYTES
            self._is_sending |= begins
        if begins:
            try:
                self._finish()
                self._sender = ServiceThread(self._send, name="gradients-out", failed=left_to_finish)
            except BaseException:
                self._stop_sending()
                raise

    def take(self) -> Parcel:
        """Wait until all sent values have arrived; return the unsent values as the step's last parcel.

        Raises:
            PaddleError: see `put`.
        """
        with self._lock:
            values, self._waiting, self._early_bytes = self._waiting, {}, 0
        self._finish()
        is_first, self._has_pushed = not self._has_pushed, False
        return Parcel(values, is_first)

    def drop(self) -> None:
        """Discard the unsent values, without waiting; the next parcel is then the first of its step."""
        with self._lock:
            self._waiting, self._early_bytes, self._has_pushed = {}, 0, False

    def _finish(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.finish()

    def _send(self) -> None:
        """Send collected values, as long as there are enough for a message."""
        try:
            while (parcel := self._next()) is not None:
                self._push(parcel)
        except BaseException:
            self._stop_sending()
            raise

    def _stop_sending(self) -> None:
        with self._lock:
            self._is_sending = False

    def _next(self) -> Parcel | None:
        with self._lock:
            if self._early_bytes < EARLY_BYTES:
                self._is_sending = False
                return None
            values = {server: self._waiting.pop(server) for server in self._early if server in self._waiting}
            is_first, self._has_pushed, self._early_bytes = not self._has_pushed, True, 0
            return Parcel(values, is_first)
