# SPDX-License-Identifier: Apache-2.0
"""RMSProp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer


class RMSPropOptimizer(Optimizer):
    """w −= d, d = μd + ηg/√(s + ε), s the decayed mean square; centred: less the square of the mean."""

    op_type: ClassVar[str] = "rmsprop"

    def __init__(
        self,
        learning_rate: float | Variable,
        rho: float = 0.95,
        epsilon: float = 1.0e-6,
        momentum: float = 0.0,
        centered: bool = False,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name)
        self._attrs = {
            "decay": float(rho),
            "epsilon": float(epsilon),
            "momentum": float(momentum),
            "centered": bool(centered),
        }

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (
            Accumulator("momentum", "Moment", "MomentOut"),
            Accumulator("mean_square", "MeanSquare", "MeanSquareOut"),
            Accumulator("mean_grad", "MeanGrad", "MeanGradOut"),
        )

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return self._attrs
