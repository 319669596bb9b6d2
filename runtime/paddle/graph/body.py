# SPDX-License-Identifier: Apache-2.0
"""Compiled bodies of operators (blocks that loops and conditionals run over named values), and their tapes.

A tape has the values that the operators of a body read and wrote in one run, and propagates gradients back through it.
A body may assign a variable repeatedly, as loops do. A gradient always belongs to the value that the variable had at
that point of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

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
from paddle_node.contract.classes import NamedTuple, dataclass, field

_AFTER = "@AFTER"  # the value that an operator gave to a variable that it also reads


class Maker(Protocol):
    """The interface of functions that turn a gradient operator into a call over registers."""

    def __call__(self, op: Operator) -> tuple[Callable[[list[Any]], None], Mapping[str, int]]:
        """Return the call and the register of each variable; register 0 holds the step."""


class Place(NamedTuple):
    """An operator of a body, and where its values are after it has run.

    Attributes:
        reads: the registers that it reads.
        writes: the registers that it writes.
        is_replaced: whether this operator or a later one replaces such a value, so that a tape must copy the values.
    """

    op: Operator
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    is_replaced: bool

    def values(self, registers: list[Any], before: list[Any]) -> list[Any]:
        """Return the values for a tape: the registers, or `before` and the values that the operator wrote."""
        return [*before, *[registers[number] for number in self.writes]] if self.is_replaced else registers

    @property
    def known(self) -> dict[str, int]:
        """The index of each variable in `values`."""
        numbers = (*self.reads, *self.writes)
        indices = range(len(numbers)) if self.is_replaced else numbers
        names = (*self.op.reads, *(_new(self.op, name) for name in self.op.writes))
        return dict(zip(names, indices, strict=True))


@dataclass(frozen=True)
class Derivation:
    """The gradient calls of a body's operators, cached with the body so that each is created only once.

    Attributes:
        places: the operators of the body.
        smooth: the variables that can have gradients.
        make: makes the calls.
        bounds: the `Variable.error_bounds` of the variables that have them.
        tables: the variables that bodies of the operators read only in sparse lookups.
    """

    places: tuple[Place, ...]
    smooth: frozenset[str]
    make: Maker
    bounds: Mapping[str, Mapping[str, float]]
    tables: frozenset[str]
    known: dict[frozenset[str], list[_Back]] = field(default_factory=dict)

    def backs(self, wanted: frozenset[str]) -> list[_Back]:
        """Return the gradient calls of the operators that lead to the wanted variables, the last operator first."""
        found = self.known.get(wanted)
        if found is None:
            required = self._required(wanted)
            found = self.known[wanted] = [_Back(place, required, self) for place in reversed(self.places)]
        return found

    def _required(self, wanted: frozenset[str]) -> frozenset[str]:
        """Return the variables through which gradients reach the wanted ones."""
        found, size = set(wanted), -1
        while len(found) > size:  # the next iteration of a loop reads the last write of this one
            size = len(found)
            for op, *_ in self.places:
                if not found.isdisjoint(op.reads):
                    found.update(self.smooth.intersection(op.writes))
        return frozenset(found)


class _Step(NamedTuple):
    """A call that computes gradients, over `size` registers.

    Attributes:
        given: (register, index) of the operator's values that it reads.
        arrived: (register, index) of the gradients that it reads.
        zeros: (register, index) of the values whose gradients are absent, and which it reads as zeros.
        writes: (register, variable) of its results, and the variables to whose gradients they contribute.
    """

    call: Callable[[list[Any]], None]
    size: int
    given: list[tuple[int, int]]
    arrived: list[tuple[int, int]]
    zeros: list[tuple[int, int]]
    writes: list[tuple[int, str]]


class _Back:
    """Propagates gradients back through one operator of a body."""

    def __init__(self, place: Place, required: frozenset[str], derivation: Derivation) -> None:
        op = place.op
        self._op, self._known, self._derivation = op, place.known, derivation
        self.writes = tuple(dict.fromkeys(op.writes))
        self._leading = frozenset(name for name in op.reads if name in required)
        self._bounds = derivation.bounds if not derivation.bounds.keys().isdisjoint(self.writes) else {}
        self._matrix = op.inputs["Y"][0] if op.type == "mul" and op.inputs["Y"] != op.inputs["X"] else None
        self._steps: dict[tuple[tuple[str, ...], bool], list[_Step]] = {}

    def run(
        self, values: list[Any], arrived: list[str], grads: dict[str, Any], products: Products, step: int
    ) -> None:
        """Replace, in `grads`, the gradients of the outputs `arrived` with those of the inputs."""
        found = [grads.pop(name) for name in arrived]
        if not self._leading:
            return
        for at, name in enumerate(arrived) if self._bounds else ():
            if name in self._bounds:
                found[at] = clip(found[at], **self._bounds[name])
        recorded = self._matrix in products and self._record(values, found[0], products)
        key = (tuple(arrived), recorded)
        steps = self._steps.get(key)
        if steps is None:
            steps = self._steps[key] = self._made(arrived, recorded)
        for call, size, given, came, zeros, writes in steps:
            registers: list[Any] = [None] * size
            registers[0] = step
            for number, at in given:
                registers[number] = values[at]
            for number, at in came:
                registers[number] = found[at]
            for number, at in zeros:
                value = plain(values[at])
                registers[number] = array_module(value).zeros_like(value)
            call(registers)
            for number, target in writes:
                if registers[number] is not None:
                    _add(grads, target, registers[number])

    def _record(self, values: list[Any], dout: Any, products: Products) -> bool:
        """Record this product, if it is one of matrices, instead of computing the gradient of Y."""
        assert self._matrix is not None
        rows, matrix = (plain(values[self._known[self._op.inputs[slot][0]]]) for slot in "XY")
        if rows.ndim != 2 or matrix.ndim != 2:
            return False
        products[self._matrix].append((rows, dout))
        return True

    def _made(self, arrived: list[str], recorded: bool) -> list[_Step]:
        """Return the calls for the output gradients that exist; without that of Y if it was recorded."""
        leading = self._leading - {self._matrix} if recorded else self._leading
        if not leading:
            return []
        grads = {_new(self._op, name) + GRAD: at for at, name in enumerate(arrived)}
        rules = _rules(self._op, frozenset(arrived), leading, self._derivation.tables)
        steps = (_step(rule, leading, self._derivation.make, self._known, grads) for rule in rules)
        found = [step for step in steps if step.writes]
        if not found:
            raise BackwardError(
                f"operator {self._op.describe()} has no gradient with respect to the requested variables: set "
                "stop_gradient on its inputs if that is intended"
            )
        return found


@dataclass(frozen=True)
class Tape:
    """The values of one run of a loop's body, which `back` differentiates. Implements `ops.base.body.Tape`.

    Attributes:
        values: for each operator, a list with its values; see `Place`.
    """

    values: list[list[Any]]
    derivation: Derivation
    step: int

    def back(self, grads: dict[str, Any], wanted: frozenset[str], products: Products | None = None) -> None:
        """Backpropagate one run: replace, in `grads`, output gradients with input gradients."""
        products = products or {}
        for each, values in zip(self.derivation.backs(wanted), reversed(self.values), strict=True):
            if arrived := [name for name in each.writes if name in grads]:
                each.run(values, arrived, grads, products, self.step)


def _new(op: Operator, name: str) -> str:
    return name + _AFTER if name in op.reads else name


def _add(grads: dict[str, Any], name: str, value: Any) -> None:
    value = value if isinstance(value, TensorArray) else plain(value)
    old = grads.get(name)
    if type(old) is np.ndarray and type(value) is np.ndarray and old.shape == value.shape:
        grads[name] = old + value
    else:
        grads[name] = value if old is None else sum_([old, value])


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


def _step(
    grad_op: GradOp,
    required: frozenset[str],
    make: Maker,
    known: Mapping[str, int],
    grads: Mapping[str, int],
) -> _Step:
    definition = lookup(grad_op.type)
    targets: list[tuple[str, str]] = []
    outputs: dict[str, list[str]] = {}
    for slot, names in grad_op.outputs.items():
        outputs[slot] = []
        for at, name in enumerate(names):
            source = name.removesuffix(GRAD)
            # A variable may occur several times, and each occurrence has a part of its gradient.
            part = f"{name}@{slot}@{at}" if source in required else EMPTY
            outputs[slot].append(part)
            if part != EMPTY:
                targets.append((part, source))
    taken = {slot.name for slot in definition.inputs}
    inputs = {slot: list(names) for slot, names in grad_op.inputs.items() if slot in taken}
    optional = frozenset(
        name for slot in definition.inputs if slot.optional for name in inputs.get(slot.name, ())
    )
    op = Operator.make(grad_op.type, inputs, outputs, grad_op.attrs)
    call, numbers = make(op)
    step = _Step(call, len(numbers) + 3, [], [], [], [(numbers[part], source) for part, source in targets])
    for name in dict.fromkeys(op.reads):
        if name in grads:
            step.arrived.append((numbers[name], grads[name]))
        elif name in known:
            step.given.append((numbers[name], known[name]))
        elif name not in optional:
            step.zeros.append((numbers[name], known[name.removesuffix(GRAD)]))
    return step


@dataclass(frozen=True)
class CompiledBody:
    """The compiled form of a block: its calls over its own registers; register 0 holds the step."""

    calls: tuple[Callable[[list[Any]], None], ...]
    numbers: Mapping[str, int]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    ops: tuple[Operator, ...]
    derivation: Derivation

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
        registers, kept, before = self._registers(values, turn), list[list[Any]](), list[Any]()
        for at, (place, call) in enumerate(
            zip(self.compiled.derivation.places, self.compiled.recorded(), strict=True)
        ):
            if place.is_replaced:
                before = [registers[number] for number in place.reads]
            try:
                call(registers)
            except EndOfData:
                raise
            except Exception as error:
                raise self._failure(at, registers, error) from error
            kept.append(place.values(registers, before))
        self._finish(registers, values)
        return Tape(kept, self.compiled.derivation, within(self.step, turn))

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
