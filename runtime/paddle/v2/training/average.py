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
    """Means of parameters; ``value_of`` gives the array that has a value, by name, and ``show`` puts another there."""

    def __init__(
        self,
        rule: ModelAverage,
        names: Sequence[str],
        value_of: Callable[[str], Value],
        show: Callable[[str, Value], None],
    ) -> None:
        self._average = model_average.ModelAverage(rule.average_window, rule.max_average_window)
        self._names = tuple(names)
        self._value_of, self._show = value_of, show

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
        kept = {name: self._value_of(name) for name in self._names}
        try:
            for name, value in kept.items():
                mean = np.empty_like(value)
                self._average.mean(name, mean)
                self._show(name, mean)
            yield
        finally:
            for name, value in kept.items():
                self._show(name, value)
