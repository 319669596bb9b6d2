# SPDX-License-Identifier: Apache-2.0
"""A server's programs: block 0 listens, one block a parameter slice merges gradients and updates.

Variables that the trainer's program keeps at a parameter's size are made at the slice's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paddle.fluid.block import Block
from paddle.fluid.errors import FluidError
from paddle.fluid.operator import Operator, OpRole
from paddle.fluid.program import Program
from paddle.fluid.transpiler import compensation
from paddle.fluid.transpiler.growing import GrowingTable, serve_table
from paddle.fluid.transpiler.placement import Placed, PlacedSlice
from paddle.fluid.var_type import VarType
from paddle.graph.operator import EMPTY

# Update -> its slots that have the parameter's shape.
_SLICED_SLOTS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adam": ("Moment1", "Moment2"),
    "adagrad": ("Moment",),
    "adamax": ("Moment", "InfNorm"),
    "momentum": ("Velocity",),
    "lars_momentum": ("Velocity",),
    "rmsprop": ("Moment", "MeanSquare", "MeanGrad"),
    "decayed_adagrad": ("Moment",),
    "ftrl": ("SquaredAccumulator", "LinearAccumulator"),
}
_SHAPED_INITIALISERS = ("gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random")


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
    """
    program = Program()
    program.random_seed = origin.program.random_seed
    block = program.global_block()
    mine = _local(placed, endpoint)
    merging = sync and trainers > 1
    inputs: list[str] = []
    for param, one in mine.items():
        block.create_var(one.param.name, one.param.shape, origin.var(param).dtype, persistable=True)
        kind = VarType.SELECTED_ROWS if origin.is_sparse(_raw(placed, param)) else VarType.LOD_TENSOR
        dtype = origin.var(param).dtype
        block.create_var(one.grad, one.param.shape, dtype, persistable=True, type=kind)
        senders = [f"{one.grad}.trainer_{at}" for at in range(trainers)] if merging else [one.grad]
        for name in senders if merging else ():
            block.create_var(name, one.param.shape, dtype, type=kind)
        inputs.extend(senders)
        if compensated and kind == VarType.LOD_TENSOR:
            compensation.declare(block, one.param.name, trainers)
    blocks: list[Block] = []
    if rates:
        blocks.append(_rate_block(program, origin, rates))
    parent = program.num_blocks - 1
    grad_to_block = []
    for param, one in mine.items():
        inner = program._create_block(parent)
        blocks.append(inner)
        if merging:
            _merge(inner, one, trainers)
        own = [op for op in updates if op.role_vars and op.role_vars[0] == param]
        raw, grad = _raw(placed, param), one.grad
        if compensated and not origin.is_sparse(raw):
            grad = compensation.compensate(inner, one.param.name, grad, trainers)
        for op in own:
            _append_update(inner, origin, op, {param: one.param.name, raw: grad}, one)
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
            "prefetch_var_name_to_block_id": lookups,
            "checkpint_block_id": saving,
        },
    )
    return program


