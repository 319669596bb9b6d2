# SPDX-License-Identifier: Apache-2.0
"""Compiled bodies of operators (blocks that loops and conditionals run over named values), and their tapes.

A tape records what the operators of a body read and wrote in one run, and propagates gradients back through it. Each
run has its own values, so a body may assign a variable repeatedly, as loops do. A gradient always belongs to the value
that the variable had at that point of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from paddle.backend import array_module, within
from paddle.graph.errors import BackwardError, ExecutionError
from paddle.graph.failure import failed
from paddle.graph.grad_builder import BodyGradients, gradient_of
from paddle.graph.operator import EMPTY, Operator
from paddle.graph.profile import PROFILE
from paddle.ops.activation.bounded import clip
from paddle.ops.base.body import Products
from paddle.ops.base.errors import EndOfData
from paddle.ops.base.lod import TensorArray, plain
from paddle.ops.base.registry import GRAD, GradOp, lookup
from paddle.ops.math.scale import sum_

_AFTER = "@AFTER"  # the value that an operator gave to a variable that it also reads


class Maker(Protocol):
    """The interface of functions that turn a gradient operator into a call over named values."""

    def __call__(self, op: Operator) -> Any:
        """Return a function of (values by name, step) that returns the outputs by name."""


class Entry(NamedTuple):
    """One executed operator, with the values of its inputs and outputs in the order of their names."""

    op: Operator
    before: tuple[Any, ...]
    after: tuple[Any, ...]


@dataclass(frozen=True)
class Derivation:
    """The gradient calls of a body's operators, cached with the body so that each is created only once.

    Attributes:
        smooth: the variables that can have gradients.
        make: makes the calls.
        bounds: the `Variable.error_bounds` of the variables that have them.
        tables: the variables that bodies of the operators read only in sparse lookups.
    """

    smooth: frozenset[str]
    make: Maker
    bounds: Mapping[str, Mapping[str, float]]
    tables: frozenset[str]
    known: dict[Any, Any] = field(default_factory=dict)

    def required(self, ops: Sequence[Operator], wanted: frozenset[str]) -> set[str]:
        """Return the variables through which gradients reach the wanted ones."""
        found = self.known.get(wanted)
        if found is None:
            found, size = set(wanted), -1
            while len(found) > size:  # the next iteration of a loop reads the last write of this one
                size = len(found)
                for op in ops:
                    if not found.isdisjoint(op.reads):
                        found.update(self.smooth.intersection(op.writes))
            self.known[wanted] = found
        return found

    def steps(self, op: Operator, arrived: frozenset[str], required: frozenset[str]) -> list[_Step]:
        """Return the calls that compute the gradients of an operator's inputs from the output gradients that exist."""
        key = (op.type, id(op), arrived, required)
        found = self.known.get(key)
        if found is None:
            steps = (_step(each, required, self.make) for each in _rules(op, arrived, required, self.tables))
            found = self.known[key] = [step for step in steps if step.writes]
            if not found:
                raise BackwardError(
                    f"operator {op.describe()} has no gradient with respect to the requested variables: set "
                    "stop_gradient on its inputs if that is intended"
                )
        return found


class _Step(NamedTuple):
    call: Any
    reads: tuple[str, ...]
    optional: frozenset[str]
    writes: tuple[tuple[str, str], ...]  # (name of the output, gradient that it contributes to)


@dataclass(frozen=True)
class Tape:
    """The operators of one run of a loop's body, which `back` differentiates. Implements `ops.base.body.Tape`."""

    entries: tuple[Entry, ...]
    derivation: Derivation
    step: int

    def back(self, grads: dict[str, Any], wanted: frozenset[str], products: Products | None = None) -> None:
        """Backpropagate one run: replace, in `grads`, output gradients with input gradients."""
        required = self.derivation.required([entry.op for entry in self.entries], wanted)
        for entry in reversed(self.entries):
            self._entry_back(entry, grads, required, products or {})

    def _entry_back(
        self, entry: Entry, grads: dict[str, Any], required: set[str], products: Products
    ) -> None:
        op = entry.op
        arrived = {name: grads.pop(name) for name in op.writes if name in grads}
        leading = frozenset(name for name in op.reads if name in required)
        if not arrived or not leading:
            return
        for name in self.derivation.bounds.keys() & arrived:
            arrived[name] = clip(arrived[name], **self.derivation.bounds[name])
        known = dict(zip(op.reads, entry.before, strict=True))
        if op.type == "mul" and op.inputs["Y"][0] in products and op.inputs["Y"] != op.inputs["X"]:
            rows, matrix = (plain(known[op.inputs[slot][0]]) for slot in "XY")
            if rows.ndim == matrix.ndim == 2:
                products[op.inputs["Y"][0]].append((rows, arrived[op.outputs["Out"][0]]))
                leading -= {op.inputs["Y"][0]}
                if not leading:
                    return
        known.update((_new(op, name), value) for name, value in zip(op.writes, entry.after, strict=True))
        known.update((_new(op, name) + GRAD, value) for name, value in arrived.items())
        for step in self.derivation.steps(op, frozenset(arrived), leading):
            given = {name: _given(name, known, step.optional) for name in step.reads}
            results = step.call(given, self.step)
            for name, target in step.writes:
                if results.get(name) is not None:
                    _add(grads, target, results[name])


