# SPDX-License-Identifier: Apache-2.0
"""Adam, Adamax and Lamb, and what they share: the powers of two betas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer

_MOMENTS = (Accumulator("moment1", "Moment1"), Accumulator("moment2", "Moment2"))


class BetaOptimizer(Optimizer):
    """Base of Adam's family.

    Attributes:
        powered: the betas whose powers are kept.
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
        **attributes: object,
    ) -> None:
        self.decays = {"beta1": float(beta1), "beta2": float(beta2), "epsilon": float(epsilon)}
        super().__init__(learning_rate, regularization, name, **self.decays, **attributes)

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        powers = [
            Accumulator(f"{beta}_pow_acc", f"{beta.capitalize()}Pow", "", self.decays[beta], single=True)
            for beta in self.powered
        ]
        return (*self.keeps, *powers)

    def finish(self, block: Block, parameter: Parameter) -> None:
        """Multiply the powers of the betas."""
        for beta in self.powered:
            power = self.kept(f"{beta}_pow_acc", parameter)
            block.append_op("scale", {"X": power}, {"Out": power}, {"scale": self.decays[beta]})


class AdamOptimizer(BetaOptimizer):
    """w −= αm/(√v + ε), with α = η √(1 − β₂^t)/(1 − β₁^t).

    With lazy_mode only the rows of a sparse gradient move, else all.
    """

    op_type: ClassVar[str] = "adam"
    keeps: ClassVar[tuple[Accumulator, ...]] = _MOMENTS

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
        lazy = bool(lazy_mode)
        super().__init__(learning_rate, beta1, beta2, epsilon, regularization, name, lazy_mode=lazy)


class AdamaxOptimizer(BetaOptimizer):
    """w −= η/(1 − β₁^t) m/n, with n the decayed largest gradient."""

    op_type: ClassVar[str] = "adamax"
    powered: ClassVar[tuple[str, ...]] = ("beta1",)
    keeps: ClassVar[tuple[Accumulator, ...]] = (
        Accumulator("moment", "Moment"),
        Accumulator("inf_norm", "InfNorm"),
    )

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


class LambOptimizer(BetaOptimizer):
    """w −= η ‖w‖/‖r‖ r, with r = m/(√v + ε) + λw."""

    op_type: ClassVar[str] = "lamb"
    keeps: ClassVar[tuple[Accumulator, ...]] = _MOMENTS

    def __init__(
        self,
        learning_rate: float | Variable = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        regularization: Regularizer | None = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
    ) -> None:
        decay, self._exclude = float(lamb_weight_decay), exclude_from_weight_decay_fn
        super().__init__(learning_rate, beta1, beta2, epsilon, regularization, name, weight_decay=decay)

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        known = super().attributes(parameter)
        excluded = self._exclude is not None and self._exclude(parameter)
        return {**known, "weight_decay": 0.0} if excluded else known
