# SPDX-License-Identifier: Apache-2.0
"""LAMB, layer-wise Adam: m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  r = m/(√v + ε) + λw;  w −= η |w|/|r| · r.

Source: You et al., 2019; Fluid's variant: m and v are not bias-corrected, and a parameter whose values are all 0
stays 0. λ is weight_decay. The norms are the whole parameter's: see `lars_momentum`.
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, average, l2_norm
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule(
    "lamb",
    # The powers of the betas are stored but not used.
    fluid=Fluid(
        "Lamb(learning_rate=0.001, lamb_weight_decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-6, "
        "regularization=None, exclude_from_weight_decay_fn=None, name=None)",
        "w −= η ‖w‖/‖r‖ r, with r = m/(√v + ε) + λw.",
        "lamb: Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow -> ParamOut Moment1Out Moment2Out",
        {"weight_decay": float, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6},
        (StateArray("m", "Moment1", "moment1"), StateArray("v", "Moment2", "moment2")),
        arguments={"weight_decay": "lamb_weight_decay"},
        powers=("beta1", "beta2"),
        served="whole",
    ),
)
class Lamb(Rule):
    """LAMB (You et al., 2019); its state is decayed averages of gradients and of their squares."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01

    keeps = ("m", "v")
    penalizes_gradient = True
    needs_whole = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of LAMB, which changes `w` and `state` in place."""
        m, v = state["m"], state["v"]
        average(m, g, self.beta1)
        average(v, g * g, self.beta2)
        r = m / (np.sqrt(v) + self.epsilon) + self.weight_decay * w
        length = l2_norm(r)
        if length > 0.0:
            w -= step.eta * l2_norm(w) / length * r
