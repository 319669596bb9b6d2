# SPDX-License-Identifier: Apache-2.0
"""Gradient descent with momentum: m = μm − ηg − ηλw;  w += m."""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, descend
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule("momentum", "sparse_momentum")  # for rows, the second rule is separate: see `optim.sparse`
class Momentum(Rule):
    """Gradient descent with momentum, or plain gradient descent if μ = 0; its state is the last step."""

    has_momentum = True
    handles_rows = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of momentum, which changes `w` and `state` in place."""
        descend(w, g, None, state, step)


@rule(
    "fluid_momentum",
    fluid=Fluid(
        "Momentum(learning_rate, momentum, use_nesterov=False, regularization=None, name=None)",
        "v = μv + g;  w −= ηv, or w −= η(g + μv) with use_nesterov.",
        "momentum: Param Grad Velocity LearningRate -> ParamOut VelocityOut",
        {"mu": float, "use_nesterov": False},
        (StateArray("v", "Velocity", "velocity"),),
        names={"mu": "momentum", "use_nesterov": "nesterov"},
        compiled=lambda rule: (np.float32(rule.momentum), rule.nesterov),
    ),
)
class FluidMomentum(Rule):
    """Fluid's momentum: v = μv + g; w −= ηv, or w −= η(g + μv) with Nesterov momentum.

    v2's rule accumulates ηg instead of g, so the two differ when the rate changes. Rows are not supported, because v
    also changes without a gradient.
    """

    momentum: float = 0.9
    nesterov: float = 0.0

    keeps = ("v",)
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Fluid's momentum, which changes `w` and `state` in place."""
        v = state["v"]
        v *= self.momentum
        v += g
        w -= step.eta * (g + self.momentum * v if self.nesterov else v)
