# SPDX-License-Identifier: Apache-2.0
"""Puts averaged values in place of the newest ones, for saving."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from paddle.optim import model_average
from paddle.v2.optimizer import ModelAverage

Value = NDArray[np.float32]


class Averager:
    """Means of parameters; ``value_of`` gives the array that training updates in place, by name."""

    def __init__(self, rule: ModelAverage, names: Sequence[str], value_of: Callable[[str], Value]) -> None:
        self._average = model_average.ModelAverage(rule.average_window, rule.max_average_window)
        self._names = tuple(names)
        self._value_of = value_of

    def add(self) -> None:
        """Take in the values after an update."""
        self._average.add({name: self._value_of(name) for name in self._names})

    def finish_pass(self) -> None:
        """Note how long a pass is."""
        self._average.finish_pass()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the means in place of the values for the length of a ``with`` block."""
        if not self._average.count:
            yield
            return
        kept = {name: self._value_of(name).copy() for name in self._names}
        for name in self._names:
            self._average.mean(name, self._value_of(name))
        try:
            yield
        finally:
            for name in self._names:
                self._value_of(name)[...] = kept[name]
