# SPDX-License-Identifier: Apache-2.0
"""AdaGrad with decay: G = ρG + (1 − ρ)g²;  r = 1/√(G + ε);  m = μm − η r (g + λw);  w += m.

The first gradient enters G with weight 1. A row untouched for k batches has its G decayed by ρ^k in one step.
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, average, decayed_average, descend
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule("decayed_adagrad", v2="DecayedAdaGrad(rho=0.95, epsilon=1e-6)")
class DecayedAdagrad(Rule):
    """AdaGrad with decay; its state is a decayed average of squared gradients."""

    rho: float = 0.95
    epsilon: float = 1e-6

    keeps = ("G",)
    has_momentum = True
    handles_rows = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """Take one step of AdaGrad with decay in place; return r, the factor on each element's rate."""
        G = state["G"]
        decayed_average(G, g * g, self.rho, step)
        r: Array = 1.0 / np.sqrt(G + self.epsilon)
        descend(w, g, r, state, step)
        return r


@rule(
    "fluid_decayed_adagrad",
    fluid=Fluid(
        "DecayedAdagrad(learning_rate, decay=0.95, epsilon=1.0e-6, regularization=None, name=None)",
        "m = ρm + (1 − ρ)g²;  w −= ηg/(√m + ε).",
        "decayed_adagrad: Param Grad Moment LearningRate -> ParamOut MomentOut",
        {"decay": 0.95, "epsilon": 1e-6},
        (StateArray("G", "Moment", "moment"),),
    ),
)
class FluidDecayedAdagrad(Rule):
    """Fluid's AdaGrad with decay: G = ρG + (1 − ρ)g²;  w −= η g/(√G + ε); ρ is its `decay`.

    v2's rule gives the first g² the weight 1 and has ε inside the root.
    """

    decay: float = 0.95
    epsilon: float = 1e-6

    keeps = ("G",)
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Fluid's AdaGrad with decay, which changes `w` and `state` in place."""
        G = state["G"]
        average(G, g * g, self.decay)
        w -= step.eta * g / (np.sqrt(G) + self.epsilon)
