# SPDX-License-Identifier: Apache-2.0
"""A server's startup program: each variable's first value, at the size that the variable has on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program
from paddle.fluid.transpiler import compensation
from paddle.fluid.transpiler.placement import Placed, PlacedSlice, slices_at, written_by
from paddle.fluid.transpiler.server_side import renamed

_SHAPED = ("gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random")


def server_startup(
    startup: Program,
    server: Program,
    placed: Sequence[Placed],
    updates: Sequence[Operator],
    endpoint: str,
    table: str | None = None,
) -> Program:
    """Return the program that gives a server's variables their first values.

    Args:
        startup: the startup program for one machine, as it was before transpiling.
        server: the server's main program.
        placed: all parameters.
        updates: operators of all updates.
        endpoint: of the server.
        table: the distributed embedding, which begins without rows.
    """
    program = Program()
    program.random_seed = startup.random_seed
    block = program.global_block()
    known = server.global_block()
    for variable in known.vars.values():
        if variable.persistable:
            block._clone_variable(variable)
    slices: list[tuple[PlacedSlice | None, dict[str, str]]] = []
    for each, one in slices_at(placed, endpoint):
        own = {name: one.own(name) for name in written_by(updates, each)}
        slices.append((one, {**own, each.param: one.param.name}))
    origin = startup.global_block()
    for op in origin.ops:
        assert isinstance(op, Operator)
        if table in op.output_names:
            continue
        mine = [each for each in slices if not each[1].keys().isdisjoint(op.output_names)]
        for at, names in mine or [(None, {})]:
            if all(known.has_var(names.get(name, name)) for name in op.output_names):
                _append(block, origin, op, names, at)
    compensation.begin(block, known)
    if table is not None:
        block.append_op("fake_init", {}, {"Out": table}, {"shape": known.var(table).shape})
    return program


def _append(
    block: Block, origin: Block, op: Operator, names: Mapping[str, str], at: PlacedSlice | None
) -> None:
    """Append an operator that gives first values to what a slice needs; `names` says what is called how for it."""
    attrs: dict[str, object] = dict(op.attrs)
    wholes: dict[str, str] = {}
    for name in op.output_names:
        here = names.get(name, name)
        shape = block.var(here).shape
        if op.type in _SHAPED:
            attrs["shape"] = shape
        elif at is not None and shape != origin.var(name).shape:  # it can but give the whole
            whole = block.create_var(f"{here}@WHOLE", origin.var(name).shape, origin.var(name).dtype)
            wholes[here] = whole.name
    outputs = renamed(op.outputs, names)
    outputs = {slot: [wholes.get(name, name) for name in members] for slot, members in outputs.items()}
    block.append_op(op.type, renamed(op.inputs, {}), outputs, attrs)
    for here, whole_name in wholes.items():
        assert at is not None
        end = at.param.first_row + at.param.shape[0]
        rows = block.create_var(f"{here}@ROWS", at.param.shape, block.var(here).dtype)
        span = {"axes": (0,), "starts": (at.param.first_row,), "ends": (end,)}
        block.append_op("slice", {"Input": whole_name}, {"Out": rows}, span)
        block.append_op("assign", {"X": rows}, {"Out": here})
