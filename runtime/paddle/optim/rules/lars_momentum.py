# SPDX-License-Identifier: Apache-2.0
"""LARS, layer-wise rates: η' = ηκ|w|/(|g| + λ|w|), or η if a norm is 0;  v = μv + η'(g + λw);  w −= v.

Source: You, Gitman and Ginsburg, 2017; κ is lars_coeff, λ lars_weight_decay. The norms are those of the whole
parameter, which is therefore on one server; the original used the norms of each server's part.
"""

from __future__ import annotations

from paddle.optim.rules.rule import Array, Rule, State, Step, l2_norm
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule(
    "lars_momentum",
    fluid=Fluid(
        "LarsMomentum(learning_rate, momentum, lars_coeff=0.001, lars_weight_decay=0.0005, regularization=None, "
        "name=None)",
        "Momentum with a learning rate per parameter, η c‖w‖/(‖g‖ + λ‖w‖).",
        "lars_momentum: Param Grad Velocity LearningRate -> ParamOut VelocityOut",
        {"mu": float, "lars_coeff": 0.001, "lars_weight_decay": 0.0005},
        (StateArray("v", "Velocity", "velocity"),),
        names={"mu": "momentum"},
        served="whole",
    ),
)
class LarsMomentum(Rule):
    """LARS (You et al., 2017) with momentum; its state is the velocity v."""

    momentum: float = 0.9
    lars_coeff: float = 1e-3
    lars_weight_decay: float = 5e-4

    keeps = ("v",)
    penalizes_gradient = True
    needs_whole = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of LARS, which changes `w` and `state` in place."""
        v = state["v"]
        size, slope = l2_norm(w), l2_norm(g)
        eta = step.eta
        if size > 0.0 and slope > 0.0:
            eta *= self.lars_coeff * size / (slope + self.lars_weight_decay * size)
        v *= self.momentum
        v += eta * (g + self.lars_weight_decay * w)
        w -= v
