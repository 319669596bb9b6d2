# SPDX-License-Identifier: Apache-2.0
"""Reads the reports of a process (JSON lines, the records of `contract.facts`) and passes them on.

A line is accepted if it is a valid record; a number in a trainer's progress, if it is within its limits. All others are
ignored, and the first one is reported. `step`, `loss`, `samples` and `samples_per_s` that a trainer's script reports,
with `paddle_job.report` or in log lines, become Progress; numbers with other names become curves.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.processes.stall_detector import StallDetector
from paddle_node.contract import checked_json
from paddle_node.contract.facts import (
    MAX_CURVES,
    MAX_TEXT,
    MAX_TITLE,
    Alive,
    Numbers,
    Points,
    Progress,
    Pushes,
    Ready,
    Unsaved,
    read_report,
)
from paddle_node.contract.records import Fields, fields_of, read

WINDOW_S = 2.5  # a speed is averaged over one to two such windows
LOSSES = ("loss", "cost", "train_loss")
SPEEDS = ("samples_per_s", "train_samples_per_second")
_MOST = 1 << 53


class ScriptProgress:
    """Converts the numbers that a script reports to Progress and Points.

    If a script reports no step, its step is the number of its reports. If the step decreases, a new epoch has begun,
    and counting continues from the previous value. A step or sample count that is negative or beyond 2**53 is omitted
    from its report.

    Args:
        report: function that is called with a message about each number that is omitted.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._step = -1
        self._names_steps = False
        self._samples = 0
        self._before = 0  # steps of the epochs before this one
        self._cost: Optional[float] = None
        self._speed: Optional[float] = None
        self._counts: List[
            Tuple[float, float]
        ] = []  # (time, samples): the start of this window and of the last

    def take(self, numbers: Mapping[str, float], now: float) -> Tuple[Optional[Progress], Optional[Points]]:
        """Convert a report to progress and points of curves; None for each that it does not contain.

        Args:
            numbers: name -> a finite number; `samples` is the number of samples in all steps so far.
            now: monotonic time in seconds.
        """
        rest = dict(numbers)
        step, samples = self._taken_count(rest, "step"), self._taken_count(rest, "samples")
        cost, speed = _taken(rest, LOSSES), _taken(rest, SPEEDS)
        is_step = (step, samples, cost, speed) != (None, None, None, None)
        if is_step:
            self._count(step)
        self._cost = self._cost if cost is None else cost
        if speed is not None:
            self._speed = speed
        elif samples is not None:
            self._measure(samples, now)
        at = min(self._before + max(0, self._step), _MOST)
        titles = sorted(rest)[:MAX_CURVES]
        points = Points(tuple((title[:MAX_TITLE], at, rest[title]) for title in titles))
        if samples is not None or "samples" not in numbers:  # an invalid one leaves the last one
            self._samples = int(samples or 0)
        progress = Progress(at, None, self._cost, self._speed, at, self._samples)
        return progress if is_step else None, points if titles else None

    def _taken_count(self, numbers: Dict[str, float], name: str) -> Optional[float]:
        value = numbers.pop(name, None)
        if value is None or 0 <= value <= _MOST:
            return value
        self._report("%s must be a number from 0 to 2**53, got %r" % (name, value))
        return None

    def _count(self, step: Optional[float]) -> None:
        if step is None:
            self._step += not self._names_steps
            return
        self._names_steps = True
        if step < self._step:
            self._before += self._step
        self._step = int(step)

    def _measure(self, samples: float, now: float) -> None:
        if not self._counts or samples < self._counts[-1][1]:
            self._counts = [(now, samples)]
            return
        begun, before = self._counts[0]
        if now > begun:
            self._speed = (samples - before) / (now - begun)
        if now - self._counts[-1][0] >= WINDOW_S:
            self._counts = [self._counts[-1], (now, samples)]


def _taken(numbers: Dict[str, float], names: Sequence[str]) -> Optional[float]:
    """Remove the first of these names that is present, and return its number."""
    return next((numbers.pop(name) for name in names if name in numbers), None)


LINE_LIMIT = 1 << 16
NEWEST_S = 0.25


