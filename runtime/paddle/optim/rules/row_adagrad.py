# SPDX-License-Identifier: Apache-2.0
"""Row-wise AdaGrad, for rows of sparse parameters: s += Σg²/width;  w −= η g/(√s + ε), with one s for a whole row.

With width 16, a table stores 17 floats per row, where AdaGrad stores 32. Source: Naumov et al., 2019 (DLRM).
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step
from paddle.optim.rules.table import rule


@rule("row_adagrad")
class RowAdagrad(Rule):
    """Row-wise AdaGrad (Naumov et al., 2019); its state is, per row, the sum of the mean squares of gradients.

    The sum can start above 0.
    """

    epsilon: float = 1e-10
    initial_accumulator_value: float = 0.0

    row_keeps = ("s_row",)
    handles_rows = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of row-wise AdaGrad, which changes `w` and `state` in place."""
        s = state["s_row"]  # (n, 1)
        squares = np.zeros_like(s)
        for column in range(g.shape[1]):  # in this order, as `table.c` adds
            squares += g[:, column : column + 1] * g[:, column : column + 1]
        s += squares / np.float32(g.shape[1])
        w -= step.eta * g / (np.sqrt(s + self.initial_accumulator_value) + self.epsilon)
