# SPDX-License-Identifier: Apache-2.0
"""The group of trainers (ranks) of a scope, and the settings that all ranks must share before the first step.

The group is stored in the scope: all programs that train in one scope share it, and it ends with the scope. Trainers
with LocalSteps update their own parameters and average them, instead of summing gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle import collective
from paddle.backend import Array, Device, from_host, to_host
from paddle.collective import Averages, Group
from paddle.collective.nccl import NcclRanks
from paddle.collective.ranks import Ranks
from paddle.env import JobEnvironment
from paddle.fluid.errors import FluidError, RunError
from paddle.fluid.parallel.strategies import Averaging, BuildStrategy
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.run.scope import Scope


class LocalSteps:
    """Local SGD: averages the parameters of a program in one scope over all trainers, at intervals.

    Attributes:
        program: the trained program.
    """

    def __init__(self, program: Program, group: Group, scope: Scope) -> None:
        """Start with the values of trainer 0.

        Raises:
            FluidError: the program has no trainable parameters.
        """
        averaging = program._averaging
        assert isinstance(averaging, Averaging)
        self.program = program
        self._params = _trained(program)
        if not self._params:
            raise FluidError(
                "there is nothing to average: the program updates no parameter; call minimize first"
            )
        self._states = _written(program, scope, self._params)
        self._averages = Averages(
            group,
            _values(scope, self._params),
            _values(scope, self._states),
            k_steps=averaging.k_steps,
            waits=averaging.waits,
        )

    def step(self, scope: Scope) -> None:
        """Count one run of the updates, and average if it is due.

        Raises:
            CollectiveError: a trainer is lost, late or running a different program.
        """
        self._averages.step(_values(scope, self._params))

    def average(self, scope: Scope) -> None:
        """Average parameters and states over all trainers; block until every trainer has called this or ended.

        Raises:
            CollectiveError: a trainer is lost, late or running a different program.
        """
        self._averages.settle(_values(scope, self._params), _values(scope, self._states))


def _trained(program: Program) -> list[str]:
    ops = [op for op in program.global_block().ops if isinstance(op, Operator)]
    names = {op.role_vars[0] for op in ops if op.role == OpRole.OPTIMIZE and op.role_vars}
    return sorted(names)


def _written(program: Program, scope: Scope, params: Sequence[str]) -> list[str]:
    """Return the other floating-point state that a step changes: moments, moving means."""
    block = program.global_block()
    found = []
    for name in sorted({name for op in block.ops for name in op.writes} - set(params)):
        variable = block.find(name)
        if (
            variable is not None
            and variable.persistable
            and scope.has(name)
            and _is_floating(scope.get(name))
        ):
            found.append(name)
    return found


def _is_floating(value: object) -> bool:
    is_array = isinstance(value, np.ndarray) or hasattr(value, "get")
    return is_array and getattr(getattr(value, "dtype", None), "kind", "") == "f"


def _values(scope: Scope, names: Sequence[str]) -> list[Array]:
    return [scope.get(name) for name in names]


_KEPT, _AVERAGED = "@TRAINERS@", "@AVERAGES@"


def check_ranks(program: Program, strategy: BuildStrategy) -> None:
    """Check that a program's trainers match the strategy, and that their addresses are known.

    Raises:
        FluidError: the strategy has a different number of trainers than the program.
        RunError: the addresses of the other trainers are not given.
    """
    count, rank = strategy.num_trainers, strategy.trainer_id
    endpoints = program._trainers_endpoints
    if endpoints and len(endpoints) != count:
        raise FluidError(
            f"num_trainers is {count}, but the program was transpiled for {len(endpoints)} trainers"
        )
    if not 0 <= rank < count:
        raise FluidError(f"trainer_id: expected 0 to {count - 1}, got {rank}")
    if count > 1 and len(_endpoints(program, strategy)) != count:
        raise RunError(
            f"{count} trainers need each other's endpoints: transpile the program with "
            "mode='nccl2', or set PADDLE_TRAINER_ENDPOINTS"
        )


def group_of(program: Program, strategy: BuildStrategy, scope: Scope, device: Device) -> Ranks:
    """Return the group of trainers; the first call waits for all trainers.

    Args:
        strategy: the number of trainers, and the rank of this one.
        device: device that the program runs on; on GPUs, NCCL computes the sums.

    Raises:
        CollectiveError: not all trainers connected.
        FluidError: the scope's trainers average parameters for a different program.
    """
    if scope.has(_KEPT):
        group: Ranks = scope.get(_KEPT)
        if isinstance(group, Ranks):
            return group
    if scope.has(_AVERAGED):
        raise _two_ways()
    membership = _membership(program, strategy)
    if device.is_gpu and strategy.num_trainers > 1:
        group = NcclRanks(collective.connect_group(membership), device, membership.timeout_s)
    else:
        group = collective.connect(membership)
    scope.set(_KEPT, group)
    return group


def present_group(scope: Scope) -> Ranks | None:
    """Return the group of a scope, or None if no program has been trained with other trainers in it."""
    group = scope.get(_KEPT) if scope.has(_KEPT) else None
    return group if isinstance(group, Ranks) else None


def local_steps(program: Program, strategy: BuildStrategy, scope: Scope) -> LocalSteps:
    """Return the `LocalSteps` for a program in a scope; the first call waits for all trainers.

    Raises:
        CollectiveError: not all trainers connected, or one has a different program.
        FluidError: the scope belongs to a different program.
        RunError: the trainers are configured to use MPI.
    """
    if scope.has(_AVERAGED):
        steps: LocalSteps = scope.get(_AVERAGED)
        if steps.program is not program:
            raise _two_ways()
        return steps
    if scope.has(_KEPT):
        raise _two_ways()
    membership = _membership(program, strategy)
    if membership.way == "mpi":
        raise RunError(
            "trainers that average parameters use TCP and shared memory, but "
            "PADDLE_COLLECTIVE_WAY is 'mpi': unset it, or train with sync_mode=True and k_steps=1"
        )
    group = collective.connect_group(membership)
    agree_on(program, group)
    begin_equal(program, group, scope)
    steps = LocalSteps(program, group, scope)
    scope.set(_AVERAGED, steps)
    return steps


def agree_on(program: Program, group: Ranks) -> None:
    """Check that all ranks train the same program.

    Raises:
        PeerDiffers: a rank trains a different program.
    """
    group.agree("sync_mode or k_steps", str(program._averaging))
    block = program.global_block()
    lines = [op.describe() for op in block.ops if op.type != "gen_nccl_id"]
    kept = [each for each in block.vars.values() if each.persistable]
    lines += [f"{each.name} {each.shape} {each.dtype}" for each in sorted(kept, key=lambda one: one.name)]
    group.agree("program", "\n".join(lines))


def begin_equal(program: Program, group: Ranks, scope: Scope) -> None:
    """Broadcast rank 0's values of all variables that persist between steps to the other ranks."""
    by_dtype: dict[str, list[str]] = {}
    for name, variable in sorted(program.global_block().vars.items()):
        if variable.persistable and scope.has(name) and hasattr(scope.get(name), "dtype"):
            value = scope.get(name)
            if isinstance(value, np.ndarray) or hasattr(value, "get"):
                by_dtype.setdefault(str(value.dtype), []).append(name)
    for dtype in sorted(by_dtype):
        names = by_dtype[dtype]
        xp = group.device.module()
        values = [xp.ascontiguousarray(_moved(scope.get(name), group.device)) for name in names]
        group.broadcast(values)
        for name, value in zip(names, values, strict=True):
            held: Array = scope.get(name)
            if held is not value:
                held[...] = from_host(to_host(value), held)


def _two_ways() -> FluidError:
    return FluidError(
        "two programs train in this scope, and one of them averages its parameters over the trainers: "
        "run each in its own scope (fluid.scope_guard), or transpile with sync_mode=True and "
        "k_steps=1"
    )


def _membership(program: Program, strategy: BuildStrategy) -> collective.Membership:
    return collective.Membership.of_environment(
        rank=strategy.trainer_id, endpoints=_endpoints(program, strategy)
    )


def _moved(value: Array, device: Device) -> Array:
    return value if device.is_gpu and hasattr(value, "get") else from_host(to_host(value), device)


def _endpoints(program: Program, strategy: BuildStrategy) -> Sequence[str]:
    return (
        program._trainers_endpoints or strategy.trainers_endpoints or JobEnvironment.read().trainer_endpoints
    )
