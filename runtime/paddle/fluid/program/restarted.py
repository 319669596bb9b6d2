# SPDX-License-Identifier: Apache-2.0
"""Startup programs that are run again: warns when a program reads initial values in place of trained parameters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from weakref import WeakKeyDictionary, ref

from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter
from paddle.graph.operator import script_line
from paddle.graph.scope import Scope
from paddle_node.contract.classes import NamedTuple

_log = logging.getLogger(__name__)


class _Uses(NamedTuple):
    """The parameters of one version of a program: all of them, and those that it trains."""

    version: int
    parameters: frozenset[str]
    trained: frozenset[str]


class _Renewed(NamedTuple):
    """The line that ran a startup program again, and the new arrays of trained parameters."""

    line: str
    values: Mapping[str, ref[object]]


class Restarted:
    """Notices when a startup program undoes training in a scope; warns once, when a program reads the new values.

    A program reads other arrays if values were loaded or set in the meantime, as when a script continues a training.
    """

    def __init__(self) -> None:
        self._uses: WeakKeyDictionary[Program, _Uses] = WeakKeyDictionary()
        self._trained: WeakKeyDictionary[Scope, set[str]] = WeakKeyDictionary()
        self._renewed: WeakKeyDictionary[Scope, _Renewed] = WeakKeyDictionary()
        self._last: tuple[int, int, int] | None = None
        self._is_over = False

    def check(self, program: Program, scope: Scope) -> None:
        """Note that a program, which is about to be run with a batch, trains parameters of a scope."""
        now = (id(program), program.version, id(scope))
        if self._is_over or now == self._last:
            return
        self._last = now
        uses = self._uses.get(program)
        if uses is None or uses.version != program.version:
            uses = self._uses[program] = _uses(program)
        renewed = self._renewed.pop(scope, None)
        if renewed is not None and not uses.parameters.isdisjoint(renewed.values):
            lost = [
                name
                for name, value in renewed.values.items()
                if name in uses.parameters and scope.has(name) and scope.get(name) is value()
            ]
            if lost:
                self._is_over = True
                _log.warning(
                    "the startup program, run again %s, replaced trained parameters, such as %r, by initial values: "
                    "run it once, before training; layers that are added later need a startup program of their own "
                    "(fluid.program_guard), and an intended restart a new fluid.Scope",
                    renewed.line,
                    lost[0],
                )
        self._trained.setdefault(scope, set()).update(uses.trained)

    def initialized(self, program: Program, scope: Scope) -> None:
        """Note that a program without a batch, which may be a startup program, has been run in a scope."""
        trained = self._trained.get(scope)
        self._last = None
        if not trained or self._is_over:
            return
        values = {}
        for op in program.global_block().ops:
            for name in trained.intersection(op.writes) if not op.reads else ():
                try:
                    values[name] = ref(scope.cell(name).value)
                except TypeError:
                    continue
        if values:
            trained.difference_update(values)
            self._renewed[scope] = _Renewed(script_line(), values)


def _uses(program: Program) -> _Uses:
    block = program.global_block()
    parameters = frozenset(each.name for each in block.vars.values() if isinstance(each, Parameter))
    written = (name for op in block.ops if op.reads for name in op.writes)
    return _Uses(program.version, parameters, parameters.intersection(written))
