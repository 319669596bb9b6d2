# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON lines a process reports: `ready`, `progress`, `pushes`, `queue` and others; nothing unbounded.

A line counts if every field that it has is what it should be; any other is told once and ignored. So the launcher
gets no value that it cannot show or add up.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from paddle_node.agent.link.fields import text, whole, whole_numbers
from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.link.protocol import Fields
from paddle_node.agent.processes.stall_detector import StallDetector
from paddle_node.contract import checked_json

LINE_LIMIT = 1 << 16
NEWEST_S = 0.25
MAX_TRAINERS = 65535  # as `paddle pserver` takes
MAX_COUNT = 1 << 53  # what every reader of JSON can hold
MAX_ENDPOINTS = 4096
MAX_TEXT = 1000
MAX_TITLE = 100
MAX_CURVES = 100


class Report:
    """The agent's end of PADDLE_REPORT_FD.

    Args:
        ready: called with the fields of `ready`.
        newest: called with a kind, such as `progress` or `pushes`, and its newest fields, at most 4 times a
            second each.
        detector: learns of signs of life and steps.
        tell: called once, with a sentence, when the process writes something else.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        ready: Callable[[Fields], None],
        newest: Callable[[str, Fields], None],
        detector: StallDetector,
        tell: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._ready = ready
        self._tell_newest = newest
        self._detector = detector
        self._tell: Optional[Callable[[str], None]] = tell
        self._buffer = b""
        self._newest: Dict[str, Fields] = {}
        self._points: Dict[str, List[Any]] = {}
        self._counts: Dict[int, List[int]] = {}
        self._timer: Optional[Timer] = None
        self._open = True
        os.set_blocking(fd, False)
        loop.on_readable(fd, self._read)

    def drain(self) -> None:
        """Take what is there now and pass on what waits for its turn."""
        for _ in range(16):
            if not self._open or not self._read():
                break
        self._pass_on()

    def close(self) -> None:
        """Read no more."""
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
        try:
            kind, fields = _read(line)
        except ValueError as error:
            self._junk("%r: %s" % (line[:80], error))
            return
        if kind == "ready":
            self._ready(fields)
        elif kind == "alive":
            self._detector.beat(time.monotonic())
        elif kind == "points":
            self._points.update((point[0], point) for point in fields["points"])
            while len(self._points) > MAX_CURVES:
                del self._points[next(iter(self._points))]
            self._wait_turn(kind, {"points": list(self._points.values())})
        elif kind in ("unsaved", "queue"):
            self._wait_turn(kind, fields)
        elif kind == "progress":
            self._detector.step(time.monotonic())
            self._wait_turn(kind, fields)
        else:
            self._counts.update((count[0], count) for count in fields["trainers"])
            self._wait_turn(kind, {"trainers": [self._counts[trainer] for trainer in sorted(self._counts)]})

    def _wait_turn(self, kind: str, fields: Fields) -> None:
        self._newest[kind] = fields
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
        for kind, fields in newest.items():
            self._tell_newest(kind, fields)

    def _junk(self, what: str) -> None:
        if self._tell is not None:
            self._tell("ignored on the report pipe: %s" % what)
            self._tell = None


def _read(line: bytes) -> Tuple[str, Fields]:
    """Return the kind and the fields of a line.

    Raises:
        ValueError: it is not a report.
    """
    event = checked_json.as_object(line)
    kind = event.get("event")
    if kind == "ready":
        return kind, {name: _endpoints(event, name) for name in ("endpoints", "sparse_endpoints")}
    if kind == "progress":
        fields: Fields = {name: _count_or(event, name, 0) for name in ("pass_id", "step", "samples")}
        fields["batch_id"] = _count_or(event, "batch_id", fields["step"])
        fields.update((name, _real_or_none(event, name)) for name in ("cost", "samples_per_s"))
        return kind, fields
    if kind == "pushes":
        return kind, {"trainers": _counts_of_trainers(event.get("trainers"))}
    if kind == "points":
        return kind, {"points": [_point(item) for item in _list(event, "points")]}
    if kind == "queue":
        return kind, _queue(event)
    if kind == "unsaved":
        return kind, {"what": text(event, "what")[:MAX_TEXT]}
    if kind == "alive":
        return kind, {}
    raise ValueError("no report")


def _queue(event: Fields) -> Fields:
    """Who waits on a server for whom, and who lags behind; what is left out is 0 or empty."""
    fields: Fields = {name: _count_or(event, name, 0) for name in ("version", "requests", "waiting")}
    fields["waited_s"] = max(0.0, _real_or_none(event, "waited_s") or 0.0)
    fields["missing"] = whole_numbers({"missing": event.get("missing", [])}, "missing")
    fields["lags"] = [whole_numbers({"lags": lag}, "lags") for lag in _list(event, "lags")]
    trainers = fields["missing"] + [lag[0] for lag in fields["lags"] if len(lag) == 2]
    if (
        len(trainers) != len(fields["missing"]) + len(fields["lags"])
        or max(trainers, default=0) >= MAX_TRAINERS
    ):
        raise ValueError("expected trainers, and [trainer, pushes] of each that lags")
    return fields


def _point(value: Any) -> List[Any]:
    """[curve, step, value]."""
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[0], str):
        raise ValueError("expected [curve, step, value], got %.80r" % (value,))
    numbers = [_real_or_none({"points": number}, "points") for number in value[1:]]
    if None in numbers:
        raise ValueError("points must be numbers, got %.80r" % (value,))
    return [value[0][:MAX_TITLE], *numbers]


def _list(event: Fields, name: str) -> List[Any]:
    value = event.get(name, [])
    if not isinstance(value, list):
        raise ValueError("%s must be a list" % name)
    return value


def _endpoints(event: Fields, name: str) -> List[str]:
    value = event.get(name, [])
    if not isinstance(value, list) or len(value) > MAX_ENDPOINTS:
        raise ValueError("%s must be a list of at most %d texts" % (name, MAX_ENDPOINTS))
    if not all(isinstance(item, str) for item in value):
        raise ValueError("%s must be texts" % name)
    return value


def _count_or(event: Fields, name: str, otherwise: int) -> int:
    """A whole number that every reader of JSON can hold; `otherwise` where it is not there."""
    value = otherwise if event.get(name) is None else whole(event, name)
    if value > MAX_COUNT:
        raise ValueError("%s must be at most 2^53, got %.80r" % (name, value))
    return value


def _real_or_none(event: Fields, name: str) -> Optional[float]:
    """A finite number; None where it is null or not there: JSON has no NaN."""
    value = event.get(name)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:
        raise ValueError("%s must be a finite number or null, got %.80r" % (name, value))
    return float(value)


def _counts_of_trainers(value: Any) -> List[List[int]]:
    """Lists of a trainer, how many of its gradients came, and how many of those were discarded."""
    if not isinstance(value, list):
        raise ValueError("trainers must be a list")
    return [_count(item) for item in value]


def _count(value: Any) -> List[int]:
    count = whole_numbers({"trainers": value}, "trainers")
    if len(count) != 3 or count[0] >= MAX_TRAINERS or not count[2] <= count[1] <= MAX_COUNT:
        raise ValueError("expected [trainer, pushed, discarded], got %.80r" % (value,))
    return count
