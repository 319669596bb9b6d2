# SPDX-License-Identifier: Apache-2.0
"""Waits for descriptors: asleep, or, where news used to come within moments, by looking again for moments first.

Looking costs a core that nobody else wants: it begins only after several short waits in a row, goes on no longer
than a wake-up is worth, gives the core away between two looks, and ends as soon as somebody else took it. Whoever
looks in vain to the end again and again all but stops looking.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Protocol

SPIN_S = 200e-6
"""How long to look. To wake the other side and be woken by it takes about half of that."""

_FEWEST, _MOST = 8, 64  # short waits in a row that it takes to look again after looking in vain
_TAKEN_S = 20e-6  # two looks lie a few us apart, unless the core was somebody else's between them


class Poll(Protocol):
    """What `select.poll` returns."""

    def poll(self, timeout_ms: int, /) -> list[tuple[int, int]]:
        """Return (descriptor, what happened) of those that something happened to."""


class AdaptiveWait:
    """What one thread learnt about its waits. Not thread-safe."""

    def __init__(self, spin_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin as one who sleeps.

        Args:
            spin_s: how long to look before going to sleep; 0: never; None: `SPIN_S` where there is more than one core.
            clock: monotonic seconds.
        """
        if spin_s is None:
            spin_s = SPIN_S if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._spin_s, self._clock = spin_s, clock
        self._short_waits = 0  # in a row
        self._needed = _FEWEST

    def wait(self, poll: Poll, timeout_s: float) -> list[tuple[int, int]]:
        """Return the news of a poll object, at most `timeout_s` later; none if there were none."""
        if not self._spin_s or timeout_s <= 0:
            return poll.poll(math.ceil(timeout_s * 1000))
        begun = self._clock()
        if self._short_waits >= self._needed:
            if news := self._look(poll, begun, min(timeout_s, self._spin_s)):
                self._needed = _FEWEST
                return news
            self._short_waits = 0
        news = poll.poll(math.ceil(timeout_s * 1000))
        is_short = bool(news) and self._clock() - begun <= self._spin_s
        self._short_waits = self._short_waits + 1 if is_short else 0
        return news

    def _look(self, poll: Poll, begun: float, spin_s: float) -> list[tuple[int, int]]:
        now = begun
        while now - begun < spin_s:
            if news := poll.poll(0):
                return news
            os.sched_yield()
            before, now = now, self._clock()
            if now - before > _TAKEN_S:
                return poll.poll(0)
        self._needed = min(2 * self._needed, _MOST)
        return []
