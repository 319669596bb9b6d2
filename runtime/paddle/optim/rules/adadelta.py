# SPDX-License-Identifier: Apache-2.0
"""AdaDelta: E = ρE + (1 − ρ)g²;  r = √((D + ε)/(E + ε));  D = ρD + (1 − ρ)(g r)²;  w −= η r (g + λw).

Source: Zeiler, 2012. E averages squared gradients, D squared steps. With momentum: m = μm − η r (g + λw); w += m.
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, average, descend
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule("adadelta", v2="AdaDelta(rho=0.95, epsilon=1e-6)")
class Adadelta(Rule):
    """AdaDelta (Zeiler, 2012); its state is decayed averages of squared gradients and of squared steps."""

    rho: float = 0.95
    epsilon: float = 1e-6

    keeps = ("E", "D")
    has_momentum = True
    handles_rows = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array | None:
        """Take one step of AdaDelta in place; return r, the factor on each element's rate."""
        r = self._factor(g, state)
        descend(w, g, r, state, step)
        return r

    def _factor(self, g: Array, state: State) -> Array:
        E, D = state["E"], state["D"]
        average(E, g * g, self.rho)
        r: Array = np.sqrt((D + self.epsilon) / (E + self.epsilon))
        average(D, np.square(g * r), self.rho)
        return r


@rule(
    "fluid_adadelta",
    fluid=Fluid(
        "Adadelta(learning_rate, epsilon=1.0e-6, rho=0.95, regularization=None, name=None)",
        "Scales each step by the root mean square of past steps. The learning rate is ignored, as in the original.",
        "adadelta: Param Grad AvgSquaredGrad AvgSquaredUpdate -> ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
        {"rho": 0.95, "epsilon": 1e-6},
        (
            StateArray("E", "AvgSquaredGrad", "_avg_squared_grad"),
            StateArray("D", "AvgSquaredUpdate", "_avg_squared_update"),
        ),
        rate=lambda number: 1.0,
    ),
)
class FluidAdadelta(Adadelta):
    """Fluid's AdaDelta: w −= r g, with r as in v2. Unlike in v2, the learning rate is not used."""

    has_momentum = False
    handles_rows = False
    follows_schedule = False
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Fluid's AdaDelta, which changes `w` and `state` in place."""
        w -= self._factor(g, state) * g
