# SPDX-License-Identifier: Apache-2.0
"""FTRL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddle.fluid.optimizer.base import Accumulator, Optimizer
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer


class FtrlOptimizer(Optimizer):
    """Follow the regularised leader. l2 is l2 (the original passed l1 in its place)."""

    op_type: ClassVar[str] = "ftrl"

    def __init__(
        self,
        learning_rate: float | Variable,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, regularization, name)
        self._attrs = {"l1": float(l1), "l2": float(l2), "lr_power": float(lr_power)}

    def accumulators(self) -> Sequence[Accumulator]:
        """See `Optimizer`."""
        return (
            Accumulator("squared", "SquaredAccumulator", "SquaredAccumOut"),
            Accumulator("linear", "LinearAccumulator", "LinearAccumOut"),
        )

    def attributes(self, parameter: Parameter) -> Mapping[str, object]:
        """See `Optimizer`."""
        return self._attrs
