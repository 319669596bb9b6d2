# SPDX-License-Identifier: Apache-2.0
"""Warnings about programs that train nothing, on the test data, or to NaN: each run of a program is checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from math import prod
from numbers import Real
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakKeyDictionary, ref

import numpy as np

from paddle.fluid.errors import OF_OPTIMIZERS, FluidError, FluidTypeError, no_attribute
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program, default_main_program
from paddle.fluid.program.restarted import Restarted
from paddle.fluid.program.suspects import warn_of_operators
from paddle.fluid.program.untrained import Untrained
from paddle.fluid.program.variable import Parameter, Variable
from paddle.graph.block import Name
from paddle.graph.operator import script_line, warn_script
from paddle.graph.scope import Scope
from paddle.optim.learning_rate import unusual
from paddle_node.contract.classes import NamedTuple

_log = logging.getLogger(__name__)
_GROWTHS = 5
_RUNS = 3  # a script may run its program a few times to try it, before it calls minimize


class _Seen(NamedTuple):
    """A program at its last run: its version, its size, and the number of runs in a row before which it grew."""

    version: int
    size: int
    growths: int


class Misuse:
    """Notices when a program is run although no optimizer was given its loss; warns once."""

    def __init__(self) -> None:
        self._idle: list[str] = []  # where each optimizer was created
        self._runs = 0
        self._is_over = False
        self._loaded: frozenset[str] = frozenset()
        self._loaded_into: Callable[[], object] = lambda: None
        self._untrained = Untrained()
        self._restarted = Restarted()
        self._is_finite = True
        self._seen: WeakKeyDictionary[Program, _Seen] = WeakKeyDictionary()

    def made(self) -> None:
        """Note that the script creates an optimizer."""
        if not self._is_over:
            self._idle.append(script_line())

    def rule_out(self) -> None:
        """End the checks: an optimizer was used, or parameters were loaded, as programs for inference do."""
        self._is_over = True
        self._idle.clear()

    def loaded(self, scope: object, names: Collection[str]) -> None:
        """Note that parameters were loaded into a scope, as programs for inference do."""
        self.rule_out()
        self._loaded, self._loaded_into = frozenset(names), ref(scope)

    def check(self, program: Program, scope: Scope, has_batch: bool) -> None:
        """Warn if a program, which is about to be run, trains nothing, or is a copy for tests that trains."""
        if program._test_updates:
            program._test_updates = False
            warn_script(
                "this program was copied with clone(for_test=True) after minimize, so each run of it still updates "
                "the parameters and trains on the test data: clone before minimize"
            )
        names, self._loaded = self._loaded, frozenset()
        if names and not has_batch and self._loaded_into() is scope:
            first = next((op for op in program.global_block().ops if not names.isdisjoint(op.writes)), None)
            if first is not None and not first.reads:
                warn_script(
                    f"this run of the startup program overwrites values that were just loaded, such as "
                    f"{first.writes[0]!r}: run it before loading"
                )
        self._untrained.check(program, scope, has_batch)
        if has_batch:
            self._restarted.check(program, scope)
        seen = self._seen.get(program, _Seen(-1, 0, -1))
        if has_batch and program.version != seen.version:
            self._seen[program] = _growth(program, seen)
            self._warn_of_schedule(program)
            warn_of_operators(program)
        elif seen.growths > 0:
            self._seen[program] = seen._replace(growths=0)
        if not self._idle or program._is_test or not has_batch:
            return
        variables = program.list_vars()
        trained = {each.name for each in variables if isinstance(each, Parameter) and each.trainable}
        if not trained or any(not trained.isdisjoint(op.writes) for op in program.global_block().ops):
            return
        self._runs += 1
        if self._runs == _RUNS:
            warn_script(
                f"this program trains nothing, because the optimizer created {self._idle[-1]} was never used: call "
                "optimizer.minimize(loss) before exe.run(fluid.default_startup_program())"
            )
            self.rule_out()

    @staticmethod
    def _warn_of_schedule(program: Program) -> None:
        """Warn of a program that trains, but reads the result of a learning rate schedule nowhere."""
        ops = [op for block in program.blocks for op in block.ops if isinstance(op, Operator)]
        schedule = [op for op in ops if op.role == OpRole.LR_SCHED]
        others = [op for op in ops if op.role != OpRole.LR_SCHED]
        computed = {name for op in schedule for name in op.writes}
        if computed.isdisjoint(name for op in others for name in op.reads) and any(
            op.role == OpRole.OPTIMIZE for op in others if schedule
        ):
            _log.warning(
                "the learning rate schedule created %s has no effect, because no optimizer uses it: pass it on, as in "
                "SGD(learning_rate=schedule)",
                schedule[-1].origin,
            )

    def initialized(self, program: Program, scope: Scope) -> None:
        """Note that a startup program was run."""
        self._untrained.initialized(program, scope)
        self._restarted.initialized(program, scope)

    def fetched(self, program: Program, names: Sequence[Name], values: Sequence[object]) -> None:
        """Warn, once, of a loss that is NaN or infinite."""
        known = program.global_block().vars
        for name, value in zip(names, values, strict=True) if self._is_finite else ():
            called = name if isinstance(name, str) else name.name
            if f"{called}@GRAD" not in known or prod(known[called].shape) != 1:
                continue
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
                self._is_finite = False
                _log.warning(
                    "the loss %r is %s %s: set the environment variable FLAGS_check_nan_inf=1, and the first operator "
                    "that produces NaN or infinity fails with its line",
                    called,
                    "NaN" if np.isnan(value).any() else "infinite",
                    script_line(),
                )


def _growth(program: Program, seen: _Seen) -> _Seen:
    """Return what is seen of a program; warn of one to which a loop appends operators."""
    size = sum(len(block.ops) for block in program.blocks)
    now = _Seen(program.version, size, seen.growths + 1 if size > seen.size else 0)
    if now.growths == _GROWTHS:
        _log.warning(
            "this program, run %s, has grown before each of its last %d runs, by %d operators: create layers before "
            "the loop; a sum of results needs the fetched values, not the variables",
            script_line(),
            _GROWTHS,
            size - seen.size,
        )
    return now


MISUSE = Misuse()


class FixedRate:
    """The base of optimizers: refuses a new learning rate, which would have no effect on the program."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, OF_OPTIMIZERS)

    def __setattr__(self, name: str, value: object) -> None:
        is_public = name == "learning_rate" and type(self).__module__ == "paddle.fluid.optimizer"
        used = self.__dict__.get("_learning_rate_map", ())  # in other programs, a new rate has an effect
        if is_public or (name == "_learning_rate" and default_main_program() in used):
            raise FluidError(
                f"setting {name} has no effect after the optimizer is created. As learning_rate, pass a schedule, such "
                "as layers.piecewise_decay(boundaries, values), or a variable from "
                "layers.create_global_var(persistable=True), whose value you then set in the scope"
            )
        super().__setattr__(name, value)


def check_arguments(rate: object, regularization: object) -> None:
    """Refuse a learning rate or a regularization of the wrong type; warn of an unusual learning rate.

    Raises:
        FluidTypeError: an argument has the wrong type.
        FluidError: the learning rate is negative.
    """
    if isinstance(rate, bool) or not isinstance(rate, (Real, Variable)):
        hint = ": convert text, as in float(args.lr)" if isinstance(rate, str) else ""
        raise FluidTypeError(f"learning_rate: expected a number or a Variable, got {rate!r}{hint}")
    if isinstance(rate, Real) and not float(rate) >= 0:
        raise FluidError(
            f"learning_rate: expected 0 or more, got {rate!r}; to maximize, minimize -1.0 * loss"
        )
    if isinstance(rate, Real) and (what := unusual(float(rate))):
        _log.warning("optimizer %s: %s", script_line(), what)
    if regularization is not None and not callable(regularization):
        raise FluidTypeError(
            f"regularization: expected fluid.regularizer.L2Decay(coefficient) or L1Decay, got {regularization!r}"
        )
