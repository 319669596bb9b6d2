# SPDX-License-Identifier: Apache-2.0
"""Adamax: m = β₁m + (1 − β₁)g;  u = max(β₂u, |g|);  w −= η/(1 − β₁^t) · m/u.

Source: Kingma and Ba, 2014, section 7.1. The learning rate schedule is ignored; L2 decay and the parameter's momentum
are not used.
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, average
from paddle.optim.rules.table import Fluid, StateArray, rule

_TINY = float(np.finfo(np.float32).tiny)


@rule("adamax", v2="Adamax(beta1=0.9, beta2=0.999)")
class Adamax(Rule):
    """Adamax (Kingma and Ba, 2014); its state is decayed averages of gradients, and maxima of their magnitudes."""

    beta1: float = 0.9
    beta2: float = 0.999

    keeps = ("m", "u")
    follows_schedule = False

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Adamax, which changes `w` and `state` in place."""
        m, u = state["m"], state["u"]
        average(m, g, self.beta1)
        np.maximum(self.beta2 * u, np.abs(g), out=u)
        # u is 0 only where every gradient was 0, and then so is m.
        w -= step.eta / (1.0 - self.beta1**step.t) * m / np.maximum(u, _TINY)


@rule(
    "fluid_adamax",
    fluid=Fluid(
        "Adamax(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, regularization=None, name=None)",
        "w −= η/(1 − β₁^t) m/n, with n the decayed maximum of |g|.",
        "adamax: Param Grad LearningRate Moment InfNorm Beta1Pow -> ParamOut MomentOut InfNormOut",
        {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
        (StateArray("m", "Moment", "moment"), StateArray("u", "InfNorm", "inf_norm")),
        powers=("beta1",),
        rate=lambda number: number("LearningRate") / (1.0 - number("Beta1Pow")),
    ),
)
class FluidAdamax(Rule):
    """Fluid's Adamax: m = β₁m + (1 − β₁)g;  u = max(β₂u + ε, |g|);  w −= η/(1 − β₁^t) · m/u.

    Unlike v2's rule, this one follows the schedule, and ε keeps u above 0.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    keeps = ("m", "u")
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Fluid's Adamax, which changes `w` and `state` in place."""
        m, u = state["m"], state["u"]
        average(m, g, self.beta1)
        np.maximum(self.beta2 * u + self.epsilon, np.abs(g), out=u)
        w -= step.eta / (1.0 - self.beta1**step.t) * m / u
