# SPDX-License-Identifier: Apache-2.0
"""AdaDelta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer


class AdadeltaOptimizer(Optimizer):
    """Steps as large as past steps were. The learning rate is asked for and ignored, as in the original."""

    op_type: ClassVar[str] = "adadelta"
    has_rate: ClassVar[bool] = False

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1.0e-6,
        rho: float = 0.95,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name)
        self._attrs = {"epsilon": float(epsilon), "rho": float(rho)}

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (
            Accumulator("_avg_squared_grad", "AvgSquaredGrad", "AvgSquaredGradOut"),
            Accumulator("_avg_squared_update", "AvgSquaredUpdate", "AvgSquaredUpdateOut"),
        )

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return self._attrs
