# SPDX-License-Identifier: Apache-2.0
"""Builds the trainer's programs, which send gradients as soon as they are computed and finally receive parameters.

For some tables, a trainer fetches the rows of its batch on demand, instead of all rows after every step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from paddle.fluid.errors import FluidError
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import OP_ROLE, OP_ROLE_VAR, Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.fluid.transpiler.global_norm import NormGroup, exchange_totals, servers_of
from paddle.fluid.transpiler.placement import Placed
from paddle.graph import unique_name

_LEARNING_RATE = (OpRole.LR_SCHED, OpRole.LR_SCHED | OpRole.OPTIMIZE)


def rewrite_main(
    program: Program,
    placed: Sequence[Placed],
    fetched: Collection[str],
    endpoints: Sequence[str],
    trainer_id: int,
    sync: bool,
    sent: Sequence[Variable] = (),
    groups: Sequence[NormGroup] = (),
    watching: Sequence[Operator] = (),
) -> None:
    """Change a main program in place to send gradients to servers and receive parameters from them.

    Args:
        program: the program after `minimize`.
        placed: all parameters; all their gradients are sent.
        fetched: parameters that are received as a whole in every step.
        sync: whether servers wait for all trainers.
        groups: groups of gradients whose norm is computed after they are sent.
        watching: operators that follow the received parameters.
    """
    block = program.global_block()
    dummies = {each.param: _send(block, each, trainer_id) for each in placed}
    arrived = [*dummies.values(), *sent]
    if sync:
        barrier = _barrier(block, arrived, endpoints, trainer_id)
        if groups:
            totals = exchange_totals(block, groups, placed, endpoints, trainer_id, barrier)
            asked = {at for group in groups for at in servers_of(group, placed, endpoints)}
            barrier = _barrier(block, totals, [endpoints[at] for at in sorted(asked)], trainer_id)
        dummies = dict.fromkeys(dummies, barrier)
    whole = [each for each in placed if each.param in fetched]
    received = receive(block, whole, trainer_id, dummies)
    if sync:
        fetch_barrier(block, received, endpoints, trainer_id)
    join(block, whole)
    block.ops = [*(op for op in block.ops if op not in watching), *watching]


def rewrite_startup(
    program: Program, placed: Sequence[Placed], endpoints: Sequence[str], trainer_id: int
) -> None:
    """Change a startup program in place, so that the trainer starts with the servers' values."""
    block = program.global_block()
    received = receive(block, placed, trainer_id, {})
    fetch_barrier(block, received, endpoints, trainer_id)
    join(block, placed)


def keep_watching(program: Program, watching: Sequence[Operator]) -> list[Operator]:
    """Assign these operators, and the schedule operators that they need, to the trainers; return all of them."""
    block, read, kept = program.global_block(), set[str](), []
    for at in reversed(range(len(block.ops))):
        op = block.ops[at]
        assert isinstance(op, Operator)
        is_watching = op in watching
        if is_watching or (op.role in _LEARNING_RATE and not read.isdisjoint(op.writes)):
            read.update(op.reads)
            own = op.with_attrs(**{OP_ROLE: int(OpRole.DIST), OP_ROLE_VAR: ()})
            block._replace_op(at, own)
            kept += [own] * is_watching
    return kept[::-1]


def remove_updates(program: Program) -> None:
    """Remove the updates and the learning-rate operators, which run on the servers, from a trainer's program."""
    block = program.global_block()
    gone = (OpRole.OPTIMIZE, *_LEARNING_RATE)
    kept = []
    for op in block.ops:
        if not (isinstance(op, Operator) and op.role in gone):
            kept.append(op)
            continue
        for name in op.writes:
            block.reach(
                name
            ).elsewhere = (
                "the parameter servers compute it, and trainers do not receive it: remove it from fetch_list"
            )
    block.ops = kept
    program.touch()


