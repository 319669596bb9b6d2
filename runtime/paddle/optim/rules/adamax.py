# SPDX-License-Identifier: Apache-2.0
"""Adamax: m = β₁m + (1 − β₁)g;  u = max(β₂u, |g|);  w −= η/(1 − β₁^t) · m/u.

Kingma and Ba, 2014, section 7.1. The learning rate schedule is ignored; L2 decay and the parameter's
momentum do not enter.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, hyper

_TINY = float(np.finfo(np.float32).tiny)


class Adamax(Rule):
    """Keeps a decayed average of gradients and a decayed maximum of their magnitudes."""

    defaults: ClassVar[Hyper] = hyper(beta1=0.9, beta2=0.999)
    follows_schedule: ClassVar[bool] = False
    handles_rows: ClassVar[bool] = False

    def __init__(self, beta1: float, beta2: float) -> None:
        self.beta1, self.beta2 = beta1, beta2

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("m", "u")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        m, u = state["m"], state["u"]
        m *= self.beta1
        m += (1.0 - self.beta1) * g
        np.maximum(self.beta2 * u, np.abs(g), out=u)
        # u is 0 only where every gradient was 0, and then so is m.
        w -= step.eta / (1.0 - self.beta1**step.t) * m / np.maximum(u, _TINY)


class FluidAdamax(Rule):
    """Fluid's Adamax: m = β₁m + (1 − β₁)g;  u = max(β₂u + ε, |g|);  w −= η/(1 − β₁^t) · m/u.

    Unlike v2's it follows the schedule, and ε keeps u above 0.
    """

    defaults: ClassVar[Hyper] = hyper(beta1=0.9, beta2=0.999, epsilon=1e-8)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, beta1: float, beta2: float, epsilon: float) -> None:
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("m", "u")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        m, u = state["m"], state["u"]
        m *= self.beta1
        m += (1.0 - self.beta1) * g
        np.maximum(self.beta2 * u + self.epsilon, np.abs(g), out=u)
        w -= step.eta / (1.0 - self.beta1**step.t) * m / u
