# SPDX-License-Identifier: Apache-2.0
"""Delay compensation (DC-ASGD, Zheng et al., 2017) on a server.

The blocks compute g + g * g * (p - backup), where backup is the value of the parameter that the sender of gradient g
last received.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paddle import graph
from paddle.fluid.run.scope import Scope

TRAINER_ID = "@TRAINER_ID@"


def backup_name(param: str, trainer: int) -> str:
    """Return the name of the variable that contains the parameter value that a trainer last received."""
    return f"{param}.trainer_{trainer}_bak"


class Compensation:
    """The parameter values that each trainer last received (backups), for delay compensation."""

    def __init__(self, program: graph.Program, scope: Scope) -> None:
        self._block, self._scope = program.global_block(), scope

    def feed(self, trainer: int) -> Mapping[str, Any]:
        """Return the inputs of a trainer's update other than the gradient: the trainer's number."""
        return {TRAINER_ID: np.array([trainer], np.int64)}

    def begin(self, name: str, value: Any) -> None:
        """Record that all trainers start with the same values."""
        trainer = 0
        while self._block.find(backup_name(name, trainer)) is not None:
            self.given(trainer, name, value)
            trainer += 1

    def last_given(self, trainer: int, name: str) -> Any:
        """Return the value of a parameter as a trainer last received it; None if the variable has no backup."""
        backup = backup_name(name, trainer)
        return None if self._block.find(backup) is None else self._scope.get(backup)

    def given(self, trainer: int, name: str, value: Any) -> None:
        """Record that a trainer receives a variable; the value of a parameter becomes its backup."""
        backup = backup_name(name, trainer)
        if self._block.find(backup) is not None:
            self._scope.get(backup)[...] = value
