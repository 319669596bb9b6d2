# SPDX-License-Identifier: Apache-2.0
"""AdaGrad: s += g²;  r = 1/√(s + ε);  m = μm − η r (g + λw);  w += m.

Duchi, Hazan and Singer, 2011. The learning rate schedule is ignored: s already slows learning down.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, descend, with_momentum


class Adagrad(Rule):
    """Keeps the sum of squared gradients."""

    follows_schedule: ClassVar[bool] = False
    handles_rows: ClassVar[bool] = True

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return with_momentum("s", mu=mu)

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """See `Rule.update`."""
        s = state["s"]
        s += g * g
        r: Array = 1.0 / np.sqrt(s + self.epsilon)
        descend(w, g, r, state, step)
        return r
