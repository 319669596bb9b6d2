# SPDX-License-Identifier: Apache-2.0
"""Layer-wise Adam: m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  r = m/(√v + ε) + λw;  w −= η |w|/|r| · r.

You and others, 2019, as Fluid has it: m and v are not corrected for their start, and a parameter that is 0 stays 0.
λ is weight_decay. The norms are the whole parameter's: see `lars_momentum`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, hyper, l2_norm


class Lamb(Rule):
    """Keeps decayed averages of gradients and of their squares."""

    defaults: ClassVar[Hyper] = hyper(beta1=0.9, beta2=0.999, epsilon=1e-6, weight_decay=0.01)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True
    needs_whole: ClassVar[bool] = True

    def __init__(self, beta1: float, beta2: float, epsilon: float, weight_decay: float) -> None:
        self.beta1, self.beta2, self.epsilon, self.decay = beta1, beta2, epsilon, weight_decay

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("m", "v")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        m, v = state["m"], state["v"]
        m *= self.beta1
        m += (1.0 - self.beta1) * g
        v *= self.beta2
        v += (1.0 - self.beta2) * (g * g)
        r = m / (np.sqrt(v) + self.epsilon) + self.decay * w
        length = l2_norm(r)
        if length > 0.0:
            w -= step.eta * l2_norm(w) / length * r
