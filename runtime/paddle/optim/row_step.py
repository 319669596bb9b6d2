# SPDX-License-Identifier: Apache-2.0
"""One step of some rows of a sparse parameter: clip, the rule, then the decay of all batches since the last one.

Whoever keeps the rows gathers them, has them changed here, and puts them back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.optim.rules.rule import Array, State, Step, decay
from paddle.optim.spec import OptimizerSpec, ParameterSpec, rate_of, rule_of


class Since(NamedTuple):
    """What happened to each of n rows before this step.

    Attributes:
        elapsed: (n, 1) float32: batches since its last gradient, counting this one.
        first: (n, 1) bool: it never had one.
        undecayed: (n, 1) float32: batches since it was last decayed, counting this one.
    """

    elapsed: npt.NDArray[np.float32]
    first: npt.NDArray[np.bool_]
    undecayed: npt.NDArray[np.float32]


class RowStep:
    """A rule with its hyperparameters for the rows of one parameter. Holds no rows; thread-safe."""

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec) -> None:
        self._optimizer, self._parameter = optimizer, parameter
        self.rule = rule_of(optimizer)
        self.states = self.rule.states(parameter.momentum)
        self.decays = bool(parameter.l1 or parameter.l2)

    def apply(self, w: Array, g: Array, state: State, since: Since, batch: int, learning_rate: float) -> None:
        """Change rows `w` (n, width) and their `state` in place by their summed gradient `g`, not changed."""
        parameter = self._parameter
        if parameter.clip:
            g = np.clip(g, -parameter.clip, parameter.clip)
        eta = rate_of(self.rule, self._optimizer, parameter, learning_rate)
        step = Step(eta, 0.0, parameter.momentum, batch, since.elapsed, since.first)
        self.rule.update(w, g, state, step)
        self.decay(w, since.undecayed, learning_rate)

    def decay(self, w: Array, undecayed: npt.NDArray[np.float32], learning_rate: float) -> None:
        """Decay rows `w` (n, width) for so many batches each, (n, 1), in place."""
        l1, l2 = self._parameter.l1, self._parameter.l2
        if not self.decays:
            return
        eta = rate_of(self.rule, self._optimizer, self._parameter, learning_rate)
        decay(w, eta * l1 * undecayed if l1 else None, eta * l2 * undecayed if l2 else None)
