# SPDX-License-Identifier: Apache-2.0
"""How long each phase of a job took, on the monotonic clock, from the moment the command was given."""

from __future__ import annotations

import os
import time
from pathlib import Path


def process_age_s() -> float:
    """Seconds since this process was started, so that imports count too; 0 where /proc does not tell."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        ticks = int(stat.rpartition(")")[2].split()[19])  # field 22, starttime; proc(5)
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


class PhaseClock:
    """Names the phase a job is in and keeps what the finished ones took."""

    def __init__(self) -> None:
        age_s = process_age_s()
        self._started = time.monotonic() - age_s
        self._since = self._started
        self._current = ""
        self._first_step: float | None = None
        self._times: dict[str, float] = {
            "start": age_s
        }  # the interpreter, its imports, a set-up that became it

    @property
    def current(self) -> str:
        """The phase that runs now, or empty before the first."""
        return self._current

    def enter(self, phase: str) -> None:
        """End the current phase and begin the next."""
        now = time.monotonic()
        if self._current:
            self._times[self._current] = self._times.get(self._current, 0.0) + now - self._since
        self._current, self._since = phase, now

    def note_first_step(self) -> None:
        """A trainer has done its first step: the time since the command started, noted once."""
        if self._first_step is None:
            self._first_step = time.monotonic() - self._started

    def times(self) -> dict[str, float]:
        """Seconds by phase, then the time to the first step and the whole."""
        self.enter("")
        times = dict(self._times)
        if self._first_step is not None:
            times["to first step"] = self._first_step
        times["total"] = time.monotonic() - self._started
        return times
