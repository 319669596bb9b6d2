# SPDX-License-Identifier: Apache-2.0
"""Measures the duration of each phase of a job with the monotonic clock, from the start of the command."""

from __future__ import annotations

import time

from paddle_node.linux import proc


class PhaseClock:
    """The current phase of a job, and the durations of the finished phases."""

    def __init__(self) -> None:
        age_s = proc.age_s()
        self._started = time.monotonic() - age_s
        self._since = self._started
        self._current = ""
        self._first_step: float | None = None
        self._times: dict[str, float] = {
            "start": age_s
        }  # the interpreter, its imports, and a set-up that became this process

    @property
    def current(self) -> str:
        """Return the current phase, or an empty string before the first."""
        return self._current

    def enter(self, phase: str) -> None:
        """End the current phase and begin the next."""
        now = time.monotonic()
        if self._current:
            self._times[self._current] = self._times.get(self._current, 0.0) + now - self._since
        self._current, self._since = phase, now

    def note_first_step(self) -> None:
        """Record the time of any trainer's first step since the command started."""
        if self._first_step is None:
            self._first_step = time.monotonic() - self._started

    def times(self) -> dict[str, float]:
        """Return the seconds per phase, the time to the first step, and the total, by name."""
        self.enter("")
        times = dict(self._times)
        if self._first_step is not None:
            times["to first step"] = self._first_step
        times["total"] = time.monotonic() - self._started
        return times
