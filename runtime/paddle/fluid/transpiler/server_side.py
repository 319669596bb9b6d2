# SPDX-License-Identifier: Apache-2.0
"""Builds a server's programs: block 0 listens; one block per parameter slice merges gradients and updates the slice.

Variables with the parameter's size in the trainer's program have the slice's size in the server's program.

Delay compensation computes g' = g + g * g * (p - p_then), where p_then is the parameter value from which the trainer
computed g. Gradients that are selected rows are not compensated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.remote.compensation import TRAINER_ID, backup_name
from paddle.fluid.remote.distribution import WAITING
from paddle.fluid.transpiler.global_norm import NormGroup, append_sum_of_squares
from paddle.fluid.transpiler.growing import GrowingTable, save_tables, serve_table
from paddle.fluid.transpiler.placement import Placed, PlacedSlice, slices_at, written_by
from paddle.fluid.transpiler.separation import sliced_states
from paddle.graph.operator import EMPTY
from paddle.ops.base.dtypes import VarType


def server_program(
    origin: Block,
    endpoint: str,
    placed: Sequence[Placed],
    updates: Sequence[Operator],
    rates: Sequence[Operator],
    trainers: int,
    sync: bool,
    compensated: bool,
    tables: Sequence[GrowingTable],
    endpoints: Sequence[str],
    groups: Sequence[NormGroup],
) -> Program:
    """Build and return one server's program.

    Args:
        origin: block 0 of the program for one machine, which has all variables.
        rates: operators of the learning rate's schedule.
        endpoints: endpoints of all servers, which share the schedule.
        groups: gradients that are clipped by their norm over all servers.
    """
    server = _Server(origin, trainers, sync, compensated)
    mine = slices_at(placed, endpoint)
    server.declare(mine)
    if rates:
        server.add_rates(rates)
    number = endpoints.index(endpoint)
    server.add_norms(groups, mine, number)
    server.add_updates(updates, groups, mine)
    server.add_tables(tables, updates, number, len(endpoints))
    return server.listening(endpoint)


class _Server:
    """The program of one server while its blocks are built.

    Attributes:
        inputs: names under which trainers send.
        blocks: the blocks that run in every step, in this order.
        grad_to_block: "gradient:block", which runs when that gradient has arrived.
        total_to_block: "total:block", which runs when that total has arrived.
        saving: the block that saves the tables, or -1.
        sparse: "gradient:parameter" of the gradients that are selected rows.
    """

    def __init__(self, origin: Block, trainers: int, sync: bool, compensated: bool) -> None:
        self.origin, self.trainers, self.sync, self.compensated = origin, trainers, sync, compensated
        self.program = Program()
        self.program.random_seed = origin.program.random_seed
        self.block = self.program.global_block()
        self.merged = trainers if sync and trainers > 1 else 0
        self.delayed = trainers if compensated else 0
        self.parent = 0
        self.inputs: list[str] = []
        self.blocks: list[Block] = []
        self.sparse: list[str] = []
        self.grad_to_block: list[str] = []
        self.total_to_block: list[str] = []
        self.lookups: tuple[str, ...] = ()
        self.saving = -1

    def declare(self, mine: Sequence[tuple[Placed, PlacedSlice]]) -> None:
        """Add the variables of the slices, then the variables of their gradients, as in the original."""
        for each, one in mine:
            dtype = self.origin.var(each.param).dtype
            self.block.create_var(one.param.name, one.param.shape, dtype, persistable=True)
        for each, one in mine:
            self.inputs += _declare_gradients(self.block, self.origin, each, one, self.merged, self.delayed)
            if self.origin.is_sparse(each.grad):
                self.sparse.append(f"{one.grad}:{one.param.name}")

    def add_rates(self, rates: Sequence[Operator]) -> None:
        """Add the block that computes the learning rate, which is the parent of the update blocks."""
        self.blocks.append(_rate_block(self.program, self.origin, rates))
        self.parent = self.program.num_blocks - 1

    def add_norms(
        self, groups: Sequence[NormGroup], mine: Sequence[tuple[Placed, PlacedSlice]], number: int
    ) -> None:
        """Add a block per group, which merges gradients and sums their squares; `number` is this server's."""
        if groups:
            self.block.create_var(WAITING, (1,), "int64", persistable=True)
        for group in groups:
            members = [one for each, one in mine if each.param in group.squares]
            if not members:
                continue
            dtype = self.block.var(members[0].grad).dtype
            self.inputs.append(self.block.create_var(group.total, (1,), dtype).name)
            inner = self._new_block()
            for one in members:
                _merge(inner, one, self.merged)
            append_sum_of_squares(inner, group, members, number)
            self.grad_to_block.extend(f"{one.grad}:{inner.idx}" for one in members)

    def add_updates(
        self,
        updates: Sequence[Operator],
        groups: Sequence[NormGroup],
        mine: Sequence[tuple[Placed, PlacedSlice]],
    ) -> None:
        """Add a block per slice that updates it; the block of a slice in a norm group waits for the group's total."""
        for each, one in mine:
            inner = self._new_block()
            group = next((group for group in groups if each.param in group.squares), None)
            if group is None:
                _append_update(inner, self.origin, updates, each, one, self.merged, self.delayed)
                self.grad_to_block.append(f"{one.grad}:{inner.idx}")
                continue
            for op in group.factors:
                _declare(self.block, self.origin, op)
                inner.append_op(op.type, renamed(op.inputs, {}), renamed(op.outputs, {}), dict(op.attrs))
            own = [op for op in updates if op not in (*group.summing, *group.factors)]
            _append_update(inner, self.origin, own, each, one, 0, 0)
            self.total_to_block.append(f"{group.total}:{inner.idx}")

    def add_tables(
        self, tables: Sequence[GrowingTable], updates: Sequence[Operator], number: int, servers: int
    ) -> None:
        """Add the blocks of the distributed embeddings; this is server `number` of `servers`."""
        trainers, parent = self.trainers if self.sync else None, self.program.num_blocks - 1
        for table in tables:
            (update,) = (op for op in updates if op.inputs.get("Param") == (table.name,))
            added = serve_table(self.program, self.origin, table, update, number, servers, trainers, parent)
            self.inputs.extend(added.gradients)
            self.blocks.append(added.update)
            grad = table.grad if self.sync else added.gradients[0]
            self.grad_to_block.append(f"{grad}:{added.update.idx}")
            self.lookups += (added.lookup,)
        if tables:
            self.saving = save_tables(self.program, tables, parent)

    def listening(self, endpoint: str) -> Program:
        """Return the program, with the operator that listens."""
        if not self.blocks:
            self.blocks.append(self.program._create_block(0))
        self.program.current_block_idx = 0
        attrs: dict[str, Any] = {
            "optimize_blocks": tuple(each.idx for each in self.blocks),
            "endpoint": endpoint,
            "Fanin": self.trainers,
            "sync_mode": self.sync,
            "dc_asgd": self.compensated,
            "grad_to_block_id": tuple(self.grad_to_block),
            "total_to_block_id": tuple(self.total_to_block),
            "sparse_grad_to_param": tuple(self.sparse),
            "prefetch_var_name_to_block_id": self.lookups,
            "checkpint_block_id": self.saving,
        }
        self.block.append_op("listen_and_serv", {"X": self.inputs}, {}, attrs)
        return self.program

    def _new_block(self) -> Block:
        block = self.program._create_block(self.parent)
        self.blocks.append(block)
        return block


