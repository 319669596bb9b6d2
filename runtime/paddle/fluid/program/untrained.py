# SPDX-License-Identifier: Apache-2.0
"""Networks that a script builds twice: a copy whose parameters nothing has trained is warned of when it is run."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path
from weakref import WeakKeyDictionary, ref

from paddle.fluid.program.operator import OpRole
from paddle.fluid.program.program import PROGRAMS, Program
from paddle.fluid.program.variable import Parameter
from paddle.graph.operator import script_line
from paddle.graph.scope import Scope
from paddle_node.contract.classes import NamedTuple, regex

_log = logging.getLogger(__name__)

_RANDOM = frozenset({"uniform_random", "gaussian_random", "truncated_gaussian_random"})
_INITIAL = _RANDOM | {"fill_constant"}
_NUMBER = regex(r"\d+")


class _Found(NamedTuple):
    """What one version of a program runs.

    Attributes:
        network: a hash of the forward pass without the names of its parameters; equal for two copies of a network.
    """

    version: int
    network: int
    parameters: tuple[str, ...]
    is_trained: bool


class Untrained:
    """Notices when a copy of a trained network is run with its initial values; warns once.

    A warning about a copy is logged only if startup programs have set its parameters, no program can write them, and
    the scope still has the same arrays: values that were loaded or set are other arrays.
    """

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Program, _Found] = WeakKeyDictionary()
        self._trained: dict[int, tuple[str, ...]] = {}
        self._changed: set[str] = set()
        self._initial: dict[str, ref[object]] = {}
        self._is_over = False

    def initialized(self, program: Program, scope: Scope) -> None:
        """Note the random values that a startup program, which has just run, has set."""
        for op in program.global_block().ops if not self._is_over else ():
            if op.type in _RANDOM:
                name = op.writes[0]
                try:
                    self._initial[name] = ref(scope.cell(name).value)
                except TypeError:
                    continue

    def check(self, program: Program, scope: Scope, has_batch: bool) -> None:
        """Warn if a program, which is about to be run, is such a copy."""
        if self._is_over or not self._initial:
            return
        found = self._found.get(program)
        if found is None or found.version != program.version:
            found = self._found[program] = _look(program)
            self._changed.update(_changed(program))
            if found.is_trained and has_batch:
                self._trained[found.network] = found.parameters
        trained = self._trained.get(found.network, ())
        if found.is_trained or not has_batch or not trained or not {*trained}.isdisjoint(found.parameters):
            return
        self._is_over = True
        drawn = [name for name in found.parameters if name in self._initial]
        changed = self._changed.union(*map(_changed, list(PROGRAMS)))
        if not drawn or not changed.isdisjoint(found.parameters):
            return
        if all(scope.has(name) and scope.get(name) is self._initial[name]() for name in drawn):
            _log.warning(
                "no program trains the parameters of this program, run %s, such as %r; the same network has been "
                "trained as %r: build each within `with fluid.unique_name.guard():`, which gives both the same names, "
                "or use clone(for_test=True)",
                script_line(),
                drawn[0],
                trained[found.parameters.index(drawn[0])],
            )


def initializers(name: str) -> dict[Program, str]:
    """Return the startup programs that initialize a variable, with the lines of the script that made them do so."""
    return {
        each: op.origin
        for each in list(PROGRAMS)
        for op in each.global_block().ops
        if name in op.writes and not op.reads
    }


def unstarted(name: str, program: Program, default: Program, scope: Scope) -> str:
    """Return why a variable of a program has no value although a startup program seems to have been run, or ""."""
    found = initializers(name)
    where = found.get(default) or next((line for line in found.values() if line), "")
    if not where:
        return ""
    if default not in found:
        return (
            "default_startup_program() does not initialize it. Run the startup program of the program_guard that was "
            f"in effect {where}"
        )
    was_run = any(scope.has(each) for op in default.global_block().ops for each in op.writes)
    if was_run or not any(each.persistable and scope.has(each.name) for each in program.list_vars()):
        return ""
    return (
        f"default_startup_program() initializes it {where}, but was not run in this scope. If another startup program "
        "was run, make this call within its program_guard, or pass it to minimize as startup_program=; otherwise run "
        "default_startup_program() first"
    )


def renamed(path: Path, variables: Collection[str]) -> str:
    """Return advice for a variable that has no file in a directory, given the names of its program's variables."""
    pattern = _NUMBER.sub("#", path.name)
    try:
        names = [each for each in os.listdir(path.parent) if _NUMBER.sub("#", each) == pattern]
    except OSError:
        names = []
    if not names or not {*names}.isdisjoint(variables):
        return "load it into the program that saved the directory"
    where = next((f" {line}" for line in initializers(path.name).values() if line), "")
    return (
        f"it has {min(names)!r}, because the network was built again{where}, with other generated names. Build each "
        "network within `with fluid.unique_name.guard():`, name its parameters with ParamAttr(name=...), or use "
        "clone(for_test=True)"
    )


def _look(program: Program) -> _Found:
    block = program.global_block()
    parameters = {each.name: each for each in block.vars.values() if isinstance(each, Parameter)}
    network = (
        tuple(each.name for each in block.vars.values() if getattr(each, "is_data", False)),
        tuple(op.type for op in block.ops if not getattr(op, "role", 0) & ~OpRole.LOSS),
        tuple(tuple(each.shape) for each in parameters.values()),
    )
    is_trained = not _changed(program).isdisjoint(parameters)
    return _Found(program.version, hash(network), tuple(parameters), is_trained)


def _changed(program: Program) -> set[str]:
    """Return the persistable variables that a program can change after their initialization."""
    return {
        name
        for block in program.blocks
        for op in block.ops
        if op.reads or op.type not in _INITIAL
        for name in op.writes
        if getattr(program.global_block().vars.get(name), "persistable", False)
    }
