# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping by the global norm when the parameters are on several servers.

In synchronous training, a server averages the trainers' gradients and sends each trainer the sum of squares of its
slices. Every trainer adds the sums of all servers, obtains the same total, and sends it back. When the first total
arrives, a server clips, decays and updates. In asynchronous training, a trainer clips by the norm of its own gradients,
because an update uses only these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import OP_ROLE, OP_ROLE_VAR, Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable
from paddle.fluid.transpiler.placement import Placed, PlacedSlice
from paddle_node.contract.classes import dataclass


@dataclass(frozen=True)
class NormGroup:
    """A group of parameters whose gradients are clipped together.

    Attributes:
        total: variable of the sum of squares of all gradients.
        squares: parameter -> variable of its gradient's sum of squares.
        summing: operators that compute the sums of squares.
        factors: operators that compute the scaling factor from the total.
        scaling: operators that multiply the gradients by the factor.
    """

    total: str
    squares: Mapping[str, str]
    summing: tuple[Operator, ...]
    factors: tuple[Operator, ...]
    scaling: tuple[Operator, ...]

    @property
    def common(self) -> frozenset[str]:
        """The operators that run once for all parameters of the group."""
        return frozenset({self.total, *(name for op in self.factors for name in op.writes)})

    def total_of(self, server: int) -> str:
        """Return the name of the variable with one server's part of the total."""
        return f"{self.total}.pserver_{server}"


def norm_groups(updates: Sequence[Operator]) -> list[NormGroup]:
    """Return the norm groups in the operators of all updates."""
    squares = {
        op.outputs["Out"][0]: op for op in updates if op.type == "squared_l2_norm" and len(op.role_vars) == 2
    }
    sums = [op for op in updates if op.type == "sum" and all(name in squares for name in op.inputs["X"])]
    return [_group(updates, op, [squares[name] for name in op.inputs["X"]]) for op in sums]


def clip_on_trainers(program: Program, groups: Sequence[NormGroup]) -> None:
    """Move the clipping of these groups from the servers' updates to the trainer's program."""
    ops = [op for group in groups for op in (*group.summing, *group.factors, *group.scaling)]
    block = program.global_block()
    for at, op in enumerate(block.ops):
        if op in ops:
            block._replace_op(at, op.with_attrs(**{OP_ROLE: int(OpRole.DIST), OP_ROLE_VAR: ()}))


def servers_of(group: NormGroup, placed: Sequence[Placed], endpoints: Sequence[str]) -> list[int]:
    """Return the numbers of the servers that have slices of a group's parameters."""
    having = {one.endpoint for each in placed if each.param in group.squares for one in each.slices}
    return [at for at, endpoint in enumerate(endpoints) if endpoint in having]


def exchange_totals(
    block: Block,
    groups: Sequence[NormGroup],
    placed: Sequence[Placed],
    endpoints: Sequence[str],
    trainer_id: int,
    after: Variable,
) -> list[Variable]:
    """Append the operators that add up the servers' sums and send back the totals; return the sent variables.

    Args:
        block: a trainer's block, after the barrier of its gradients.
    """
    sent = []
    for group in groups:
        servers = servers_of(group, placed, endpoints)
        epmap = tuple(endpoints[at] for at in servers)
        total = block.var(group.total)
        parts = [block.create_var(group.total_of(at), total.shape, total.dtype) for at in servers]
        attrs = {"epmap": epmap, "trainer_id": trainer_id, OP_ROLE: int(OpRole.RPC)}
        block.append_op("recv", {"X": after}, {"Out": parts}, attrs)
        block.append_op("sum", {"X": parts}, {"Out": total}, {OP_ROLE: int(OpRole.DIST)})
        dummy = block.create_var(f"{group.total}@SENT", type=after.type)
        block.append_op("send", {"X": [total] * len(servers)}, {"Out": dummy}, attrs)
        sent.append(dummy)
    return sent


def append_sum_of_squares(block: Block, group: NormGroup, mine: Sequence[PlacedSlice], server: int) -> None:
    """Append operators to a server's block that sum the squares of its slices' gradients, already averaged."""
    outer = block.program.global_block()
    assert isinstance(outer, Block)
    role = {OP_ROLE: int(OpRole.OPTIMIZE)}
    squares = []
    for one in mine:
        square = block.create_var(f"{one.grad}@SQUARE", (1,), outer.var(one.grad).dtype)
        block.append_op("squared_l2_norm", {"X": one.grad}, {"Out": square}, role)
        squares.append(square)
    total = outer.create_var(group.total_of(server), (1,), squares[0].dtype, persistable=True)
    block.append_op("sum", {"X": squares}, {"Out": total}, role)


def _group(updates: Sequence[Operator], summing: Operator, squares: Sequence[Operator]) -> NormGroup:
    (total,) = summing.outputs["Out"]
    constants = {name for op in updates if not op.reads for name in op.writes}
    made, computed, scaling = {total}, [], []
    for op in updates:
        if made.isdisjoint(op.reads) or not op.writes:
            continue
        if made | constants >= set(op.reads):
            computed.append(op)
            made.update(op.writes)
        else:
            scaling.append(op)
    read = {name for op in computed for name in op.reads} & constants
    constant = [op for op in updates if not read.isdisjoint(op.writes)]
    return NormGroup(
        total,
        {op.role_vars[0]: op.outputs["Out"][0] for op in squares},
        (*squares, summing),
        (*constant, *computed),
        tuple(scaling),
    )