def _declare_gradients(
    block: Block, origin: Block, each: Placed, one: PlacedSlice, merged: int, compensated: int
) -> list[str]:
    """Add the gradients of a slice; return the names under which trainers send them.

    Args:
        merged: number of trainers whose gradients are merged; 0 means none.
        compensated: number of trainers whose delay is compensated; 0 means none.
    """
    dtype = origin.var(each.param).dtype
    kind = VarType.SELECTED_ROWS if origin.is_sparse(each.grad) else VarType.LOD_TENSOR
    block.create_var(one.grad, one.param.shape, dtype, persistable=True, type=kind)
    senders = [f"{one.grad}.trainer_{at}" for at in range(merged)]
    for name in senders:
        block.create_var(name, one.param.shape, dtype, type=kind)
    if compensated and kind == VarType.LOD_TENSOR:
        declare_backups(block, one.param.name, compensated)
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
    """Append the update of a parameter, applied to the slice; see `_declare_gradients`."""
    grad = one.grad
    if merged:
        _merge(block, one, merged)
    if compensated and not origin.is_sparse(each.grad):
        grad = compensate(block, one.param.name, grad, compensated)
    own = [op for op in updates if op.role_vars and op.role_vars[0] == each.param]
    if not merged and grad == one.grad and any(each.grad in op.writes for op in own):
        grad = _changeable(block, one)
    names = {name: one.own(name) for name in written_by(updates, each)}
    names |= {each.param: one.param.name, each.grad: grad}
    for op in own:
        _declare(block, origin, op, sliced_states(op), one.param.shape, names)
        block.append_op(op.type, renamed(op.inputs, names), renamed(op.outputs, names), dict(op.attrs))


