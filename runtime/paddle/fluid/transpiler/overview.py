# SPDX-License-Identifier: Apache-2.0
"""VarsDistributed: which variable lies where, in which slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddle.graph.variable import Variable


@dataclass(frozen=True)
class VarDistributed:
    """One slice of a variable on one server; `vtype` is Param, Optimizer or RemotePrefetch."""

    origin: Variable
    slice: Variable
    is_slice: bool
    block_id: int
    offset: int
    vtype: str
    endpoint: str


class VarsDistributed:
    """All slices of all variables."""

    def __init__(self) -> None:
        self.distributed_vars: list[VarDistributed] = []

    def add_distributed_var(
        self,
        origin_var: Variable,
        slice_var: Variable,
        is_slice: bool,
        block_id: int,
        offset: int,
        vtype: str,
        endpoint: str,
    ) -> None:
        """Note one."""
        self.distributed_vars.append(
            VarDistributed(origin_var, slice_var, is_slice, block_id, offset, vtype, endpoint)
        )

    def get_distributed_var_by_slice(self, var_name: str) -> VarDistributed | None:
        """Return the slice of that name."""
        return next((each for each in self.distributed_vars if each.slice.name == var_name), None)

    def get_distributed_var_by_origin_and_ep(self, origin: str, endpoint: str) -> VarDistributed | None:
        """Return the slice of a variable on a server; the first one where it has several."""
        found = (e for e in self.distributed_vars if e.origin.name == origin and e.endpoint == endpoint)
        return next(found, None)

    def get_distributed_vars_by_vtypes(self, vtypes: Sequence[str]) -> list[VarDistributed]:
        """Return the slices of these kinds."""
        return [each for each in self.distributed_vars if each.vtype in vtypes]

    def get_distributed_vars_by_ep(self, endpoint: str, vtype: str | None = None) -> list[VarDistributed]:
        """Return the slices on a server."""
        return [
            each
            for each in self.distributed_vars
            if each.endpoint == endpoint and (vtype is None or each.vtype == vtype)
        ]

    def overview(self) -> str:
        """Return a line for each slice."""
        return "\n".join(
            f"{each.slice.name} {each.slice.shape} of {each.origin.name}, {each.vtype}, at {each.endpoint}"
            for each in self.distributed_vars
        )
