# SPDX-License-Identifier: Apache-2.0
"""BetaOptimizer: what the rules share that divide by 1 − β^t: the powers are kept, and multiplied after each update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer


class BetaOptimizer(Optimizer):
    """Base of Adam's family.

    Attributes:
        decays: the attributes beta1, beta2 and epsilon.
    """

    powered: ClassVar[tuple[str, ...]] = ("beta1", "beta2")

    def __init__(
        self,
        learning_rate: float | Variable,
        beta1: float,
        beta2: float,
        epsilon: float,
        regularization: Regularizer | None,
        name: str | None,
    ) -> None:
        super().__init__(learning_rate, regularization, name)
        self.decays = {"beta1": float(beta1), "beta2": float(beta2), "epsilon": float(epsilon)}

    def powers(self) -> Sequence[Accumulator]:
        """Return what keeps the powers of the betas."""
        return [
            Accumulator(f"{beta}_pow_acc", f"{beta.capitalize()}Pow", "", self.decays[beta], single=True)
            for beta in self.powered
        ]

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return self.decays

    def finish(self, block: Block, parameter: Parameter) -> None:
        """Multiply the powers of the betas."""
        for beta in self.powered:
            power = self.kept(f"{beta}_pow_acc", parameter)
            block.append_op("scale", {"X": power}, {"Out": power}, {"scale": self.decays[beta]})
