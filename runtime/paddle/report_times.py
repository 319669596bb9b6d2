# SPDX-License-Identifier: Apache-2.0
"""Schedules the reports during a wait: the first one soon, further ones at intervals that grow up to five minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FIRST_S = 1.5
_FACTOR = 2.0
_LONGEST_S = 300.0


class ReportTimes:
    """The times at which to report during one long wait."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock of a wait.

        Args:
            patience_s: maximum time of the wait, math.inf for no limit; a quarter of a short wait is not reported.
            clock: monotonic seconds.
        """
        self._clock, self._patience_s = clock, patience_s
        self._begun = clock()
        self._next_s = min(FIRST_S, patience_s / 4)

    @property
    def waited_s(self) -> float:
        """The time waited so far, in seconds."""
        return self._clock() - self._begun

    @property
    def left_s(self) -> float:
        """The seconds until the wait times out."""
        return max(self._patience_s - self.waited_s, 0.0)

    @property
    def due_in_s(self) -> float:
        """The seconds until the next report is due."""
        return max(self._next_s - self.waited_s, 0.0)

    def pass_moment(self) -> bool:
        """Return whether a report is due now; if so, schedule the next one."""
        if self.due_in_s:
            return False
        now_s = max(self._next_s, self.waited_s)
        self._next_s = min(_FACTOR * now_s, now_s + _LONGEST_S)
        return True

    def __str__(self) -> str:
        """Return the time waited and the time left, for messages."""
        rest = "" if self.left_s == math.inf else f", at most {self.left_s:.0f} s more"
        return f"waited {self.waited_s:.0f} s{rest}"
