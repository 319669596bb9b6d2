# SPDX-License-Identifier: Apache-2.0
"""Proximal steps: gradient descent, followed by shrinkage with L1 and L2 penalties (Duchi and Singer, 2009).

    p = w − ηg;  w = sign(p) max(|p| − η λ₁, 0)/(1 + η λ₂)

With AdaGrad's rate, p = w − ηg/√m after m += g².
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule(
    "proximal_gd",
    fluid=Fluid(
        "ProximalGD(learning_rate, l1=0.0, l2=0.0, regularization=None, name=None)",
        "p = w − ηg;  w = sign(p) max(|p| − η l1, 0)/(1 + η l2).",
        "proximal_gd: Param Grad LearningRate -> ParamOut",
        {"l1": 0.0, "l2": 0.0},
    ),
)
class ProximalGD(Rule):
    """Proximal gradient descent; it has no state."""

    l1: float = 0.0
    l2: float = 0.0

    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of proximal gradient descent, which changes `w` and `state` in place."""
        w -= step.eta * g
        _shrink(w, step.eta, self.l1, self.l2)


@rule(
    "proximal_adagrad",
    fluid=Fluid(
        "ProximalAdagrad(learning_rate, l1=0.0, l2=0.0, regularization=None, name=None)",
        "m += g²;  p = w − ηg/√m;  w = sign(p) max(|p| − η l1, 0)/(1 + η l2).",
        "proximal_adagrad: Param Moment Grad LearningRate -> ParamOut MomentOut",
        {"l1": 0.0, "l2": 0.0},
        (StateArray("m", "Moment", "moment"),),
    ),
)
class ProximalAdagrad(Rule):
    """Proximal AdaGrad; its state is the sum of squared gradients, and where that is 0, the gradient has no effect."""

    l1: float = 0.0
    l2: float = 0.0

    keeps = ("m",)
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of proximal AdaGrad, which changes `w` and `state` in place."""
        m = state["m"]
        m += g * g
        w -= step.eta * g / np.sqrt(np.where(m > 0, m, 1))
        _shrink(w, step.eta, self.l1, self.l2)


def _shrink(w: Array, eta: float, l1: float, l2: float) -> None:
    """Set w = sign(w) max(|w| − η λ₁, 0)/(1 + η λ₂), in place."""
    if l1:
        w -= w.clip(-eta * l1, eta * l1)
    w /= 1 + eta * l2
