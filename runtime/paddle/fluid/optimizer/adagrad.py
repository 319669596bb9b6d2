# SPDX-License-Identifier: Apache-2.0
"""AdaGrad, and AdaGrad that forgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer


class AdagradOptimizer(Optimizer):
    """m += g²;  w −= ηg/(√m + ε)."""

    op_type: ClassVar[str] = "adagrad"

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1.0e-6,
        regularization: Regularizer | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, regularization, name)
        self._epsilon, self._first = float(epsilon), float(initial_accumulator_value)

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (Accumulator("moment", "Moment", "MomentOut", self._first),)

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return {"epsilon": self._epsilon}


class DecayedAdagradOptimizer(Optimizer):
    """m = ρm + (1 − ρ)g²;  w −= ηg/(√m + ε)."""

    op_type: ClassVar[str] = "decayed_adagrad"

    def __init__(
        self,
        learning_rate: float | Variable,
        decay: float = 0.95,
        epsilon: float = 1.0e-6,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name)
        self._attrs = {"decay": float(decay), "epsilon": float(epsilon)}

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (Accumulator("moment", "Moment", "MomentOut"),)

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return self._attrs
