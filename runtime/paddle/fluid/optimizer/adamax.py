# SPDX-License-Identifier: Apache-2.0
"""Adamax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator
from paddle.fluid.optimizer.betas import BetaOptimizer
from paddle.fluid.program.variable import Variable
from paddle.fluid.regularizer import Regularizer


class AdamaxOptimizer(BetaOptimizer):
    """w −= η/(1 − β₁^t) m/n, with n the decayed largest gradient."""

    op_type: ClassVar[str] = "adamax"
    powered: ClassVar[tuple[str, ...]] = ("beta1",)

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, regularization, name)

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (
            Accumulator("moment", "Moment", "MomentOut"),
            Accumulator("inf_norm", "InfNorm", "InfNormOut"),
            *self.powers(),
        )
