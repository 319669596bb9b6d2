# SPDX-License-Identifier: Apache-2.0
"""Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.block import Block
from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.regularizer import Regularizer
from paddle.fluid.variable import Parameter, Variable


class AdamOptimizer(Optimizer):
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
        super().__init__(learning_rate, regularization, name)
        self._beta1, self._beta2 = float(beta1), float(beta2)
        self._epsilon, self._lazy = float(epsilon), bool(lazy_mode)

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (
            Accumulator("moment1", "Moment1", "Moment1Out"),
            Accumulator("moment2", "Moment2", "Moment2Out"),
            Accumulator("beta1_pow_acc", "Beta1Pow", "", self._beta1, single=True),
            Accumulator("beta2_pow_acc", "Beta2Pow", "", self._beta2, single=True),
        )

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return {
            "beta1": self._beta1,
            "beta2": self._beta2,
            "epsilon": self._epsilon,
            "lazy_mode": self._lazy,
        }

    def finish(self, block: Block, parameter: Parameter) -> None:
        """Multiply the powers of the betas."""
        for name, beta in (("beta1_pow_acc", self._beta1), ("beta2_pow_acc", self._beta2)):
            power = self.kept(name, parameter)
            block.append_op("scale", {"X": power}, {"Out": power}, {"scale": beta})
