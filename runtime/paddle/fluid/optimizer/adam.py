# SPDX-License-Identifier: Apache-2.0
"""Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator
from paddle.fluid.optimizer.betas import BetaOptimizer
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer


class AdamOptimizer(BetaOptimizer):
    """w −= αm/(√v + ε), with α = η √(1 − β₂^t)/(1 − β₁^t).

    With lazy_mode only the rows of a sparse gradient move, else all.
    """

    op_type: ClassVar[str] = "adam"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        regularization: Regularizer | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, regularization, name)
        self._lazy = bool(lazy_mode)

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (
            Accumulator("moment1", "Moment1", "Moment1Out"),
            Accumulator("moment2", "Moment2", "Moment2Out"),
            *self.powers(),
        )

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return {**self.decays, "lazy_mode": self._lazy}
