# SPDX-License-Identifier: Apache-2.0
"""Profile: which operators the runs of this process spend their time in, recorded while it is on.

It belongs to the process, since executors of all threads run operators. While it is off a run looks at it once; while
it is on an operator costs about 1 µs more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paddle.backend import settled
from paddle.graph.operator import Operator

Call = Callable[[list[Any]], None]


class Event(NamedTuple):
    """One operator that ran.

    Attributes:
        op_type: of the operator.
        output: name of the first variable that it writes, or "".
        thread: native id of the thread that ran it.
        start_ns: when it began, by `time.perf_counter_ns`.
        took_ns: how long it took; an operator with a body contains those in it.
    """

    op_type: str
    output: str
    thread: int
    start_ns: int
    took_ns: int


class Profile:
    """Events since it was started or reset. Thread-safe.

    Attributes:
        on: whether runs are recorded; one that is under way goes on as it began.
        waits: whether an operator counts until the GPU has done it, not only until it was asked to.
        events: in the order in which operators ended.
        since_ns: when it was started or reset.
    """

    def __init__(self) -> None:
        self.on = False
        self.waits = False
        self.events: list[Event] = []
        self.since_ns = 0

    def start(self, waits: bool) -> None:
        """Record from now on."""
        self.waits = waits
        self.reset()
        self.on = True

    def stop(self) -> None:
        """Record no longer; events are kept."""
        self.on = False

    def reset(self) -> None:
        """Forget all events."""
        self.events = []
        self.since_ns = time.perf_counter_ns()

    def recorded(self, calls: Sequence[Call], ops: Sequence[Operator]) -> tuple[Call, ...]:
        """Return calls of operators as calls that are recorded."""
        return tuple([self._timed(call, op) for call, op in zip(calls, ops, strict=True)])

    def _timed(self, call: Call, op: Operator) -> Call:
        output = next(iter(op.output_names), "")

        def timed(registers: list[Any]) -> None:
            start = time.perf_counter_ns()
            call(registers)
            if self.waits:
                settled()
            took = time.perf_counter_ns() - start
            self.events.append(Event(op.type, output, threading.get_native_id(), start, took))

        return timed


PROFILE = Profile()
