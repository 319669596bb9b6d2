# SPDX-License-Identifier: Apache-2.0
"""Exponential moving average of a model's values: a = δa + (1 − δ)w from a = 0, read as a/(1 − Πδ).

δ is `decay`, or with `ramps` the smaller of it and (1 + t)/(10 + t), t being the updates before: so a young model is
not held back by its first values. Dividing by 1 − Πδ makes up for the start at 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddle.errors import ConfigError
from paddle.optim.rules.rule import Array


class MovingAverage:
    """Averages of parameters. Not thread-safe."""

    def __init__(self, decay: float = 0.999, *, ramps: bool = False) -> None:
        """Begin.

        Raises:
            ConfigError: decay is not between 0 and 1.
        """
        if not 0.0 <= decay < 1.0:
            raise ConfigError(f"moving average: decay: expected 0 or more and less than 1, got {decay}")
        self._decay, self._ramps = decay, ramps
        self._averages: dict[str, Array] = {}
        self._updates = 0
        self._weight_of_start = 1.0

    def add(self, values: Mapping[str, Array]) -> None:
        """Take in all values after an update; the same names and shapes each time."""
        if not self._updates:
            self._averages = {name: np.zeros_like(value) for name, value in values.items()}
        decay = self._decay
        if self._ramps:
            decay = min(decay, (1 + self._updates) / (10 + self._updates))
        self._updates += 1
        self._weight_of_start *= decay
        for name, value in values.items():
            average = self._averages[name]
            average *= decay
            average += (1.0 - decay) * value

    def mean(self, name: str, out: Array) -> None:
        """Write the average of one parameter; something must have been added."""
        np.divide(self._averages[name], np.float32(1.0 - self._weight_of_start), out=out)
