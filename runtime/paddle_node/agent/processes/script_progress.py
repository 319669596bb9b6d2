# SPDX-License-Identifier: Apache-2.0
"""Converts numbers that a trainer's script reports, with `paddle_job.report` or in log lines, into facts.

`step`, `loss`, `samples` and `samples_per_s` become Progress; numbers with other names become curves.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from paddle_node.contract.facts import MAX_CURVES, MAX_TITLE, Points, Progress

WINDOW_S = 2.5  # a speed is averaged over one to two such windows
LOSSES = ("loss", "cost", "train_loss")
SPEEDS = ("samples_per_s", "train_samples_per_second")
_MOST = 1 << 53


class ScriptProgress:
    """The progress of one process.

    If a script reports no step, its step is the number of its reports. If the step decreases, a new epoch has begun,
    and counting continues from the previous value. A step or sample count that is negative or beyond 2**53 is omitted
    from its report.

    Args:
        tell: function that is called with a message about each number that is omitted.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._report = tell
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
        """Return the progress and the curves that the numbers contain; None for each that is missing.

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
