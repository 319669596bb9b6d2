# SPDX-License-Identifier: Apache-2.0
"""WeightedAverage: a mean of numbers with weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.fluid.errors import FluidError


class WeightedAverage:
    """Adds numbers or arrays up."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all."""
        self._sum: Any = None
        self._weight = 0.0

    def add(self, value: Any, weight: float) -> None:
        """Add a value that counts `weight` times."""
        scaled = np.asanyarray(value) * weight
        self._sum = scaled if self._sum is None else self._sum + scaled
        self._weight += weight

    def eval(self) -> Any:
        """Return the mean.

        Raises:
            FluidError: nothing was added.
        """
        if self._sum is None or not self._weight:
            raise FluidError("WeightedAverage: there is no data; call add first")
        return self._sum / self._weight