def server_startup(
    startup: Program, server: Program, placed: Sequence[Placed], endpoint: str, table: str | None = None
) -> Program:
    """Return the program that gives a server's variables their first values.

    Args:
        startup: the startup program for one machine, as it was before transpiling.
        server: the server's main program.
        placed: all parameters.
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
    local = {param: one.param.name for param, one in _local(placed, endpoint).items()}
    for op in startup.global_block().ops:
        written = [local.get(name, name) for name in op.output_names]
        if table in written or not all(known.has_var(name) for name in written):
            continue
        attrs: dict[str, object] = dict(op.attrs)
        if op.type in _SHAPED_INITIALISERS:
            attrs["shape"] = known.var(written[0]).shape
        outputs = {slot: [local.get(n, n) for n in names] for slot, names in op.outputs.items()}
        block.append_op(op.type, {slot: list(names) for slot, names in op.inputs.items()}, outputs, attrs)
    compensation.begin(block, known)
    if table is not None:
        block.append_op("fake_init", {}, {"Out": table}, {"shape": known.var(table).shape})
    return program


def sliced_states(op: Operator) -> frozenset[str]:
    """Return what an update keeps that is cut like its parameter."""
    return frozenset(name for slot in _SLICED_SLOTS.get(op.type, ()) for name in op.inputs.get(slot, ()))


def _local(placed: Sequence[Placed], endpoint: str) -> dict[str, PlacedSlice]:
    """Return parameter -> its slice on a server, in the order of names.

    Raises:
        FluidError: a server would have two slices of one parameter.
    """
    mine: dict[str, PlacedSlice] = {}
    for each in sorted(placed, key=lambda one: one.param):
        here = [one for one in each.slices if one.endpoint == endpoint]
        if len(here) > 1:
            raise FluidError(
                f"{endpoint} would have {len(here)} slices of {each.param!r}: a server can have one"
            )
        if here:
            mine[each.param] = here[0]
    return mine


def _raw(placed: Sequence[Placed], param: str) -> str:
    return next(each.grad for each in placed if each.param == param)


def _merge(block: Block, one: PlacedSlice, trainers: int) -> None:
    # In the order of trainers, not of arrival: runs are reproducible.
    names = [f"{one.grad}.trainer_{at}" for at in range(trainers)]
    role = {"op_role": int(OpRole.OPTIMIZE)}
    block.append_op("sum", {"X": names}, {"Out": one.grad}, role)
    block.append_op("scale", {"X": one.grad}, {"Out": one.grad}, {"scale": 1.0 / trainers, **role})


def _append_update(
    block: Block, origin: Block, op: Operator, names: Mapping[str, str], one: PlacedSlice
) -> None:
    """Append one operator of an update, with the slice in place of the parameter; `names` says what is called how."""
    is_update = "Param" in op.inputs
    if is_update and op.type not in _SLICED_SLOTS:
        raise FluidError(f"optimizer {op.type!r} is not supported for distributed training")
    _declare(block, origin, op, names, sliced_states(op), one.param.shape)
    block.append_op(op.type, _renamed(op.inputs, names), _renamed(op.outputs, names), dict(op.attrs))


def _declare(
    block: Block,
    origin: Block,
    op: Operator,
    names: Mapping[str, str],
    sliced: Collection[str],
    shape: tuple[int, ...],
) -> None:
    outer = block.program.global_block()
    assert isinstance(outer, Block)
    for name in (*op.input_names, *op.output_names):
        if name in names or outer.has_var(name):
            continue
        variable = origin.reach(name)
        kind = getattr(variable, "type", VarType.LOD_TENSOR)
        if not variable.persistable:  # a temporary: the operator that writes it says its size
            outer.create_var(name, None, variable.dtype, persistable=True, type=kind)
        else:
            size = shape if name in sliced else variable.shape
            outer.create_var(name, size, variable.dtype, persistable=True, type=kind)


def _rate_block(program: Program, origin: Block, rates: Sequence[Operator]) -> Block:
    block = program._create_block(0)
    for op in rates:
        _declare(block, origin, op, {}, set(), ())
        attrs: dict[str, Any] = dict(op.attrs)
        if "sub_block" in attrs:
            attrs["sub_block"] = _copied_body(program, block, origin, attrs["sub_block"])
        block.append_op(op.type, _renamed(op.inputs, {}), _renamed(op.outputs, {}), attrs)
    return block


def _copied_body(program: Program, parent: Block, origin: Block, idx: int) -> int:
    source = origin.program.blocks[idx]
    body = program._create_block(parent.idx)
    for variable in source.vars.values():
        body._clone_variable(variable, force_persistable=False)
    for op in source.ops:
        assert isinstance(op, Operator)
        _declare(body, source, op, dict.fromkeys(source.vars, ""), set(), ())  # type: ignore[arg-type]
        body.append_op(op.type, _renamed(op.inputs, {}), _renamed(op.outputs, {}), dict(op.attrs))
    program.current_block_idx = parent.idx
    return body.idx


def _renamed(slots: Mapping[str, tuple[str, ...]], names: Mapping[str, str]) -> dict[str, list[str]]:
    return {
        slot: [name if name == EMPTY else names.get(name, name) for name in members]
        for slot, members in slots.items()
    }
