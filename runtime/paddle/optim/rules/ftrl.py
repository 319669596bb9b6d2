# SPDX-License-Identifier: Apache-2.0
"""Follow the regularised leader: n' = n + g²;  z += g − (n'^p − n^p)/η · w;  n = n';
w = (λ₁ sign(z) − z)/(n^p/η + 2λ₂) where |z| > λ₁, else 0.

McMahan and others, 2013. p is −lr_power, a half unless told otherwise. λ₁ and λ₂ are the rule's own l1 and l2, not the
parameter's. w follows from z and n alone: what is nowhere above λ₁ is exactly 0, from the first batch on.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, hyper


class Ftrl(Rule):
    """Keeps the sum of squared gradients and the sum of gradients less what w has moved."""

    defaults: ClassVar[Hyper] = hyper(l1=0.0, l2=0.0, lr_power=-0.5)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, l1: float, l2: float, lr_power: float) -> None:
        self.l1, self.l2, self.power = l1, l2, -lr_power

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("n", "z")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        if not step.eta:  # the formula divides by it; its limit is to stand still
            return
        n, z = state["n"], state["z"]
        before = np.power(n, self.power)
        n += g * g
        after = np.power(n, self.power)
        z += g - (after - before) / step.eta * w
        scale = after / step.eta + 2.0 * self.l2
        # The square of a tiny gradient may be 0 where the gradient is not.
        moved = (np.abs(z) > self.l1) & (scale > 0.0)
        leader = (self.l1 * np.sign(z) - z) / np.where(moved, scale, np.float32(1.0))
        w[...] = np.where(moved, leader, np.float32(0.0))