def _new(op: Operator, name: str) -> str:
    return name + _AFTER if name in op.reads else name


def _given(name: str, known: Mapping[str, Any], optional: frozenset[str]) -> Any:
    if name in known or name in optional:
        return known.get(name)
    value = plain(known[name.removesuffix(GRAD)])
    return array_module(value).zeros_like(value)


def _add(grads: dict[str, Any], name: str, value: Any) -> None:
    value = value if isinstance(value, TensorArray) else plain(value)
    grads[name] = sum_([grads[name], value]) if name in grads else value


def _rules(
    op: Operator, arrived: frozenset[str], required: frozenset[str], tables: frozenset[str]
) -> list[GradOp]:
    twin = Operator(
        op.type,
        op.inputs,
        {slot: tuple(_new(op, name) for name in names) for slot, names in op.outputs.items()},
        op.attrs,
    )
    reached = {_new(op, name) for name in arrived}
    return gradient_of(twin, reached, BodyGradients(set(required), reached, tables))


def _step(grad_op: GradOp, required: frozenset[str], make: Maker) -> _Step:
    definition = lookup(grad_op.type)
    writes: list[tuple[str, str]] = []
    outputs: dict[str, list[str]] = {}
    for slot, names in grad_op.outputs.items():
        outputs[slot] = []
        for at, name in enumerate(names):
            source = name.removesuffix(GRAD)
            # A variable may occur several times, and each occurrence has a part of its gradient.
            part = f"{name}@{slot}@{at}" if source in required else EMPTY
            outputs[slot].append(part)
            if part != EMPTY:
                writes.append((part, source))
    taken = {slot.name for slot in definition.inputs}
    inputs = {slot: list(names) for slot, names in grad_op.inputs.items() if slot in taken}
    optional = frozenset(
        name for slot in definition.inputs if slot.optional for name in inputs.get(slot.name, ())
    )
    op = Operator.make(grad_op.type, inputs, outputs, grad_op.attrs)
    return _Step(make(op), tuple(dict.fromkeys(op.reads)), optional, tuple(writes))


@dataclass(frozen=True)
class CompiledBody:
    """The compiled form of a block: its calls over its own registers; register 0 holds the step."""

    calls: tuple[Callable[[list[Any]], None], ...]
    numbers: Mapping[str, int]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    ops: tuple[Operator, ...]
    derivation: Derivation

    @cached_property
    def places(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Return the registers that each operator reads, and the registers that it writes."""

        def of(names: tuple[str, ...]) -> tuple[int, ...]:
            return tuple(self.numbers[name] for name in names)

        return tuple((of(op.reads), of(op.writes)) for op in self.ops)

    def recorded(self) -> Sequence[Callable[[list[Any]], None]]:
        """Return the calls, instrumented to record their durations while profiling is on."""
        return PROFILE.recorded(self.calls, self.ops) if PROFILE.on else self.calls

    def at(self, step: int) -> BoundBody:
        """Return the body bound to one step of the program."""
        return BoundBody(self, step)


@dataclass(frozen=True)
class BoundBody:
    """A loop's compiled body, which its operator runs. Implements `ops.base.body.Body`."""

    compiled: CompiledBody
    step: int

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the names of the variables that the body reads before writing them."""
        return self.compiled.reads

    @property
    def writes(self) -> tuple[str, ...]:
        """Return the names of the variables that the body writes."""
        return self.compiled.writes

    def run(self, values: dict[str, Any], turn: int | None = None) -> None:
        """Run all operators; read inputs from `values` (None for absent ones), and store outputs there."""
        registers, at = self._registers(values, turn), 0
        try:
            for at, call in enumerate(self.compiled.recorded()):  # noqa: B007 - names the call that fails
                call(registers)
        except EndOfData:
            raise
        except Exception as error:
            raise self._failure(at, registers, error) from error
        self._finish(registers, values)

    def trace(self, values: dict[str, Any], turn: int | None = None) -> Tape:
        """Run all operators like `run`, and return the tape from which gradients are computed."""
        registers, entries = self._registers(values, turn), []
        for at, (op, call, (reads, writes)) in enumerate(
            zip(self.compiled.ops, self.compiled.recorded(), self.compiled.places, strict=True)
        ):
            before = tuple([registers[number] for number in reads])
            try:
                call(registers)
            except EndOfData:
                raise
            except Exception as error:
                raise self._failure(at, registers, error) from error
            entries.append(Entry(op, before, tuple([registers[number] for number in writes])))
        self._finish(registers, values)
        return Tape(tuple(entries), self.compiled.derivation, within(self.step, turn))

    def _registers(self, values: dict[str, Any], turn: int | None) -> list[Any]:
        numbers = self.compiled.numbers
        registers: list[Any] = [None] * (len(numbers) + 3)
        registers[0] = within(self.step, turn)
        for name in self.reads:
            registers[numbers[name]] = values.get(name)
        return registers

    def _failure(self, at: int, registers: list[Any], error: Exception) -> ExecutionError:
        def value_of(name: str) -> Any:
            return registers[numbers[name]] if name in numbers else None

        numbers = self.compiled.numbers
        return failed(self.compiled.ops[at], at, value_of, error)

    def _finish(self, registers: list[Any], values: dict[str, Any]) -> None:
        for name in self.writes:
            values[name] = registers[self.compiled.numbers[name]]
