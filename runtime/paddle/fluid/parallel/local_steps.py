# SPDX-License-Identifier: Apache-2.0
"""LocalSteps: trainers that update their own parameters and average them, instead of summing gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle.backend import Array
from paddle.collective import Averages, Group
from paddle.fluid.errors import FluidError
from paddle.fluid.parallel.strategies import Averaging
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.run.scope import Scope


class LocalSteps:
    """Local SGD: averages the parameters of a program in one scope over all trainers, at intervals.

    Attributes:
        program: the trained program.
    """

    def __init__(self, program: Program, group: Group, scope: Scope) -> None:
        """Start with the values of trainer 0.

        Raises:
            FluidError: the program has no trainable parameters.
        """
        averaging = program._averaging
        assert isinstance(averaging, Averaging)
        self.program = program
        self._params = _trained(program)
        if not self._params:
            raise FluidError(
                "there is nothing to average: the program updates no parameter; call minimize first"
            )
        self._states = _written(program, scope, self._params)
        self._averages = Averages(
            group,
            _values(scope, self._params),
            _values(scope, self._states),
            k_steps=averaging.k_steps,
            waits=averaging.waits,
        )

    def step(self, scope: Scope) -> None:
        """Count one run of the updates, and average if it is due.

        Raises:
            CollectiveError: a trainer is lost, late or running a different program.
        """
        self._averages.step(_values(scope, self._params))

    def average(self, scope: Scope) -> None:
        """Average parameters and states over all trainers; block until every trainer has called this or ended.

        Raises:
            CollectiveError: a trainer is lost, late or running a different program.
        """
        self._averages.settle(_values(scope, self._params), _values(scope, self._states))


def _trained(program: Program) -> list[str]:
    ops = [op for op in program.global_block().ops if isinstance(op, Operator)]
    names = {op.role_vars[0] for op in ops if op.role == OpRole.OPTIMIZE and op.role_vars}
    return sorted(names)


def _written(program: Program, scope: Scope, params: Sequence[str]) -> list[str]:
    """Return the other floating-point state that a step changes: moments, moving means."""
    block = program.global_block()
    found = []
    for name in sorted({name for op in block.ops for name in op.writes} - set(params)):
        variable = block.find(name)
        if (
            variable is not None
            and variable.persistable
            and scope.has(name)
            and _is_floating(scope.get(name))
        ):
            found.append(name)
    return found


def _is_floating(value: object) -> bool:
    is_array = isinstance(value, np.ndarray) or hasattr(value, "get")
    return is_array and getattr(getattr(value, "dtype", None), "kind", "") == "f"


def _values(scope: Scope, names: Sequence[str]) -> list[Array]:
    return [scope.get(name) for name in names]
