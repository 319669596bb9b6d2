# SPDX-License-Identifier: Apache-2.0
"""Binder: compiles operators to calls over numbered registers.

Register 0 holds the step number. Register 1 is always None, for absent optional inputs. Register 2 receives outputs
that are never read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np

from paddle import backend
from paddle.graph.backward import allowed
from paddle.graph.block import Block
from paddle.graph.body import CompiledBody, Derivation, Place
from paddle.graph.in_place import NOT_EXPOSED, Exposed, copying, unsharing
from paddle.graph.lod import sharing
from paddle.graph.operator import EMPTY, Operator
from paddle.graph.program import Program
from paddle.ops.base.body import Body
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.registry import NO_SLOTS, attribute_of
from paddle.ops.base.selected_rows import SelectedRows
from paddle_node.contract.classes import dataclass, field, replace

STEP, NOTHING, UNWANTED = 0, 1, 2
# As a set of variables that may have sequences: all variables.
ALL: Collection[str] = ("*",)

Registers: TypeAlias = list[Any]
Call: TypeAlias = Callable[[Registers], None]
Index: TypeAlias = int | tuple[int, ...]
Rooms: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Binder:
    """Compiles operators to calls: maps variable names to registers, and binds the other arguments of kernels."""

    program: Program
    numbers: Mapping[str, int]
    read: Collection[str]
    sequential: Collection[str]
    feeds: frozenset[str]
    seed: int
    xp: Any
    remote: Any = None
    rooms: Rooms = field(default_factory=dict)

    def call(
        self, op: Operator, dead: tuple[int, ...], look_out: Exposed, spent: frozenset[str] = NO_SLOTS
    ) -> Call:
        """Compile the call of one operator.

        Args:
            look_out: the outputs that must not share memory with certain inputs.
            spent: the input slots whose arrays the kernel may overwrite.
        """
        definition = op.definition
        inputs: list[Index] = []
        for slot in definition.inputs:
            indices = tuple(NOTHING if name == EMPTY else self.numbers[name] for name in op.inputs[slot.name])
            inputs.append(indices if slot.many else indices[0] if indices else NOTHING)
        outputs, needs = self._outputs(op)
        kernel = self._kernel(op, needs, spent)
        if look_out.late:
            kernel = unsharing(
                kernel,
                [slot.name in look_out.late for slot in definition.outputs],
                [slot.name in look_out.sources for slot in definition.inputs],
            )
        if definition.is_random:
            return _drawing(kernel, _random_key(op, self.seed), inputs, outputs, dead)
        if "body" in definition.keywords:
            return _calling(_looping(kernel, self._body(op)), [STEP, *inputs], outputs, dead)
        return _calling(kernel, inputs, outputs, dead)

    def _outputs(self, op: Operator) -> tuple[list[Index], frozenset[str]]:
        outputs: list[Index] = []
        needs = set()
        for slot in op.definition.outputs:
            wanted = [name in self.read for name in op.outputs[slot.name]]
            if any(wanted):
                needs.add(slot.name)
            indices = tuple(
                self.numbers[name] if want else UNWANTED
                for name, want in zip(op.outputs[slot.name], wanted, strict=True)
            )
            outputs.append(indices if slot.many else indices[0] if indices else UNWANTED)
        return outputs, frozenset(needs)

    def _kernel(self, op: Operator, needs: frozenset[str], spent: frozenset[str]) -> Callable[..., Any]:
        definition = op.definition
        # The keywords that a kernel may declare.
        given = {
            **{name: op.attrs[at] for name in definition.keywords if (at := attribute_of(name)) in op.attrs},
            "attrs": op.attrs,
            "needs": needs,
            "spent": spent,
            "xp": self.xp,
            "remote": self.remote,
            "room": _room_of(op, self.rooms),
            "runs": op.runs,
            "names": {**op.inputs, **op.outputs},
        }
        keywords = {name: given[name] for name in definition.keywords if name in given}
        kernel = with_keywords(definition.kernel, keywords)
        if self.xp is not np:
            kernel = _moving(kernel, self.xp)
        if definition.in_place:
            kernel = copying(kernel, op, self.feeds)
        if self.sequential is not ALL and not any(name in self.sequential for name in op.reads):
            return kernel
        return sharing(kernel, definition, op.attrs)

    def _body(self, op: Operator) -> CompiledBody:
        idx = op.attrs["sub_block"]
        assert isinstance(idx, int)
        return compile_body(self.program.blocks[idx], self.seed, self.xp)


def compile_body(block: Block, seed: int, xp: Any) -> CompiledBody:
    """Compile the body of an operator so that all operators run and all their results are retained."""
    written: dict[str, None] = {}
    reads: dict[str, None] = {}
    for op in block.ops:
        reads.update((name, None) for name in op.reads if name not in written)
        written.update((name, None) for name in op.writes)
    numbers = {name: number + 3 for number, name in enumerate({**reads, **written})}
    # As if everything was fed, so that no array is changed: variables outside, or values of earlier iterations, may
    # share its memory.
    make = Binder(block.program, numbers, numbers, ALL, frozenset(numbers), seed, xp)
    calls = tuple(make.call(op, (), NOT_EXPOSED) for op in block.ops)
    smooth = frozenset(name for name in numbers if allowed(block.reach(name), set()))
    bounded = {name: block.reach(name).error_bounds for name in smooth}
    bounds = {name: each for name, each in bounded.items() if each is not None}
    tables = block.tables_within(block.ops)
    make_gradient = partial(_over_registers, seed=seed, xp=xp)
    derivation = Derivation(_places(block.ops, numbers), smooth, make_gradient, bounds, tables)
    return CompiledBody(calls, numbers, tuple(reads), tuple(written), tuple(block.ops), derivation)


def _places(ops: Sequence[Operator], numbers: Mapping[str, int]) -> tuple[Place, ...]:
    places, later = [], set[str]()
    for op in reversed(ops):
        is_replaced = not later.isdisjoint(op.writes) or not later.union(op.writes).isdisjoint(op.reads)
        reads, writes = (tuple(numbers[name] for name in names) for names in (op.reads, op.writes))
        places.append(Place(op, reads, writes, is_replaced))
        later.update(op.writes)
    return tuple(places[::-1])


def with_keywords(kernel: Callable[..., Any], keywords: Mapping[str, Any]) -> Callable[..., Any]:
    """Bind keyword values to a kernel, if possible as defaults of a copy, which is faster to call."""
    if not keywords or not isinstance(kernel, FunctionType):
        return partial(kernel, **keywords) if keywords else kernel
    code = kernel.__code__
    named = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    if not set(named).issuperset(keywords):
        return partial(kernel, **keywords)
    bound = FunctionType(code, kernel.__globals__, kernel.__name__, kernel.__defaults__, kernel.__closure__)
    bound.__kwdefaults__ = {**(kernel.__kwdefaults__ or {}), **keywords}
    return bound


def onto(value: Any, xp: Any) -> Any:
    """Convert the arrays of a value to the library `xp`; lists and tuples are copied."""
    if isinstance(value, np.ndarray | np.generic):
        return value if xp is np else xp.asarray(value)
    if isinstance(value, LoDArray):
        data = onto(value.data, xp)
        return value if data is value.data else LoDArray.unchecked(data, value.lod)
    if isinstance(value, SelectedRows):
        rows, values = onto(value.rows, xp), onto(value.values, xp)
        same = rows is value.rows and values is value.values
        return value if same else replace(value, rows=rows, values=values)
    if type(value) in (list, tuple):
        return type(value)(onto(each, xp) for each in value)
    return backend.to_host(value) if xp is np and backend.array_module(value) is not np else value


def _moving(kernel: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """Return the kernel wrapped to move its results to the GPU, since some kernels return host arrays."""
    return lambda *values, **drawn: onto(kernel(*values, **drawn), xp)


def _room_of(op: Operator, rooms: Rooms) -> Callable[[str], Any]:
    return lambda slot: rooms.get(op.outputs[slot][0])


def _over_registers(op: Operator, seed: int, xp: Any) -> tuple[Call, Mapping[str, int]]:
    """Compile an operator without a body to a call over registers of its own; return it and the registers."""
    names = dict.fromkeys((*op.reads, *op.writes))
    numbers = {name: number + 3 for number, name in enumerate(names)}
    return Binder(Program(), numbers, numbers, ALL, frozenset(), seed, xp).call(op, (), NOT_EXPOSED), numbers


def _looping(kernel: Callable[..., Any], body: CompiledBody) -> Callable[..., Any]:
    def loop(step: int, *arrays: Any) -> Any:
        bound: Body = body.at(step)
        return kernel(*arrays, body=bound)

    return loop


def _random_key(op: Operator, seed: int) -> tuple[int, int]:
    # Seeded by name instead of position: the numbers do not change when operators around it are added or pruned.
    own = op.attrs.get("seed", 0)
    return (own if isinstance(own, int) and own else seed), zlib.crc32(op.writes[0].encode())


def _drawing(
    kernel: Callable[..., Any],
    key: tuple[int, int],
    inputs: list[Index],
    outputs: list[Index],
    dead: tuple[int, ...],
) -> Call:
    def draw(step: int, *arrays: Any) -> Any:
        return kernel(*arrays, rng=backend.rng(*key, step, step >> 64))

    return _calling(draw, [STEP, *inputs], outputs, dead)


def _calling(
    kernel: Callable[..., Any], inputs: list[Index], outputs: list[Index], dead: tuple[int, ...]
) -> Call:
    """Return a call of a kernel as a closure over register numbers.

    Common signatures have specialized closures, for speed.
    """
    if (
        len(outputs) != 1
        or isinstance(outputs[0], tuple)
        or any(isinstance(index, tuple) for index in inputs)
    ):
        return _calling_any(kernel, inputs, outputs, dead)
    out = outputs[0]
    if 1 <= len(inputs) <= 2 and len(dead) <= 1:
        first, second = inputs[0], inputs[-1]
        over = dead[0] if dead else UNWANTED

        def call_one(r: Registers) -> None:
            r[out] = kernel(r[first])  # type: ignore[index]
            r[over] = None

        def call_two(r: Registers) -> None:
            r[out] = kernel(r[first], r[second])  # type: ignore[index]
            r[over] = None

        return call_one if len(inputs) == 1 else call_two

    def call_some(r: Registers) -> None:
        r[out] = kernel(*[r[index] for index in inputs])  # type: ignore[index]
        for index in dead:
            r[index] = None

    return call_some


def _calling_any(
    kernel: Callable[..., Any], inputs: list[Index], outputs: list[Index], dead: tuple[int, ...]
) -> Call:
    single = len(outputs) == 1

    def call(r: Registers) -> None:
        result = kernel(*[r[i] if isinstance(i, int) else [r[j] for j in i] for i in inputs])
        for index, value in zip(outputs, (result,) if single else result, strict=True):
            if isinstance(index, int):
                r[index] = value
            else:
                for each, part in zip(index, value, strict=True):
                    r[each] = part
        r[UNWANTED] = None
        for index in dead:
            r[index] = None

    return call
