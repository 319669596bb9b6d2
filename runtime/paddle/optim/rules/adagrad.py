# SPDX-License-Identifier: Apache-2.0
"""AdaGrad: s += g²;  r = 1/√(s + ε);  m = μm − η r (g + λw);  w += m.

Source: Duchi, Hazan and Singer, 2011. The learning rate schedule is ignored, because s already shortens the steps.
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, descend
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule("adagrad", v2="AdaGrad()")
class Adagrad(Rule):
    """AdaGrad (Duchi et al., 2011); its state is the sum of squared gradients."""

    epsilon: float = 1e-6

    keeps = ("s",)
    has_momentum = True
    follows_schedule = False
    handles_rows = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """Take one step of AdaGrad in place; return r, the factor on each element's rate."""
        s = state["s"]
        s += g * g
        r: Array = 1.0 / np.sqrt(s + self.epsilon)
        descend(w, g, r, state, step)
        return r


@rule(
    "fluid_adagrad",
    # Moment contains the initial sum of squares.
    fluid=Fluid(
        "Adagrad(learning_rate, epsilon=1.0e-6, regularization=None, name=None, initial_accumulator_value=0.0)",
        "m += g²;  w −= ηg/(√m + ε).",
        "adagrad: Param Grad Moment LearningRate -> ParamOut MomentOut",
        {"epsilon": 1e-6},
        (StateArray("s", "Moment", "moment", fill="initial_accumulator_value"),),
        rows=True,
        compiled=lambda rule: (np.float32(rule.epsilon),),
    ),
)
class FluidAdagrad(Rule):
    """Fluid's AdaGrad: s += g²;  w −= η g/(√s + ε).

    v2's rule has ε inside the root and ignores the schedule. s may start above 0.
    """

    epsilon: float = 1e-6
    initial_accumulator_value: float = 0.0

    keeps = ("s",)
    handles_rows = True
    penalizes_gradient = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Fluid's AdaGrad, which changes `w` and `state` in place."""
        s = state["s"]
        s += g * g
        w -= step.eta * g / (np.sqrt(s + self.initial_accumulator_value) + self.epsilon)
