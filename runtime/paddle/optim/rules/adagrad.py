# SPDX-License-Identifier: Apache-2.0
"""AdaGrad: s += g²;  r = 1/√(s + ε);  m = μm − η r (g + λw);  w += m.

Duchi, Hazan and Singer, 2011. The learning rate schedule is ignored: s already slows learning down.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, descend, hyper, with_momentum


class Adagrad(Rule):
    """Keeps the sum of squared gradients."""

    defaults: ClassVar[Hyper] = hyper(epsilon=1e-6)
    follows_schedule: ClassVar[bool] = False
    handles_rows: ClassVar[bool] = True

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return with_momentum("s", mu=mu)

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """See `Rule.update`."""
        s = state["s"]
        s += g * g
        r: Array = 1.0 / np.sqrt(s + self.epsilon)
        descend(w, g, r, state, step)
        return r


class FluidAdagrad(Rule):
    """Fluid's AdaGrad: s += g²;  w −= η g/(√s + ε).

    v2's has ε inside the root and ignores the schedule. s may start above 0.
    """

    defaults: ClassVar[Hyper] = hyper(epsilon=1e-6, initial_accumulator_value=0.0)
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
