# SPDX-License-Identifier: Apache-2.0
"""Adam: m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  α = η √(1 − β₂^t)/(1 − β₁^t);  w −= α m/(√v + ε).

Kingma and Ba, 2014. L2 decay and the parameter's momentum do not enter. Rows are not supported: m and v of
untouched rows would have to move as well.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, hyper


class Adam(Rule):
    """Keeps decayed averages of gradients and of their squares."""

    defaults: ClassVar[Hyper] = hyper(beta1=0.9, beta2=0.999, epsilon=1e-8)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False

    def __init__(self, beta1: float, beta2: float, epsilon: float) -> None:
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("m", "v")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        m, v = state["m"], state["v"]
        alpha = step.eta * math.sqrt(1.0 - self.beta2**step.t) / (1.0 - self.beta1**step.t)
        m *= self.beta1
        m += (1.0 - self.beta1) * g
        v *= self.beta2
        v += (1.0 - self.beta2) * (g * g)
        w -= alpha * m / (np.sqrt(v) + self.epsilon)


class FluidAdam(Adam):
    """Adam as Fluid uses it: the formula of `adam`, with L1 and L2 as terms of the gradient.

    On rows Fluid moves all of them in every batch, which sparse parameters here cannot; its lazy mode, which moves the
    touched rows alone, is `LazyAdam`. The correction by t counts all batches in either.
    """

    penalises_gradient: ClassVar[bool] = True


class LazyAdam(FluidAdam):
    """Leaves m and v of rows without a gradient as they are; the same as Adam on dense parameters."""

    handles_rows: ClassVar[bool] = True
