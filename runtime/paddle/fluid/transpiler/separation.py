# SPDX-License-Identifier: Apache-2.0
"""Checks that updates can be split over servers and over the slices of a parameter.

`transpile` rejects unsupported updates in every process, because trainers would keep waiting if only a server failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle.fluid.errors import FluidError
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator
from paddle.fluid.transpiler.global_norm import NormGroup
from paddle.optim.rules.table import FLUID

_RULES = {row.op_type: row for _, row in FLUID}

# What these compute for each slice of a gradient or parameter is a slice of what they compute for the whole.
_SLICED = {op_type for op_type, row in _RULES.items() if row.served == "slices"} | {
    "assign", "clip", "elementwise_add", "elementwise_mul", "elementwise_sub", "fill_constant", "scale", "sign", "sum",
}  # fmt: skip


def whole_params(
    block: Block, updates: Sequence[Operator], groups: Sequence[NormGroup] = ()
) -> frozenset[str]:
    """Return the parameters that must not be cut: a slice's update would differ, or has states that cannot be cut."""
    shared = [op for group in groups for op in (*group.summing, *group.factors)]
    whole = set[str]()
    for op in updates:
        if not op.role_vars or op in shared:
            continue
        param = op.role_vars[0]
        states = {*op.reads, *op.writes} - {param} - sliced_states(op)
        if op.type not in _SLICED or any(_is_state(block, name, param) for name in states):
            whole.add(param)
    return frozenset(whole)


def watching(block: Block, updates: Sequence[Operator]) -> list[Operator]:
    """Return the updates that change neither a parameter nor its state, such as averages of parameters."""
    needed = {each.name for each in block.all_parameters()}
    while True:
        read = {name for op in updates if not needed.isdisjoint(op.writes) for name in op.reads}
        if read <= needed:
            return [op for op in updates if needed.isdisjoint(op.writes)]
        needed |= read


def check_apart(
    block: Block,
    pairs: Mapping[str, str],
    updates: Sequence[Operator],
    rates: Sequence[Operator],
    groups: Sequence[NormGroup] = (),
) -> None:
    """Check that servers support the updates, and that no update needs a parameter that may be on another server.

    Global norms of gradients are allowed, because servers receive them.

    Args:
        pairs: parameter -> the gradient that trainers send.

    Raises:
        FluidError: an update is not supported.
    """
    read = {name for op in updates if op.role_vars for name in op.reads}
    for op in updates:
        for name in read.intersection(() if op.role_vars else op.writes):
            variable = block.find(name)
            if variable is not None and variable.persistable:
                raise FluidError(
                    f"operator {op.type!r} changes {name!r} outside the update of a parameter, so no server would run "
                    "it: append it within program._optimized_guard([parameter, gradient])"
                )
    common = {name for op in rates for name in op.writes}.union(*(group.common for group in groups))
    shared = [op for group in groups for op in (*group.summing, *group.factors)]
    for param, grad in pairs.items():
        own = [op for op in updates if op.role_vars and op.role_vars[0] == param and op not in shared]
        known = {param, grad, *common}
        for op in own:
            for name in op.reads:
                variable = block.find(name)
                if name in known or variable is None or variable.persistable:
                    continue
                if name in op.role_vars:
                    raise FluidError(
                        f"{param!r} is updated with two gradients, {grad!r} and {name!r}, but its server receives "
                        "one: add the losses and call minimize once"
                    )
                raise FluidError(
                    f"the update of {param!r} needs {name!r}, which is computed from other parameters that may be on "
                    "other servers: the only such value that a server knows is the global norm of all parameters. "
                    "Remove this dependency"
                )
            known.update(op.writes)


def _is_state(block: Block, name: str, param: str) -> bool:
    variable = block.find(name)
    return (
        variable is not None and variable.persistable and variable.shape == block.reach(param).shape != (1,)
    )


def sliced_states(op: Operator) -> frozenset[str]:
    """Return the state variables of an update that are cut into slices like its parameter."""
    kept = _RULES[op.type].kept if op.type in _RULES else ()
    return frozenset(name for each in kept for name in op.inputs.get(each.slot, ()))
