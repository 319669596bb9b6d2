# SPDX-License-Identifier: Apache-2.0
"""Plan: a program compiled for one set of feeds and fetches into a list of calls over numbered registers.

Names, slots and attributes are resolved here, once. Operators whose results nobody reads are left out, and a
register is cleared right after its last reader. Register 0 holds the step number, 1 is always None (absent
optional inputs), 2 swallows outputs that nobody wants.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from paddle import backend
from paddle.graph.errors import FeedError
from paddle.graph.fuse import fused
from paddle.graph.lod import carriers, sharing
from paddle.graph.operator import EMPTY, Operator
from paddle.graph.program import Program

STEP, NOTHING, UNWANTED = 0, 1, 2

Registers: TypeAlias = list[Any]
Call: TypeAlias = Callable[[Registers], None]
Index: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What a run does: load, call, store, fetch.

    Attributes:
        calls: in order; each reads and writes registers.
        ops: the operator of each call and its position in the block, for messages.
        registers: how many there are.
        numbers: variable name -> register.
        loads: persistable variables to read from the scope first.
        stores: persistable variables to write back at the end.
    """

    calls: tuple[Call, ...]
    ops: tuple[tuple[int, Operator], ...]
    registers: int
    numbers: Mapping[str, int]
    loads: tuple[str, ...]
    stores: tuple[str, ...]


def compile_plan(
    program: Program,
    feeds: Sequence[str],
    fetches: Sequence[str],
    seed: int,
    xp: Any,
    with_lod: Sequence[str] = (),
) -> Plan:
    """Compile block 0.

    Args:
        program: not changed.
        feeds: names the caller will feed.
        fetches: names the caller wants back.
        seed: for random operators that have no seed of their own.
        xp: the array library of the device.
        with_lod: those of the feeds that come with LoD.

    Raises:
        FeedError: an operator or a fetch reads a variable that is neither fed, persistable nor computed
            before.
    """
    block = program.global_block()
    persistable = {name for name, variable in block.vars.items() if variable.persistable}
    live = fused(_live_ops(block.ops, persistable, set(fetches), set(feeds)), {*fetches, *persistable})
    loads = _check_reads(program, live, set(feeds), fetches)
    stores = tuple(
        sorted({name for _, op in live for name in op.output_names if name in persistable} - set(feeds))
    )
    numbers: dict[str, int] = {}
    for name in [
        *feeds,
        *loads,
        *(name for _, op in live for name in (*op.input_names, *op.output_names)),
        *fetches,
    ]:
        numbers.setdefault(name, len(numbers) + 3)
    kept = {*feeds, *loads, *stores, *fetches}
    last_use = {name: at for at, (_, op) in enumerate(live) for name in (*op.input_names, *op.output_names)}
    read = ({name for _, op in live for name in op.input_names} | set(fetches) | persistable) - set(feeds)
    levels = {name: block.vars[name].lod_level for name in persistable}
    sequential = carriers((op for _, op in live), with_lod, levels)
    calls = []
    for at, (_, op) in enumerate(live):
        names = dict.fromkeys((*op.input_names, *op.output_names))
        dead = tuple(numbers[name] for name in names if last_use[name] == at and name not in kept)
        calls.append(_bind(op, numbers, read, sequential, dead, seed, xp))
    return Plan(tuple(calls), tuple(live), len(numbers) + 3, numbers, loads, stores)


def _live_ops(
    ops: Sequence[Operator], persistable: set[str], fetches: set[str], feeds: set[str]
) -> list[tuple[int, Operator]]:
    """Return the operators that a fetch or a persistable variable depends on, with their positions.

    What is fed is not computed: feeding a value in the middle of a program leaves out what leads to it.
    """
    needed = fetches - feeds
    live = []
    for position in reversed(range(len(ops))):
        op = ops[position]
        names = op.output_names
        if not needed.isdisjoint(names) or not (persistable - feeds).isdisjoint(names):
            live.append((position, op))
            needed.update(name for name in op.input_names if name not in feeds)
    return live[::-1]


