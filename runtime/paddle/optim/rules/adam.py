# SPDX-License-Identifier: Apache-2.0
"""Adam: m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  α = η √(1 − β₂^t)/(1 − β₁^t);  w −= α m/(√v + ε).

Source: Kingma and Ba, 2014. L2 decay and the parameter's momentum are not used. Rows are not supported: m and v of
untouched rows would have to change as well.
"""

from __future__ import annotations

import math

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, average
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule("adam", v2="Adam(beta1=0.9, beta2=0.999, epsilon=1e-8)")
class Adam(Rule):
    """Adam (Kingma and Ba, 2014); its state is decayed averages of gradients and of their squares."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    keeps = ("m", "v")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Adam, which changes `w` and `state` in place."""
        m, v = state["m"], state["v"]
        alpha = step.eta * math.sqrt(1.0 - self.beta2**step.t) / (1.0 - self.beta1**step.t)
        average(m, g, self.beta1)
        average(v, g * g, self.beta2)
        w -= alpha * m / (np.sqrt(v) + self.epsilon)


@rule(
    "fluid_adam",
    fluid=Fluid(
        "Adam(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, regularization=None, name=None, "
        "lazy_mode=False)",
        "w −= αm/(√v + ε), with α = η √(1 − β₂^t)/(1 − β₁^t). With lazy_mode, only the rows "
        "of a sparse gradient change.",
        "adam: Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow -> ParamOut Moment1Out Moment2Out",
        {
            "beta1": 0.9,
            "beta2": 0.999,
            "epsilon": 1e-8,
            "lazy_mode": False,
            "min_row_size_to_use_multithread": 1000,
        },
        (StateArray("m", "Moment1", "moment1"), StateArray("v", "Moment2", "moment2")),
        names={"lazy_mode": "", "min_row_size_to_use_multithread": ""},
        powers=("beta1", "beta2"),
        rate=lambda n: n("LearningRate") * np.sqrt(1.0 - n("Beta2Pow")) / (1.0 - n("Beta1Pow")),
        rows="lazy_mode",
        compiled=lambda rule: (
            (np.float32(rule.beta1), np.float32(rule.beta2)),
            (np.float32(1.0 - rule.beta1), np.float32(1.0 - rule.beta2)),
            np.float32(rule.epsilon),
        ),
    ),
)
class FluidAdam(Adam):
    """Fluid's Adam: the formula of `adam`, with L1 and L2 decay as terms of the gradient.

    Fluid updates all rows in every batch, which this package's sparse parameters cannot do; its lazy mode, which
    updates only the touched rows, is `LazyAdam`. In both, the correction by t counts all batches.
    """

    penalizes_gradient = True


@rule("lazy_adam")
class LazyAdam(FluidAdam):
    """Fluid's lazy Adam: leaves m and v of rows without a gradient unchanged; on dense parameters the same as Adam."""

    handles_rows = True
