# SPDX-License-Identifier: Apache-2.0
"""Model averaging: the mean of a model's values over a window of the last updates.

After each update, sum1 += w. A counts the updates since the window was last cut, U all updates. The window is cut when
A ≥ min_window and A ≥ min(max_window, rate · U): sum3 = sum1 + sum2, sum1 = sum2 = 0, A' = A, A = 0. The mean is (sum1
+ sum2 + sum3)/(A + A'). Every 16384 updates, sum1 is added to sum2 and cleared, so that float32 sums stay small enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from paddle.optim.rules.rule import Array

MIN_WINDOW = 10_000
_SPILL = 16_384


class ModelAverage:
    """Running sums of parameters, for their means over a window of updates. Not thread-safe."""

    def __init__(self, rate: float, max_window: int | None = None, min_window: int = MIN_WINDOW) -> None:
        """Start with an empty window.

        Args:
            max_window: the maximum length of the window in updates; None means the length of the last pass.
            min_window: the minimum length of the window, limited by max_window.
        """
        self._rate, self._follows_pass = rate, max_window is None
        self._max_window: float = max_window or math.inf
        self._min_window = min(min_window, self._max_window)
        self._sum1: dict[str, Array] = {}
        self._sum2: dict[str, Array] = {}
        self._sum3: dict[str, Array] = {}
        self._updates = self._updates_of_pass = 0
        self._count = self._count_before = 0

    @property
    def count(self) -> int:
        """The number of updates in the mean."""
        return self._count + self._count_before

    def add(self, values: Mapping[str, Array]) -> None:
        """Add the values of all parameters after an update; their names and shapes must be the same each time."""
        if not self._updates:
            for sums in (self._sum1, self._sum2, self._sum3):
                sums.update({name: np.zeros_like(value) for name, value in values.items()})
        self._updates += 1
        self._updates_of_pass += 1
        self._count += 1
        for name, value in values.items():
            self._sum1[name] += value
        if self._updates % _SPILL == 0:
            self._spill()
        if self._count >= self._min_window and self._count >= min(
            self._max_window, self._updates * self._rate
        ):
            self._spill()
            self._sum3, self._sum2 = self._sum2, self._sum3
            for rest in self._sum2.values():
                rest[...] = 0
            self._count_before, self._count = self._count, 0

    def finish_pass(self) -> None:
        """Record the number of updates in the pass, the default maximum of the window."""
        if self._follows_pass:
            self._max_window = self._updates_of_pass
        self._min_window = min(self._min_window, self._updates)
        self._updates_of_pass = 0

    def mean(self, name: str, out: Array) -> None:
        """Write the mean of one parameter to `out`; `count` must be above 0."""
        total = self._sum1[name] + self._sum2[name] + self._sum3[name]
        np.divide(total, np.float32(self.count), out=out)

    def _spill(self) -> None:
        for name, newest in self._sum1.items():
            self._sum2[name] += newest
            newest[...] = 0
