# SPDX-License-Identifier: Apache-2.0
"""FTRL, follow the regularized leader: n' = n + g²;  z += g − (n'^p − n^p)/η · w;  n = n'.

W = (λ₁ sign(z) − z)/(n^p/η + 2λ₂) where |z| > λ₁, else 0.

Source: McMahan et al., 2013. p is −lr_power, by default 0.5. λ₁ and λ₂ are the rule's own l1 and l2, not the
parameter's. w follows from z and n alone: an element whose |z| never exceeds λ₁ is exactly 0, starting with the first
batch.
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule(
    "ftrl",
    fluid=Fluid(
        "Ftrl(learning_rate, l1=0.0, l2=0.0, lr_power=-0.5, regularization=None, name=None)",
        "Follow the regularized leader (FTRL). The rule uses l2; the original used l1 in its place.",
        "ftrl: Param SquaredAccumulator LinearAccumulator Grad LearningRate "
        "-> ParamOut SquaredAccumOut LinearAccumOut",
        {"l1": 0.0, "l2": 0.0, "lr_power": -0.5},
        (StateArray("n", "SquaredAccumulator", "squared"), StateArray("z", "LinearAccumulator", "linear")),
    ),
)
class Ftrl(Rule):
    """FTRL (McMahan et al., 2013); its state is Σ g² (n), and the sum of gradients minus the change of w (z)."""

    l1: float = 0.0
    l2: float = 0.0
    lr_power: float = -0.5

    keeps = ("n", "z")
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of FTRL, which changes `w` and `state` in place."""
        if not step.eta:  # the formula divides by it; in the limit, the value does not change
            return
        n, z = state["n"], state["z"]
        power = -self.lr_power
        before = np.power(n, power)
        n += g * g
        after = np.power(n, power)
        z += g - (after - before) / step.eta * w
        scale = after / step.eta + 2.0 * self.l2
        # The square of a tiny gradient may be 0 where the gradient is not.
        moved = (np.abs(z) > self.l1) & (scale > 0.0)
        leader = (self.l1 * np.sign(z) - z) / np.where(moved, scale, np.float32(1.0))
        w[...] = np.where(moved, leader, np.float32(0.0))
