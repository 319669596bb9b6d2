# SPDX-License-Identifier: Apache-2.0
"""Profile: records the run time of each operator in this process while it is on.

There is one profile per process, because the executors of all threads run operators. While the profile is off, a run
checks it only once; while it is on, each operator takes about 1 µs longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from paddle.backend import settled
from paddle.graph.operator import Operator
from paddle_node.contract.classes import NamedTuple

Call = Callable[[list[Any]], None]


class Event(NamedTuple):
    """The record of one run of an operator.

    Attributes:
        op_type: the type of the operator.
        output: the name of the first variable that it writes, or "".
        thread: the native ID of the thread that ran it.
        start_ns: its start, by `time.perf_counter_ns`.
        took_ns: its duration, including that of the operators in its body.
    """

    op_type: str
    output: str
    thread: int
    start_ns: int
    took_ns: int


class Profile:
    """Records the run times of operators since its start or last reset. Thread-safe.

    Attributes:
        on: whether runs are recorded; a change does not affect a run in progress.
        waits: whether durations include the GPU's work, rather than only the launch of the operator.
        events: the events in the order in which the operators ended.
        since_ns: the time of the last start or reset.
    """

    def __init__(self) -> None:
        self.on = False
        self.waits = False
        self.events: list[Event] = []
        self.since_ns = 0

    def start(self, waits: bool) -> None:
        """Start recording the run times of operators."""
        self.waits = waits
        self.reset()
        self.on = True

    def stop(self) -> None:
        """Stop recording; events are retained."""
        self.on = False

    def reset(self) -> None:
        """Discard all recorded events."""
        self.events = []
        self.since_ns = time.perf_counter_ns()

    def recorded(self, calls: Sequence[Call], ops: Sequence[Operator]) -> tuple[Call, ...]:
        """Wrap the calls of operators so that their run times are recorded."""
        return tuple([self._timed(call, op) for call, op in zip(calls, ops, strict=True)])

    def _timed(self, call: Call, op: Operator) -> Call:
        output = next(iter(op.writes), "")

        def timed(registers: list[Any]) -> None:
            start = time.perf_counter_ns()
            call(registers)
            if self.waits:
                settled()
            took = time.perf_counter_ns() - start
            self.events.append(Event(op.type, output, threading.get_native_id(), start, took))

        return timed


PROFILE = Profile()