def _check_reads(
    program: Program, ops: Sequence[tuple[int, Operator]], feeds: set[str], fetches: Sequence[str]
) -> tuple[str, ...]:
    """Return the persistable variables that are read before anything writes them."""
    block = program.global_block()
    known = set(feeds)
    loads: list[str] = []

    def need(name: str, who: str) -> None:
        if name in known:
            return
        if not (block.has_var(name) and block.var(name).persistable):
            raise FeedError(
                f"variable {name!r}, read by {who}, is neither fed, persistable nor computed before it"
            )
        known.add(name)
        loads.append(name)

    for position, op in ops:
        for slot, names in op.inputs.items():
            for name in names:
                if name != EMPTY:
                    need(name, f"operator {position} {op.type!r} in slot {slot!r}")
        known.update(op.output_names)
    for name in fetches:
        need(name, "fetch_list")
    return tuple(loads)


def _bind(
    op: Operator,
    numbers: Mapping[str, int],
    read: set[str],
    sequential: set[str],
    dead: tuple[int, ...],
    seed: int,
    xp: Any,
) -> Call:
    definition = op.definition
    inputs: list[Index] = []
    for slot in definition.inputs:
        indices = tuple(NOTHING if name == EMPTY else numbers[name] for name in op.inputs[slot.name])
        inputs.append(indices if slot.many else indices[0] if indices else NOTHING)
    outputs: list[Index] = []
    needs = set()
    for slot in definition.outputs:
        wanted = [name in read for name in op.outputs[slot.name]]
        if any(wanted):
            needs.add(slot.name)
        indices = tuple(
            numbers[name] if want else UNWANTED
            for name, want in zip(op.outputs[slot.name], wanted, strict=True)
        )
        outputs.append(indices if slot.many else indices[0] if indices else UNWANTED)
    keywords = {name: op.attrs[name] for name in definition.keywords if name in op.attrs}
    if "needs" in definition.keywords:
        keywords["needs"] = frozenset(needs)
    if "xp" in definition.keywords:
        keywords["xp"] = xp
    kernel = partial(definition.kernel, **keywords) if keywords else definition.kernel
    if not sequential.isdisjoint(op.input_names):
        kernel = sharing(kernel, definition)
    if definition.is_random:
        return _drawing(kernel, _random_key(op, seed), inputs, outputs, dead)
    return _calling(kernel, inputs, outputs, dead)


def _random_key(op: Operator, seed: int) -> tuple[int, int]:
    # By name and not by position: the same numbers come out when operators around it are added or pruned.
    own = op.attrs.get("seed", 0)
    return (own if isinstance(own, int) and own else seed), zlib.crc32(op.output_names[0].encode())


def _drawing(
    kernel: Callable[..., Any],
    key: tuple[int, int],
    inputs: list[Index],
    outputs: list[Index],
    dead: tuple[int, ...],
) -> Call:
    def draw(step: int, *arrays: Any) -> Any:
        return kernel(*arrays, rng=backend.rng(*key, step))

    return _calling(draw, [STEP, *inputs], outputs, dead)


def _calling(
    kernel: Callable[..., Any], inputs: list[Index], outputs: list[Index], dead: tuple[int, ...]
) -> Call:
    """Return a closure over register numbers; the common forms have one of their own, for speed."""
    if (
        len(outputs) != 1
        or isinstance(outputs[0], tuple)
        or any(isinstance(index, tuple) for index in inputs)
    ):
        return _calling_any(kernel, inputs, outputs, dead)
    out = outputs[0]
    if len(inputs) == 1 and isinstance(inputs[0], int):
        only = inputs[0]

        def call_one(r: Registers) -> None:
            r[out] = kernel(r[only])
            for index in dead:
                r[index] = None

        return call_one

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
