# SPDX-License-Identifier: Apache-2.0
"""Reports facts about this process (records of `contract.facts`) to its agent, as JSON lines on a pipe.

Without that pipe nothing is reported. A report never blocks training and never ends it: when the pipe is full, progress
is dropped (newer progress follows), and when it is closed, reporting stops.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from paddle.env import JobEnvironment
from paddle.threads import ServiceThread
from paddle_node.contract.facts import (
    MAX_CURVES,
    MAX_PASSES,
    MAX_TEXT,
    MAX_TITLE,
    Points,
    Progress,
    Pushes,
    Queue,
    Ready,
    Unsaved,
)
from paddle_node.contract.records import fields_of
from paddle_node.linux.descriptors import identity

_MIN_INTERVAL_S = 0.25
_READY_TIMEOUT_S = 5.0
_ALIVE_S = 1.0
_MAX_TRAINERS = 1000  # in one line, which no reader need take if it is longer than 64 KiB
_CURVES_A_LINE = 5  # at most 6 bytes a character of JSON: below 4096
_ALIVE = b'{"event": "alive"}\n'


class Reporter:
    """A writer of report lines to the agent's pipe; thread-safe."""

    def __init__(self, descriptor: int | None) -> None:
        """Take ownership of `descriptor`, which child processes then do not inherit; None reports nothing."""
        self._lock = threading.Lock()
        self._descriptor = descriptor
        self._pending: Progress | None = None
        self._means: dict[int, float] = {}  # pass -> its mean cost; the last MAX_PASSES
        self._next_at = 0.0
        self._told_pushes: dict[int, tuple[int, int, int]] = {}
        self._told_unsaved = ""
        self._told_queue = b""
        self._points: dict[str, tuple[float, float]] = {}
        self._points_at = 0.0
        if descriptor is None:
            return
        try:
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)
        except OSError:
            self._descriptor = None

    @classmethod
    def from_environment(cls, environment: JobEnvironment | None = None) -> Reporter:
        """Return a reporter to the pipe that PADDLE_REPORT_FD names; it sends heartbeats from now on.

        Without that pipe it reports nothing: a child process may inherit the variables but not the pipe.
        """
        given = environment or JobEnvironment.read()
        is_other = given.report_pipe and given.report_pipe != identity(given.report_fd)
        reporter = cls(None if is_other else given.report_fd)
        reporter._begin_to_live()
        return reporter

    def ready(self, endpoints: Sequence[str], sparse_endpoints: Sequence[str]) -> None:
        """Report that a parameter server is ready on all its ports; wait up to 5 s for room in the pipe."""
        with self._lock:
            self._write(_line("ready", Ready(tuple(endpoints), tuple(sparse_endpoints))), _READY_TIMEOUT_S)

    def progress(self, progress: Progress, mean_cost: float | None = None) -> None:
        """Report the progress of training, in at most four lines per second, with the newest values.

        Args:
            mean_cost: the mean cost of all samples of this pass so far; every line has the last one of each pass.
        """
        with self._lock:
            if self._descriptor is None:
                return
            self._pending = progress
            if mean_cost is not None and progress.pass_id is not None:
                self._means[progress.pass_id] = mean_cost
                if len(self._means) > MAX_PASSES:
                    del self._means[next(iter(self._means))]
            if time.monotonic() >= self._next_at:
                self._write_pending(0.0)

    def point(self, curve: str, step: float, value: float) -> None:
        """Report a point of a curve, in at most four lines per second, with the newest point of each curve."""
        with self._lock:
            if self._descriptor is None or not _finite(float(step)) or not _finite(float(value)):
                return
            title = curve[:MAX_TITLE]
            if title not in self._points and len(self._points) >= MAX_CURVES:
                return
            self._points[title] = (float(step), float(value))
            if time.monotonic() >= self._points_at:
                self._write_points(0.0)

    def pushes(self, counts: Iterable[tuple[int, int, int]], *, is_last: bool = False) -> None:
        """Report push and discard counts of asynchronous training that changed since the last report.

        Args:
            counts: (trainer, number of its gradients, number of those discarded as too old).
            is_last: whether to wait up to 5 s for room in the pipe; otherwise, a later call writes lines for which
                there is no room.
        """
        with self._lock:
            news = [each for each in counts if self._told_pushes.get(each[0]) != each]
            for start in range(0, len(news), _MAX_TRAINERS):
                part = news[start : start + _MAX_TRAINERS]
                if not self._write(
                    _line("pushes", Pushes(tuple((trainer, came, late) for trainer, came, late in part))),
                    _READY_TIMEOUT_S if is_last else 0.0,
                ):
                    return
                self._told_pushes.update({each[0]: each for each in part})

    def queue(self, queue: Queue) -> None:
        """Report which trainers wait at a server, if that has changed; of many lags, report only the largest."""
        furthest = sorted(queue.lags, key=lambda each: -each[1])[:_MAX_TRAINERS]
        line = _line(
            "queue",
            queue._replace(
                missing=queue.missing[:_MAX_TRAINERS],
                waited_s=round(queue.waited_s, 1),
                lags=tuple(sorted(furthest)),
            ),
        )
        with self._lock:
            if line != self._told_queue and self._write(line, 0.0):
                self._told_queue = line

    def unsaved(self, what: str, *, is_last: bool = False) -> None:
        """Report that a checkpoint could not be saved, or "" once all are saved; send only changes.

        Args:
            what: the reason, as one line of text.
            is_last: whether to wait up to 5 s for room in the pipe; otherwise, a later call writes lines for which
                there is no room.
        """
        with self._lock:
            line = _line("unsaved", Unsaved(what[:MAX_TEXT]))
            if what != self._told_unsaved and self._write(line, _READY_TIMEOUT_S if is_last else 0.0):
                self._told_unsaved = what

    def flush(self) -> None:
        """Write the newest progress and points that are not written yet; wait up to 5 s for room in the pipe."""
        with self._lock:
            self._write_points(_READY_TIMEOUT_S)
            self._write_pending(_READY_TIMEOUT_S)

    def _begin_to_live(self) -> None:
        """Send a heartbeat about once a second, until the process ends or the pipe is closed.

        It is sent by a Python thread: a process that can no longer run Python sends none.
        """
        if self._descriptor is not None:
            ServiceThread(self._live, name="alive")

    def _live(self) -> None:
        while self._descriptor is not None:
            time.sleep(_ALIVE_S)
            with self._lock:
                self._write(_ALIVE, 0.0)

    def _write_pending(self, timeout_s: float) -> None:
        if self._pending is None:
            return
        passes = tuple(each for each in self._means.items() if _finite(each[1]))
        if self._write(_line("progress", self._pending._replace(passes=passes)), timeout_s):
            self._pending = None
            self._next_at = time.monotonic() + _MIN_INTERVAL_S

    def _write_points(self, timeout_s: float) -> None:
        """Write pending points in lines that a pipe accepts as a whole: a process may have two reporters."""
        while self._points:
            titles = list(self._points)[:_CURVES_A_LINE]
            points = Points(tuple((title, *self._points[title]) for title in titles))
            if not self._write(_line("points", points), timeout_s):
                return
            for title in titles:
                del self._points[title]
        self._points_at = time.monotonic() + _MIN_INTERVAL_S

    def _write(self, line: bytes, timeout_s: float) -> bool:
        """Write a whole line; return False when there was no room for its first byte in time."""
        deadline = time.monotonic() + timeout_s
        rest = memoryview(line)
        while rest and self._descriptor is not None:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Half a line would garble the next one, so a line that was begun gets the time to be completed.
                wait_s = (
                    deadline if len(rest) == len(line) else deadline + _READY_TIMEOUT_S
                ) - time.monotonic()
                if wait_s <= 0:
                    if len(rest) < len(line):
                        self._descriptor = None
                    return False
                select.select([], [self._descriptor], [], wait_s)
            except OSError:
                self._descriptor = None
        return True


def _line(kind: str, report: Any) -> bytes:
    # JSON has no NaN: a cost that is not finite is written as null.
    clean = {
        name: None if isinstance(value, float) and not _finite(value) else value
        for name, value in fields_of(report).items()
    }
    return json.dumps({"event": kind, **clean}, allow_nan=False).encode() + b"\n"


def _finite(value: float) -> bool:
    return value - value == 0.0
