# SPDX-License-Identifier: Apache-2.0
"""Builds a server's startup program, which sets the initial value of each variable at its size on the server.

Values that do not depend on the size are created at the slice's size. All other values are created in full, by all
operators that they depend on, and then cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program
from paddle.fluid.transpiler.placement import Placed, PlacedSlice, slices_at, written_by
from paddle.fluid.transpiler.server_side import begin_backups, renamed

_SHAPED = ("gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random")


def server_startup(
    startup: Program,
    server: Program,
    placed: Sequence[Placed],
    updates: Sequence[Operator],
    endpoint: str,
    tables: Sequence[str] = (),
) -> Program:
    """Build the startup program of a server, which sets the initial values of its variables.

    Args:
        startup: the startup program for one machine, before transpiling.
        tables: the distributed embeddings, which start without rows.
    """
    program = Program()
    program.random_seed = startup.random_seed
    block = program.global_block()
    known = server.global_block()
    for variable in known.vars.values():
        block._clone_variable(variable, force_persistable=False)
    slices: list[tuple[PlacedSlice, dict[str, str]]] = []
    for each, one in slices_at(placed, endpoint):
        own = {name: one.own(name) for name in written_by(updates, each)}
        slices.append((one, {**own, each.param: one.param.name}))
    origin = startup.global_block()
    ops = [op for op in origin.ops if isinstance(op, Operator) and not {*tables} & {*op.writes}]
    places = {name: _places(name, slices, known) for op in ops for name in op.writes}
    drawn = _drawn_anywhere(ops)
    whole = _leading_to({name for name in places if places[name] and name not in drawn}, ops)
    for op in ops:
        if op in whole:
            _append_whole(block, origin, op)
        elif drawn.issuperset(op.writes):
            for name in op.writes:
                for here, _ in places[name]:
                    attrs = {**op.attrs, "shape": block.var(here).shape}
                    block.append_op(op.type, {}, renamed(op.outputs, {name: here}), attrs)
    for name in dict.fromkeys(name for op in whole for name in op.writes):
        for here, at in places[name]:
            _cut(block, _whole(block, origin, name), here, at)
    begin_backups(block, known)
    for table in tables:
        block.append_op("fake_init", {}, {"Out": table}, {"shape": known.var(table).shape})
    return program


def _places(
    name: str, slices: Sequence[tuple[PlacedSlice, Mapping[str, str]]], known: Block
) -> list[tuple[str, PlacedSlice | None]]:
    """Return the name of each slice of a variable that a server has; empty if the server has none."""
    cut: list[tuple[str, PlacedSlice | None]] = [(names[name], at) for at, names in slices if name in names]
    return [each for each in cut or [(name, None)] if known.has_var(each[0])]


def _drawn_anywhere(ops: Sequence[Operator]) -> set[str]:
    """Return the variables whose initial value can be drawn at a slice's size.

    Such a variable is written by one operator without inputs, and read by no operator.
    """
    writers: dict[str, list[Operator]] = {}
    for op in ops:
        for name in op.writes:
            writers.setdefault(name, []).append(op)
    read = {name for op in ops for name in op.reads}
    return {
        name
        for name, (first, *others) in writers.items()
        if not others and first.type in _SHAPED and not first.reads and name not in read
    }


def _leading_to(names: set[str], ops: Sequence[Operator]) -> list[Operator]:
    """Return the operators that some variables' values depend on, in program order."""
    needed, found = set(names), []
    for op in reversed(ops):
        if not needed.isdisjoint(op.writes):
            found.append(op)
            needed.update(op.reads)
    return found[::-1]


def _append_whole(block: Block, origin: Block, op: Operator) -> None:
    names = {name: _whole(block, origin, name) for name in (*op.reads, *op.writes)}
    block.append_op(op.type, renamed(op.inputs, names), renamed(op.outputs, names), dict(op.attrs))


def _whole(block: Block, origin: Block, name: str) -> str:
    """Return the name of the whole variable: its own name, unless a slice on this server has that name."""
    variable = origin.var(name)
    if block.has_var(name) and block.var(name).shape != variable.shape:
        name += "@WHOLE"
    if not block.has_var(name):
        block.create_var(name, variable.shape, variable.dtype)
    return name


def _cut(block: Block, whole: str, here: str, at: PlacedSlice | None) -> None:
    """Set a slice to its rows of the whole variable."""
    if here == whole:
        return
    rows, shape = whole, block.var(here).shape
    if at is not None and shape != block.var(whole).shape:
        end = at.param.first_row + at.param.shape[0]
        span = {"axes": (0,), "starts": (at.param.first_row,), "ends": (end,)}
        rows = block.create_var(f"{here}@ROWS", shape, block.var(here).dtype).name
        block.append_op("slice", {"Input": whole}, {"Out": rows}, span)
    block.append_op("assign", {"X": rows}, {"Out": here})