def learning_rate_ops(block: Block, updates: Sequence[Operator]) -> list[Operator]:
    """Return the operators that compute learning rates: marked ones, and operators that these and the updates need.

    A schedule that a script creates without `_lr_schedule_guard` is not marked, and also remains in the trainer's
    program.

    Raises:
        FluidError: a learning rate depends on a variable that servers do not have.
    """
    ops = [op for op in block.ops if isinstance(op, Operator)]
    found = [op for op in ops if op.role in _LEARNING_RATE]
    wanted = {name for op in (*updates, *found) for name in {*op.reads} - {*op.role_vars}}
    wanted -= {each.name for each in block.all_parameters()}
    for op in reversed(ops):
        if op.role == OpRole.FORWARD and not wanted.isdisjoint(op.writes):
            found.append(op)
            wanted.update(op.reads)
    made: set[str] = set()
    schedule = [op for op in ops if any(op is each for each in found)]
    for op in schedule:
        for name in op.reads:
            variable = block.reach(name)
            if name not in made and (isinstance(variable, Parameter) or not variable.persistable):
                raise FluidError(
                    f"the learning rate depends on {name!r} through operator {op.describe()}, but servers "
                    "compute learning rates without data or other parameters; compute it from the step "
                    "number"
                )
        made.update(op.writes)
    return schedule


def receive(
    block: Block, placed: Sequence[Placed], trainer_id: int, after: Mapping[str, Variable]
) -> list[Variable]:
    """Append one recv operator per parameter, sorted by name; return the received variables."""
    received = []
    for each in sorted(placed, key=lambda one: one.param):
        parts = [_part(block, each, at) for at in range(len(each.slices))]
        waited = after.get(each.param)
        block.append_op(
            "recv",
            {"X": [waited] if waited is not None else []},
            {"Out": parts},
            {
                "epmap": tuple(one.endpoint for one in each.slices),
                "trainer_id": trainer_id,
                "op_role": int(OpRole.RPC),
                "op_role_var": (each.param, each.slices[0].sent if len(each.slices) == 1 else each.grad),
            },
        )
        received.extend(parts)
    return received


def fetch_barrier(
    block: Block, received: Sequence[Variable], endpoints: Sequence[str], trainer_id: int
) -> None:
    """Append the operator that marks the end of receiving."""
    attrs = {"endpoints": tuple(endpoints), "trainer_id": trainer_id, "op_role": int(OpRole.RPC)}
    block.append_op("fetch_barrier", {"X": list(received)}, {"Out": list(received)}, attrs)


def join(block: Block, placed: Sequence[Placed]) -> None:
    """Append operators that concatenate the slices of each parameter that was cut."""
    for each in sorted(placed, key=lambda one: one.param):
        if len(each.slices) > 1:
            parts = [one.param.name for one in each.slices]
            attrs = {"axis": 0, "op_role": int(OpRole.DIST)}
            block.append_op("concat", {"X": parts}, {"Out": each.param}, attrs)


def _send(block: Block, placed: Placed, trainer_id: int) -> Variable:
    """Insert the sending of one gradient after the operator that writes it; return its dummy output."""
    sparse = block.is_sparse(placed.grad)
    at = 1 + max(
        index
        for index, op in enumerate(block.ops)
        if placed.grad in op.writes and isinstance(op, Operator) and op.role != OpRole.OPTIMIZE
    )
    names = [one.sent for one in placed.slices]
    if len(names) > 1:
        gradient = block.var(placed.grad)
        for one in placed.slices:
            block.create_var(one.sent, one.param.shape, gradient.dtype, type=gradient.type)
        heights = tuple(one.param.shape[0] for one in placed.slices)
        op_type, attr = ("split_selected_rows", "height_sections") if sparse else ("split_byref", "sections")
        attrs = {attr: heights, "op_role": int(OpRole.DIST)}
        block._insert_op(at, op_type, {"X": placed.grad}, {"Out": names}, attrs)
        at += 1
    elif names[0] != placed.grad:
        block._rename_var(placed.grad, names[0])
    dummy = _control(block)
    block._insert_op(
        at,
        "send",
        {"X": names},
        {"Out": dummy},
        {
            "epmap": tuple(one.endpoint for one in placed.slices),
            "trainer_id": trainer_id,
            "op_role": int(OpRole.RPC),
            "op_role_var": (placed.param, names[0] if len(names) == 1 else placed.grad),
        },
    )
    return dummy


