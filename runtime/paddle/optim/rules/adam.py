# SPDX-License-Identifier: Apache-2.0
"""Adam: m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  α = η √(1 − β₂^t)/(1 − β₁^t);  w −= α m/(√v + ε).

Kingma and Ba, 2014. L2 decay and the parameter's momentum do not enter. Rows are not supported: m and v of
untouched rows would have to move as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, average


@dataclass(frozen=True)
class Adam(Rule):
    """Keeps decayed averages of gradients and of their squares."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    keeps = ("m", "v")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        m, v = state["m"], state["v"]
        alpha = step.eta * math.sqrt(1.0 - self.beta2**step.t) / (1.0 - self.beta1**step.t)
        average(m, g, self.beta1)
        average(v, g * g, self.beta2)
        w -= alpha * m / (np.sqrt(v) + self.epsilon)


class FluidAdam(Adam):
    """Adam as Fluid uses it: the formula of `adam`, with L1 and L2 as terms of the gradient.

    On rows Fluid moves all of them in every batch, which sparse parameters here cannot; its lazy mode, which moves the
    touched rows alone, is `LazyAdam`. The correction by t counts all batches in either.
    """

    penalises_gradient = True


class LazyAdam(FluidAdam):
    """Leaves m and v of rows without a gradient as they are; the same as Adam on dense parameters."""

    handles_rows = True
