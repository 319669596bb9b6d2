# SPDX-License-Identifier: Apache-2.0
"""Model averaging: the mean of the values over a window of updates, for saving.

The window is average_window times the updates so far, at least min(10000, max) and at most max updates; when it
gets too long, the newer sums become the old part. Without max, it is the number of batches of the last pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from paddle.v2.optimizer import ModelAverage

_MIN_WINDOW = 10000
_SPILL = 16384

Value = NDArray[np.float32]


class Averager:
    """Running sums of parameters; ``value_of`` gives the array that training updates in place, by name."""

    def __init__(self, rule: ModelAverage, names: Sequence[str], value_of: Callable[[str], Value]) -> None:
        self._rule = rule
        self._names = tuple(names)
        self._value_of = value_of
        self._recent: dict[str, Value] = {}
        self._spilled: dict[str, Value] = {}
        self._old: dict[str, Value] = {}
        self._updates = 0
        self._accumulated = 0
        self._old_accumulated = 0
        self._batches_of_pass = 0
        self._max_window: float = rule.max_average_window or math.inf
        self._min_window: float = min(_MIN_WINDOW, self._max_window)

    def add(self) -> None:
        """Take in the values after an update."""
        self._updates += 1
        self._accumulated += 1
        self._batches_of_pass += 1
        if self._updates == 1:
            for sums in (self._recent, self._spilled, self._old):
                sums.update({name: np.zeros_like(self._value_of(name)) for name in self._names})
        for name in self._names:
            self._recent[name] += self._value_of(name)
        if self._updates % _SPILL == 0:
            self._spill()
        window = min(self._max_window, self._updates * self._rule.average_window)
        if self._accumulated >= self._min_window and self._accumulated >= window:
            self._spill()
            for name, spilled in self._spilled.items():
                self._old[name][...] = spilled
                spilled[...] = 0
            self._old_accumulated, self._accumulated = self._accumulated, 0

    def finish_pass(self) -> None:
        """Note how long a pass is."""
        if self._rule.max_average_window is None:
            self._max_window = self._batches_of_pass
        self._min_window = min(self._min_window, self._updates)
        self._batches_of_pass = 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the means in place of the values for the length of a ``with`` block."""
        count = self._accumulated + self._old_accumulated
        if not count:
            yield
            return
        kept = {name: self._value_of(name).copy() for name in self._names}
        for name in self._names:
            total = self._recent[name] + self._spilled[name] + self._old[name]
            np.divide(total, np.float32(count), out=self._value_of(name))
        try:
            yield
        finally:
            for name in self._names:
                self._value_of(name)[...] = kept[name]

    def _spill(self) -> None:
        for name, recent in self._recent.items():
            self._spilled[name] += recent
            recent[...] = 0
