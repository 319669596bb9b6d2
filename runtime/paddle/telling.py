# SPDX-License-Identifier: Apache-2.0
"""When to tell somebody who waits: soon for the first time, and then at intervals that grow up to five minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FIRST_S = 1.5
_FACTOR = 2.0
_LONGEST_S = 300.0


class Telling:
    """The moments of one wait."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to wait.

        Args:
            patience_s: how long the wait may take, math.inf for ever; a quarter of a short one passes untold.
            clock: monotonic seconds.
        """
        self._clock, self._patience_s = clock, patience_s
        self._begun = clock()
        self._next_s = min(FIRST_S, patience_s / 4)

    @property
    def waited_s(self) -> float:
        """How long the wait took so far."""
        return self._clock() - self._begun

    @property
    def left_s(self) -> float:
        """How long it may still take."""
        return max(self._patience_s - self.waited_s, 0.0)

    @property
    def due_in_s(self) -> float:
        """How long it is until the next moment to tell."""
        return max(self._next_s - self.waited_s, 0.0)

    def pass_moment(self) -> bool:
        """Pass the next moment if it has come; return whether there is something to tell now."""
        if self.due_in_s:
            return False
        now_s = max(self._next_s, self.waited_s)
        self._next_s = min(_FACTOR * now_s, now_s + _LONGEST_S)
        return True

    def __str__(self) -> str:
        """Return how long it took and may still take, for messages."""
        rest = "" if self.left_s == math.inf else f", {self.left_s:.0f} s more at most"
        return f"waited {self.waited_s:.0f} s{rest}"
