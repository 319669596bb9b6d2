# SPDX-License-Identifier: Apache-2.0
"""Adamax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.block import Block
from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.regularizer import Regularizer
from paddle.fluid.variable import Parameter, Variable


class AdamaxOptimizer(Optimizer):
    """w −= η/(1 − β₁^t) m/n, with n the decayed largest gradient."""

    op_type: ClassVar[str] = "adamax"

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name)
        self._beta1 = float(beta1)
        self._attrs = {"beta1": float(beta1), "beta2": float(beta2), "epsilon": float(epsilon)}

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (
            Accumulator("moment", "Moment", "MomentOut"),
            Accumulator("inf_norm", "InfNorm", "InfNormOut"),
            Accumulator("beta1_pow_acc", "Beta1Pow", "", self._beta1, single=True),
        )

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return self._attrs

    def finish(self, block: Block, parameter: Parameter) -> None:
        """Multiply the power of β₁."""
        power = self.kept("beta1_pow_acc", parameter)
        block.append_op("scale", {"X": power}, {"Out": power}, {"scale": self._beta1})
