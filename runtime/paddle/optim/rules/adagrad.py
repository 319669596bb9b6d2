# SPDX-License-Identifier: Apache-2.0
"""AdaGrad: s += g²;  r = 1/√(s + ε);  m = μm − η r (g + λw);  w += m.

Duchi, Hazan and Singer, 2011. The learning rate schedule is ignored: s already slows learning down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, descend


@dataclass(frozen=True)
class Adagrad(Rule):
    """Keeps the sum of squared gradients."""

    epsilon: float = 1e-6

    keeps = ("s",)
    has_momentum = True
    follows_schedule = False
    handles_rows = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """See `Rule.update`."""
        s = state["s"]
        s += g * g
        r: Array = 1.0 / np.sqrt(s + self.epsilon)
        descend(w, g, r, state, step)
        return r


@dataclass(frozen=True)
class FluidAdagrad(Rule):
    """Fluid's AdaGrad: s += g²;  w −= η g/(√s + ε).

    v2's has ε inside the root and ignores the schedule. s may start above 0.
    """

    epsilon: float = 1e-6
    initial_accumulator_value: float = 0.0

    keeps = ("s",)
    handles_rows = True
    penalises_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        s = state["s"]
        s += g * g
        w -= step.eta * g / (np.sqrt(s + self.initial_accumulator_value) + self.epsilon)
