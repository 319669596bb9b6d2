# SPDX-License-Identifier: Apache-2.0
"""A server's programs: block 0 listens, one block a parameter slice merges gradients and updates.

Variables that the trainer's program keeps at a parameter's size are made at the slice's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.program.var_type import VarType
from paddle.fluid.remote.distribution import WAITING
from paddle.fluid.transpiler import compensation
from paddle.fluid.transpiler.global_norm import NormGroup, append_sum_of_squares
from paddle.fluid.transpiler.growing import GrowingTable, serve_table
from paddle.fluid.transpiler.placement import Placed, PlacedSlice, slices_at, written_by
from paddle.fluid.transpiler.separation import sliced_states
from paddle.graph.operator import EMPTY


def server_program(
    origin: Block,
    endpoint: str,
    placed: Sequence[Placed],
    updates: Sequence[Operator],
    rates: Sequence[Operator],
    trainers: int,
    sync: bool,
    compensated: bool = False,
    table: GrowingTable | None = None,
    endpoints: Sequence[str] = (),
    groups: Sequence[NormGroup] = (),
) -> Program:
    """Return the program of one server.

    Args:
        origin: block 0 of the program for one machine, which knows all variables.
        endpoint: of the server.
        placed: all parameters.
        updates: operators of all updates.
        rates: operators of the learning rate's schedule.
        trainers: how many send gradients.
        sync: wait for all of them in every step.
        compensated: correct gradients for delay.
        table: the distributed embedding.
        endpoints: of all servers, which share it.
        groups: gradients that are clipped by their norm over all servers.
    """
    program = Program()
    program.random_seed = origin.program.random_seed
    block = program.global_block()
    mine = slices_at(placed, endpoint)
    merged = trainers if sync and trainers > 1 else 0
    inputs = [
        name
        for each, one in mine
        for name in _declare_slice(block, origin, each, one, merged, trainers if compensated else 0)
    ]
    blocks: list[Block] = []
    if rates:
        blocks.append(_rate_block(program, origin, rates))
    parent = program.num_blocks - 1
    grad_to_block: list[str] = []
    total_to_block: list[str] = []
    if groups:
        block.create_var(WAITING, (1,), "int64", persistable=True)
    for group in groups:
        members = [one for each, one in mine if each.param in group.squares]
        if members:
            inputs.append(block.create_var(group.total, (1,), block.var(members[0].grad).dtype).name)
            inner = program._create_block(parent)
            blocks.append(inner)
            for one in members:
                _merge(inner, one, merged)
            append_sum_of_squares(inner, group, members, endpoints.index(endpoint))
            grad_to_block.extend(f"{one.grad}:{inner.idx}" for one in members)
    for each, one in mine:
        inner = program._create_block(parent)
        blocks.append(inner)
        within = next((group for group in groups if each.param in group.squares), None)
        if within is not None:
            for op in within.factors:
                _declare(block, origin, op)
                inner.append_op(op.type, renamed(op.inputs, {}), renamed(op.outputs, {}), dict(op.attrs))
            own = [op for op in updates if op not in (*within.summing, *within.factors)]
            _append_update(inner, origin, own, each, one, 0, 0)
            total_to_block.append(f"{within.total}:{inner.idx}")
            continue
        _append_update(inner, origin, updates, each, one, merged, trainers if compensated else 0)
        grad_to_block.append(f"{one.grad}:{inner.idx}")
    lookups: tuple[str, ...] = ()
    saving = -1
    if table is not None:
        (update,) = (op for op in updates if op.inputs.get("Param") == (table.name,))
        server = endpoints.index(endpoint)
        added = serve_table(
            program, origin, table, update, server, len(endpoints), trainers if sync else None
        )
        inputs.extend(added.gradients)
        blocks.append(added.update)
        grad_to_block.append(f"{table.grad if sync else added.gradients[0]}:{added.update.idx}")
        lookups, saving = (added.lookup,), added.save
    if not blocks:
        blocks.append(program._create_block(0))
    program.current_block_idx = 0
    block.append_op(
        "listen_and_serv",
        {"X": inputs},
        {},
        {
            "optimize_blocks": tuple(each.idx for each in blocks),
            "endpoint": endpoint,
            "Fanin": trainers,
            "sync_mode": sync,
            "dc_asgd": compensated,
            "grad_to_block_id": tuple(grad_to_block),
            "total_to_block_id": tuple(total_to_block),
            "prefetch_var_name_to_block_id": lookups,
            "checkpint_block_id": saving,
        },
    )
    return program


def _declare_slice(
    block: Block, origin: Block, each: Placed, one: PlacedSlice, merged: int, compensated: int
) -> list[str]:
    """Add a slice and its gradients; return the names that trainers send gradients under.

    Args:
        merged: of how many trainers gradients are merged; 0: of none.
        compensated: for how many delay is corrected; 0: for none.
    """
    dtype = origin.var(each.param).dtype
    block.create_var(one.param.name, one.param.shape, dtype, persistable=True)
    kind = VarType.SELECTED_ROWS if origin.is_sparse(each.grad) else VarType.LOD_TENSOR
    block.create_var(one.grad, one.param.shape, dtype, persistable=True, type=kind)
    senders = [f"{one.grad}.trainer_{at}" for at in range(merged)]
    for name in senders:
        block.create_var(name, one.param.shape, dtype, type=kind)
    if compensated and kind == VarType.LOD_TENSOR:
        compensation.declare(block, one.param.name, compensated)
    return senders or [one.grad]


def _merge(block: Block, one: PlacedSlice, trainers: int) -> None:
    # In the order of trainers, not of arrival: runs are reproducible.
    names = [f"{one.grad}.trainer_{at}" for at in range(trainers)]
    role = {"op_role": int(OpRole.OPTIMIZE)}
    block.append_op("sum", {"X": names}, {"Out": one.grad}, role)
    block.append_op("scale", {"X": one.grad}, {"Out": one.grad}, {"scale": 1.0 / trainers, **role})


def _append_update(
    block: Block,
    origin: Block,
    updates: Sequence[Operator],
    each: Placed,
    one: PlacedSlice,
    merged: int,
    compensated: int,
) -> None:
    """Append what updates a parameter, with the slice in its place; see `_declare_slice`."""
    grad = one.grad
    if merged:
        _merge(block, one, merged)
    if compensated and not origin.is_sparse(each.grad):
        grad = compensation.compensate(block, one.param.name, grad, compensated)
    own = [op for op in updates if op.role_vars and op.role_vars[0] == each.param]
    if not merged and grad == one.grad and any(each.grad in op.output_names for op in own):
        grad = _changeable(block, one)
    names = {name: one.own(name) for name in written_by(updates, each)}
    names |= {each.param: one.param.name, each.grad: grad}
    for op in own:
        _declare(block, origin, op, sliced_states(op), one.param.shape, names)
        block.append_op(op.type, renamed(op.inputs, names), renamed(op.outputs, names), dict(op.attrs))


def _changeable(block: Block, one: PlacedSlice) -> str:
    """Give a gradient that decay is added to another name: what is fed is not computed."""
    name = f"{one.grad}@DECAYED"
    block.create_var(name, one.param.shape, block.reach(one.grad).dtype)
    block.append_op("assign", {"X": one.grad}, {"Out": name}, {"op_role": int(OpRole.OPTIMIZE)})
    return name


def _declare(
    block: Block,
    origin: Block,
    op: Operator,
    sliced: Collection[str] = (),
    shape: tuple[int, ...] = (),
    names: Mapping[str, str] = MappingProxyType({}),
    inner: Collection[str] = (),
) -> None:
    """Add what an operator reads and writes to block 0, unless it is there or belongs to the operator's own block."""
    outer = block.program.global_block()
    assert isinstance(outer, Block)
    for name in (*op.input_names, *op.output_names):
        here = names.get(name, name)
        if name in inner or outer.has_var(here):
            continue
        variable = origin.reach(name)
        kind = getattr(variable, "type", VarType.LOD_TENSOR)
        if not variable.persistable:  # a temporary: the operator that writes it says its size
            outer.create_var(here, None, variable.dtype, persistable=True, type=kind)
        else:
            size = shape if name in sliced else variable.shape
            outer.create_var(here, size, variable.dtype, persistable=True, type=kind)