class Report:
    """A reader of the records that a process writes to PADDLE_REPORT_FD.

    Args:
        ready: called with the fields of `ready`.
        newest: called with a kind, such as `progress` or `pushes`, and its newest fields, at most 4 times a second per
            kind.
        detector: detector that is notified of heartbeats and steps.
        report: called once, with a message, if the process writes an invalid line.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        ready: Callable[[Fields], None],
        newest: Callable[[str, Fields], None],
        detector: StallDetector,
        report: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._ready = ready
        self._tell_newest = newest
        self._detector = detector
        self._warn: Optional[Callable[[str], None]] = report
        self._buffer = b""
        self._newest: Dict[str, Any] = {}
        self._points: Dict[str, Tuple[str, float, float]] = {}
        self._script = ScriptProgress(self._junk)
        self._progress = Progress(0)
        self._counts: Dict[int, Tuple[int, int, int]] = {}
        self._timer: Optional[Timer] = None
        self._open = True
        os.set_blocking(fd, False)
        loop.on_readable(fd, self._read)

    def numbers(self, values: Mapping[str, float]) -> None:
        """Accept numbers that the script names, in a report or in its log."""
        progress, points = self._script.take(values, time.monotonic())
        self._detector.step(time.monotonic())
        if progress is not None:
            self._wait_turn("progress", progress)
        if points is not None:
            self._take_points(points)

    def drain(self) -> None:
        """Read the available lines, and pass on all delayed ones."""
        for _ in range(16):
            if not self._open or not self._read():
                break
        self._pass_on()

    def close(self) -> None:
        """Stop reading the process's reports."""
        if self._open:
            self._open = False
            self._loop.on_readable(self._fd, None)
            os.close(self._fd)
            self._pass_on()

    def _read(self) -> int:
        try:
            data = os.read(self._fd, LINE_LIMIT)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            return 0
        lines = (self._buffer + data).split(b"\n")
        self._buffer = lines.pop()
        if len(self._buffer) > LINE_LIMIT:
            self._buffer = b""
            self._junk("a line of more than %d bytes" % LINE_LIMIT)
        for line in lines:
            self._take(line)
        return len(data)

    def _take(self, line: bytes) -> None:
        faults: List[str] = []
        try:
            kind, report = _read(line, faults)
        except ValueError as error:
            self._junk("%r: %s" % (line[:80], error))
            return
        for fault in faults:
            self._junk(fault)
        if isinstance(report, Ready):
            self._ready(fields_of(report))
            return
        if isinstance(report, Alive):
            self._detector.beat(time.monotonic())
            return
        if isinstance(report, Numbers):
            self.numbers(report.values)
            return
        if isinstance(report, Progress):
            self._detector.step(time.monotonic())
            if faults:  # an omitted number keeps its last value
                step, samples = report.step or self._progress.step, report.samples or self._progress.samples
                report = report._replace(step=step, samples=samples)
            self._progress = report
        elif isinstance(report, Points):
            self._take_points(report)
            return
        elif isinstance(report, Pushes):
            self._counts.update((count[0], count) for count in report.trainers)
            report = Pushes(tuple(self._counts[trainer] for trainer in sorted(self._counts)))
        self._wait_turn(kind, report)

    def _take_points(self, report: Points) -> None:
        self._points.update((point[0], point) for point in report.points)
        while len(self._points) > MAX_CURVES:
            del self._points[next(iter(self._points))]
        self._wait_turn("points", Points(tuple(self._points.values())))

    def _wait_turn(self, kind: str, report: Any) -> None:
        self._newest[kind] = report
        if self._timer is None:
            self._again()

    def _again(self) -> None:
        self._timer = None
        if self._newest:
            self._pass_on()
            self._timer = self._loop.after(NEWEST_S, self._again)

    def _pass_on(self) -> None:
        newest, self._newest = self._newest, {}
        self._points = {}
        for kind, report in newest.items():
            self._tell_newest(kind, fields_of(report))

    def _junk(self, what: str) -> None:
        if self._warn is not None:
            self._warn("ignored on the report pipe: %s" % what)
            self._warn = None


def _read(line: bytes, faults: List[str]) -> Tuple[str, Any]:
    """Return the kind and the record of a line; the length of texts is limited.

    Raises:
        ValueError: it is not a report.
    """
    event = checked_json.as_object(line)
    kind = event.get("event")
    if kind == "numbers":
        return str(kind), read(Numbers, event, "numbers", "the process")
    if kind == "progress":
        event["batch_id"] = event.get("step") or 0 if event.get("batch_id") is None else event["batch_id"]
        event["pass_id"] = 0 if event.get("pass_id") is None else event["pass_id"]
    report = read_report(kind, event, "the process", faults)
    if isinstance(report, Points):
        report = Points(tuple((point[0][:MAX_TITLE], *point[1:]) for point in report.points))
    elif isinstance(report, Unsaved):
        report = Unsaved(report.what[:MAX_TEXT])
    return str(kind), report
