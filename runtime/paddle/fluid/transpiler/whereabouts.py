# SPDX-License-Identifier: Apache-2.0
"""VarsDistributed: the locations of all persistable variables of a transpiled program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, overload

from paddle import graph
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable
from paddle.fluid.remote.local_writes import Part, ServedVariables
from paddle.fluid.transpiler.placement import Placed, PlacedSlice
from paddle.fluid.transpiler.separation import sliced_states
from paddle_node.contract.classes import dataclass


@dataclass(frozen=True)
class VarDistributed:
    """The location of one slice of a variable; `vtype` is Param, Optimizer or RemotePrefetch."""

    origin: graph.Variable
    slice: graph.Variable
    is_slice: bool
    block_id: int
    offset: int
    vtype: str
    endpoint: str


class VarsDistributed:
    """A table of the slices of all variables of a transpiled program."""

    def __init__(self) -> None:
        self.distributed_vars: list[VarDistributed] = []

    def add_distributed_var(
        self,
        origin_var: graph.Variable,
        slice_var: graph.Variable,
        is_slice: bool,
        block_id: int,
        offset: int,
        vtype: str,
        endpoint: str,
    ) -> None:
        """Add a slice of a variable to the table."""
        self.distributed_vars.append(
            VarDistributed(origin_var, slice_var, is_slice, block_id, offset, vtype, endpoint)
        )

    def get_distributed_var_by_slice(self, var_name: str) -> VarDistributed | None:
        """Return the slice with this name."""
        return next((each for each in self.distributed_vars if each.slice.name == var_name), None)

    def get_distributed_var_by_origin_and_ep(self, origin: str, endpoint: str) -> VarDistributed | None:
        """Return the slice of a variable on a server, or the first one if there are several."""
        found = (e for e in self.distributed_vars if e.origin.name == origin and e.endpoint == endpoint)
        return next(found, None)

    @overload
    def get_distributed_vars_by_vtypes(
        self, vtypes: Sequence[str], groupby: Literal[False] = False
    ) -> list[VarDistributed]: ...
    @overload
    def get_distributed_vars_by_vtypes(
        self, vtypes: Sequence[str], groupby: Literal[True]
    ) -> dict[str, list[VarDistributed]]: ...
    def get_distributed_vars_by_vtypes(
        self, vtypes: Sequence[str], groupby: bool = False
    ) -> list[VarDistributed] | dict[str, list[VarDistributed]]:
        """Return the slices of the given kinds; with `groupby`, grouped by variable name."""
        found = [each for each in self.distributed_vars if each.vtype in vtypes]
        if not groupby:
            return found
        grouped: dict[str, list[VarDistributed]] = {}
        for each in found:
            grouped.setdefault(each.origin.name, []).append(each)
        return grouped

    def get_distributed_vars_by_ep(self, endpoint: str, vtype: str | None = None) -> list[VarDistributed]:
        """Return the slices on a server."""
        return [
            each
            for each in self.distributed_vars
            if each.endpoint == endpoint and (vtype is None or each.vtype == vtype)
        ]

    def overview(self) -> str:
        """Format the table as text, one line per slice."""
        return "\n".join(
            f"{each.slice.name} {each.slice.shape} of {each.origin.name}, {each.vtype}, at {each.endpoint}"
            for each in self.distributed_vars
        )


PARAM, STATE, TABLE = "Param", "Optimizer", "RemotePrefetch"


def overview_of(
    origin: Block,
    placed: Sequence[Placed],
    tables: Collection[str],
    updates: Sequence[Operator],
    rates: Sequence[Operator],
    endpoints: Sequence[str],
) -> VarsDistributed:
    """Build and return the table of all slices of a transpiled program, with their servers.

    Args:
        origin: block 0 of the program for one machine, which has all variables.
        tables: tables that trainers do not receive.
        updates: operators of all updates; their state is placed with their parameter's slices.
        rates: operators of the learning rate's schedule; their state is on every server that updates a parameter.
        endpoints: endpoints of these servers; the schedule of any other server may not advance, because it gets no
            gradients.
    """
    overview = VarsDistributed()
    servers = {endpoint: Program().global_block() for endpoint in endpoints}

    def note(whole: Variable, name: str, kind: str, one: PlacedSlice | None, endpoint: str) -> None:
        shape = whole.shape if one is None else one.param.shape
        part = servers[endpoint].create_var(name, shape, whole.dtype, persistable=True)
        is_slice, index, offset = (
            (False, 0, 0) if one is None else (one.param.count > 1, one.param.index, one.param.offset)
        )
        overview.add_distributed_var(whole, part, is_slice, index, offset, kind, endpoint)

    for each in placed:
        kind = TABLE if each.param in tables else PARAM
        states = _states_of(origin, each.param, updates)
        for one in each.slices:
            note(origin.var(each.param), one.param.name, kind, one, one.endpoint)
            for name, is_sliced in states.items():
                note(origin.var(name), one.own(name), STATE, one if is_sliced else None, one.endpoint)
    for name in dict.fromkeys(name for op in rates for name in op.writes):
        variable = origin.find(name)
        if isinstance(variable, Variable) and variable.persistable:
            for endpoint in endpoints:
                note(variable, name, STATE, None, endpoint)
    return overview


def _states_of(origin: Block, param: str, updates: Sequence[Operator]) -> Mapping[str, bool]:
    """Return the state variables of a parameter's update, and whether each is cut like the parameter."""
    states: dict[str, bool] = {}
    for op in updates:
        if op.role_vars and op.role_vars[0] == param:
            sliced = sliced_states(op)
            for name in op.writes:
                if name != param and name in op.reads and origin.reach(name).persistable:
                    states[name] = states.get(name, False) or name in sliced
    return states


def served_variables(
    overview: VarsDistributed,
    origin: Block,
    updates: Sequence[Operator],
    tables: Sequence[str],
    endpoints: Sequence[str],
) -> ServedVariables:
    """Return the variables on servers that a trainer needs: those in the overview, and those that updates only read."""
    parts: dict[str, dict[tuple[str, str], Part]] = {}
    homes: dict[str, dict[str, None]] = {table: dict.fromkeys(endpoints) for table in tables}
    for each in overview.distributed_vars:
        part = Part(each.endpoint, each.slice.name, each.offset if each.is_slice else 0, each.slice.shape)
        parts.setdefault(each.origin.name, {})[part.endpoint, part.name] = part
        homes.setdefault(each.origin.name, {})[each.endpoint] = None
    for op in updates:
        for name in op.reads if op.role_vars else ():
            variable = origin.find(name)
            if variable is not None and variable.persistable and name not in homes:
                for endpoint in homes.get(op.role_vars[0], ()):
                    parts.setdefault(name, {})[endpoint, name] = Part(endpoint, name, 0, variable.shape)
    by_rows = dict.fromkeys(each.origin.name for each in overview.distributed_vars if each.vtype == TABLE)
    return ServedVariables(
        {name: tuple(each.values()) for name, each in parts.items()},
        tuple(tables),
        tuple(endpoints),
        tuple(by_rows),
    )