def _rate_block(program: Program, origin: Block, rates: Sequence[Operator]) -> Block:
    block = program._create_block(0)
    for op in rates:
        _declare(block, origin, op)
        attrs: dict[str, Any] = dict(op.attrs)
        if "sub_block" in attrs:
            attrs["sub_block"] = _copied_body(program, block, origin, attrs["sub_block"])
        block.append_op(op.type, renamed(op.inputs, {}), renamed(op.outputs, {}), attrs)
    return block


def _copied_body(program: Program, parent: Block, origin: Block, idx: int) -> int:
    source = origin.program.blocks[idx]
    body = program._create_block(parent.idx)
    for variable in source.vars.values():
        body._clone_variable(variable, force_persistable=False)
    for op in source.ops:
        assert isinstance(op, Operator)
        _declare(body, source, op, inner=source.vars)  # type: ignore[arg-type]
        body.append_op(op.type, renamed(op.inputs, {}), renamed(op.outputs, {}), dict(op.attrs))
    program.current_block_idx = parent.idx
    return body.idx


def renamed(slots: Mapping[str, tuple[str, ...]], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the slots of an operator, with the names that `names` gives in place of its own."""
    return {
        slot: [name if name == EMPTY else names.get(name, name) for name in members]
        for slot, members in slots.items()
    }
