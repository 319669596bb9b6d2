# SPDX-License-Identifier: Apache-2.0
"""Stochastic gradient descent (SGD): w −= ηg."""

from __future__ import annotations

from paddle.optim.rules.rule import Array, Rule, State, Step
from paddle.optim.rules.table import Fluid, rule


@rule(
    "sgd",
    fluid=Fluid(
        "SGD(learning_rate, regularization=None, name=None)",
        "w −= ηg.",
        "sgd: Param LearningRate Grad -> ParamOut",
        {},
        rows=True,
    ),
)
class SGD(Rule):
    """Plain stochastic gradient descent; it has no state."""

    handles_rows = True
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of gradient descent, which changes `w` and `state` in place."""
        w -= step.eta * g
