# SPDX-License-Identifier: Apache-2.0
"""Fluid's AdaGrad: s += g²;  w −= η g/(√s + ε).

v2's has ε inside the root and ignores the schedule. s may start above 0.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step


class FluidAdagrad(Rule):
    """Keeps the sum of squared gradients, without what it starts from."""

    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = True
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, epsilon: float, initial_accumulator_value: float) -> None:
        self.epsilon, self.start = epsilon, initial_accumulator_value

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("s",)

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        s = state["s"]
        s += g * g
        w -= step.eta * g / (np.sqrt(s + self.start) + self.epsilon)
