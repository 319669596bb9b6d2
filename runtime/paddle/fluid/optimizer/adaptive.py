# SPDX-License-Identifier: Apache-2.0
"""AdaGrad, AdaGrad that forgets, Adadelta, FTRL and RMSProp: rates that fall with the squares of past gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.variable import Variable
from paddle.fluid.regularizer import Regularizer

_Kept = tuple[Accumulator, ...]


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
        super().__init__(learning_rate, regularization, name, epsilon=float(epsilon))
        self._first = float(initial_accumulator_value)

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (Accumulator("moment", "Moment", fill=self._first),)


class DecayedAdagradOptimizer(Optimizer):
    """m = ρm + (1 − ρ)g²;  w −= ηg/(√m + ε)."""

    op_type: ClassVar[str] = "decayed_adagrad"
    keeps: ClassVar[_Kept] = (Accumulator("moment", "Moment"),)

    def __init__(
        self,
        learning_rate: float | Variable,
        decay: float = 0.95,
        epsilon: float = 1.0e-6,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, decay=float(decay), epsilon=float(epsilon))


class AdadeltaOptimizer(Optimizer):
    """Steps as large as past steps were. The learning rate is asked for and ignored, as in the original."""

    op_type: ClassVar[str] = "adadelta"
    has_rate: ClassVar[bool] = False
    keeps: ClassVar[_Kept] = (
        Accumulator("_avg_squared_grad", "AvgSquaredGrad"),
        Accumulator("_avg_squared_update", "AvgSquaredUpdate"),
    )

    def __init__(
        self,
        learning_rate: float | Variable,
        epsilon: float = 1.0e-6,
        rho: float = 0.95,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name, epsilon=float(epsilon), rho=float(rho))


class FtrlOptimizer(Optimizer):
    """Follow the regularised leader. l2 is l2 (the original passed l1 in its place)."""

    op_type: ClassVar[str] = "ftrl"
    keeps: ClassVar[_Kept] = (
        Accumulator("squared", "SquaredAccumulator", "SquaredAccumOut"),
        Accumulator("linear", "LinearAccumulator", "LinearAccumOut"),
    )

    def __init__(
        self,
        learning_rate: float | Variable,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        attributes = {"l1": float(l1), "l2": float(l2), "lr_power": float(lr_power)}
        super().__init__(learning_rate, regularization, name, **attributes)


class RMSPropOptimizer(Optimizer):
    """w −= d, d = μd + ηg/√(s + ε), s the decayed mean square; centred: less the square of the mean."""

    op_type: ClassVar[str] = "rmsprop"
    keeps: ClassVar[_Kept] = (
        Accumulator("momentum", "Moment"),
        Accumulator("mean_square", "MeanSquare"),
        Accumulator("mean_grad", "MeanGrad"),
    )

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
        attributes = {"decay": float(rho), "epsilon": float(epsilon), "momentum": float(momentum)}
        super().__init__(learning_rate, regularization, name, **attributes, centered=bool(centered))
