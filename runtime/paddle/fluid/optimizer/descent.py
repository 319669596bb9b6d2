# SPDX-License-Identifier: Apache-2.0
"""Gradient descent, plain, with momentum, and LARS."""

from __future__ import annotations

from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.variable import Variable
from paddle.fluid.regularizer import Regularizer

_Kept = tuple[Accumulator, ...]


class SGDOptimizer(Optimizer):
    """w −= ηg."""

    op_type: ClassVar[str] = "sgd"

    def __init__(
        self,
        learning_rate: float | Variable,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name)


class MomentumOptimizer(Optimizer):
    """v = μv + g;  w −= ηv, or w −= η(g + μv) with use_nesterov."""

    op_type: ClassVar[str] = "momentum"
    keeps: ClassVar[_Kept] = (Accumulator("velocity", "Velocity"),)

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        use_nesterov: bool = False,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        nesterov = bool(use_nesterov)
        super().__init__(learning_rate, regularization, name, mu=float(momentum), use_nesterov=nesterov)


class LarsMomentumOptimizer(Optimizer):
    """Momentum at a rate of each parameter's own, η c‖w‖/(‖g‖ + λ‖w‖)."""

    op_type: ClassVar[str] = "lars_momentum"
    keeps: ClassVar[_Kept] = (Accumulator("velocity", "Velocity"),)

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        lars = {"lars_coeff": float(lars_coeff), "lars_weight_decay": float(lars_weight_decay)}
        super().__init__(learning_rate, regularization, name, mu=float(momentum), **lars)
