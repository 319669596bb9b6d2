# SPDX-License-Identifier: Apache-2.0
"""LAMB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from paddle.fluid.optimizer.adam import AdamOptimizer
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer


class LambOptimizer(AdamOptimizer):
    """w −= η ‖w‖/‖r‖ r, with r = m/(√v + ε) + λw."""

    op_type: ClassVar[str] = "lamb"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        regularization: Regularizer | None = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, regularization, name)
        self._decay, self._exclude = float(lamb_weight_decay), exclude_from_weight_decay_fn

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        excluded = self._exclude is not None and self._exclude(parameter)
        return {**self.decays, "weight_decay": 0.0 if excluded else self._decay}