def _changeable(block: Block, one: PlacedSlice) -> str:
    """Copy a gradient to a new variable, to which decay can be added, and return the variable's name."""
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
    """Add the variables of an operator to block 0, unless they exist or belong to the operator's own block."""
    outer = block.program.global_block()
    assert isinstance(outer, Block)
    for name in (*op.reads, *op.writes):
        here = names.get(name, name)
        if name in inner or outer.has_var(here):
            continue
        variable = origin.reach(name)
        kind = getattr(variable, "type", VarType.LOD_TENSOR)
        if not variable.persistable:  # a temporary: the operator that writes it determines its size
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
    """Return an operator's slots, with variables renamed by `names`."""
    return {
        slot: [name if name == EMPTY else names.get(name, name) for name in members]
        for slot, members in slots.items()
    }


def declare_backups(block: Block, param: str, trainers: int) -> None:
    """Declare, in block 0, one backup of a parameter per trainer."""
    variable = block.var(param)
    block.create_var(TRAINER_ID, (1,), "int64")
    for trainer in range(trainers):
        block.create_var(backup_name(param, trainer), variable.shape, variable.dtype, persistable=True)


def compensate(block: Block, param: str, grad: str, trainers: int) -> str:
    """Append the delay compensation of a gradient; return the name of the compensated gradient."""
    outer = block.program.global_block()
    assert isinstance(outer, Block)
    variable = outer.var(param)
    names = [f"{param}.local_bak", *(f"{grad}@DC_{step}" for step in ("DELAY", "SQUARE", "TERM", "OUT"))]
    for name in names:
        outer.create_var(name, variable.shape, variable.dtype)
    then, delay, square, term, out = names
    role = {"op_role": int(OpRole.OPTIMIZE)}
    backups = [backup_name(param, trainer) for trainer in range(trainers)]
    block.append_op("ref_by_trainer_id", {"X": backups, "TrainerId": TRAINER_ID}, {"Out": then}, role)
    block.append_op("elementwise_sub", {"X": param, "Y": then}, {"Out": delay}, role)
    block.append_op("elementwise_mul", {"X": grad, "Y": grad}, {"Out": square}, role)
    block.append_op("elementwise_mul", {"X": square, "Y": delay}, {"Out": term}, role)
    block.append_op("elementwise_add", {"X": grad, "Y": term}, {"Out": out}, role)
    return out


def begin_backups(startup: Block, server: Block) -> None:
    """Initialize each backup with its parameter's initial value."""
    for name in list(server.vars):
        param, mark, _ = name.rpartition(".trainer_")
        if mark and name.endswith("_bak"):
            startup.append_op("assign", {"X": param}, {"Out": name})
