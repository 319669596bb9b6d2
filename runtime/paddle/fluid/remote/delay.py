# SPDX-License-Identifier: Apache-2.0
"""Delay compensation (DC-ASGD) on a server: what each trainer was last given of each parameter.

The program's blocks compute g + g * g * (p - backup) with the backup of the trainer whose gradient g is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paddle import graph
from paddle.fluid.run.scope import Scope

TRAINER_ID = "@TRAINER_ID@"


def backup_name(param: str, trainer: int) -> str:
    """Return the name of what a trainer was given of a parameter."""
    return f"{param}.trainer_{trainer}_bak"


class Compensation:
    """The backups in a scope."""

    def __init__(self, program: graph.Program, scope: Scope) -> None:
        self._block, self._scope = program.global_block(), scope

    def feed(self, trainer: int) -> Mapping[str, Any]:
        """Return what a block needs beside the gradient."""
        return {TRAINER_ID: np.array([trainer], np.int64)}

    def begin(self, name: str, value: Any) -> None:
        """Record that all trainers start with the same value."""
        trainer = 0
        while self._block.find(backup_name(name, trainer)) is not None:
            self.given(trainer, name, value)
            trainer += 1

    def last_given(self, trainer: int, name: str) -> Any:
        """Return what a trainer was last given of a parameter; None if the variable is none."""
        backup = backup_name(name, trainer)
        return None if self._block.find(backup) is None else self._scope.get(backup)

    def given(self, trainer: int, name: str, value: Any) -> None:
        """Note that a trainer gets a variable; a parameter's backup becomes that."""
        backup = backup_name(name, trainer)
        if self._block.find(backup) is not None:
            self._scope.get(backup)[...] = value