def _barrier(
    block: Block, arrived: Sequence[Variable], endpoints: Sequence[str], trainer_id: int
) -> Variable:
    """Append a barrier after everything that was sent to these servers, and return its dummy output."""
    barrier = _control(block)
    attrs = {"endpoints": tuple(endpoints), "trainer_id": trainer_id, "op_role": int(OpRole.RPC)}
    block.append_op("send_barrier", {"X": list(arrived)}, {"Out": barrier}, attrs)
    return barrier


def _part(block: Block, placed: Placed, at: int) -> Variable:
    if len(placed.slices) == 1:
        return block.var(placed.param)
    one = placed.slices[at].param
    return block.create_var(one.name, one.shape, block.var(placed.param).dtype)


def _control(block: Block) -> Variable:
    return block.create_var(unique_name.generate("__control_var@"), type=VarType.RAW)


_LOOKUP, _PREFETCH = "lookup_table", "distributed_lookup_table"
_GRADIENTS = ("lookup_table_grad",)


def prefetchable(program: Program, params: Collection[str]) -> frozenset[str]:
    """Return the parameters that are sparse tables and are read only by lookups, so that rows can be prefetched."""
    block = program.global_block()
    tables = {
        op.inputs["W"][0] for op in block.ops if op.type == _LOOKUP and op.attrs.get("remote_prefetch", False)
    }
    whole: set[str] = set()
    for each in program.blocks:
        for op in each.ops:
            assert isinstance(op, Operator)
            looks_up = op.type == _LOOKUP and each is block and op.attrs["remote_prefetch"]
            if not looks_up and op.type not in _GRADIENTS and op.role != OpRole.OPTIMIZE:
                whole.update(op.reads)
    return frozenset(tables & set(params) - whole)


def prefetch_rows(block: Block, placed: Placed, trainer_id: int) -> None:
    """Replace a table's lookup operators, in place, with one that fetches the rows from servers.

    The new operator takes the position of the first lookup. A later lookup whose ids are not available at that position
    gets its own operator.
    """
    while True:
        found = [
            at for at, op in enumerate(block.ops) if op.type == _LOOKUP and op.inputs["W"] == (placed.param,)
        ]
        if not found:
            return
        first = block.ops[found[0]]
        written: set[str] = set()
        together = []
        for at in range(found[0], found[-1] + 1):
            op = block.ops[at]
            same = at in found and op.attrs["padding_idx"] == first.attrs["padding_idx"]
            if same and written.isdisjoint(op.inputs["Ids"]):
                together.append(at)
            written.update(op.writes)
        _replace(block, placed, together, trainer_id)


def use_own_tables(program: Program) -> None:
    """Undo `prefetch_rows`, in place, so that rows are looked up in the process that runs the program."""
    block = program.global_block()
    for at in reversed([at for at, op in enumerate(block.ops) if op.type == _PREFETCH]):
        op = block.ops[at]
        block._remove_op(at)
        for ids, out in zip(op.inputs["Ids"], op.outputs["Outputs"], strict=True):
            attrs = {"is_sparse": True, "padding_idx": op.attrs["padding_idx"]}
            block._insert_op(at, _LOOKUP, {"W": op.inputs["W"][0], "Ids": ids}, {"Out": out}, attrs)


def _replace(block: Block, placed: Placed, positions: Sequence[int], trainer_id: int) -> None:
    ops = [block.ops[at] for at in positions]
    for at in reversed(positions):
        block._remove_op(at)
    block._insert_op(
        positions[0],
        _PREFETCH,
        {"Ids": [op.inputs["Ids"][0] for op in ops], "W": placed.param},
        {"Outputs": [op.outputs["Out"][0] for op in ops], "WOut": placed.param},
        {
            "table_names": tuple(one.param.name for one in placed.slices),
            "height_sections": tuple(one.param.shape[0] for one in placed.slices),
            "endpoints": tuple(one.endpoint for one in placed.slices),
            "trainer_id": trainer_id,
            "padding_idx": ops[0].attrs["padding_idx"],
        },
    )
