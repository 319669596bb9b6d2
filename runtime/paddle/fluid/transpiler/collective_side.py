# SPDX-License-Identifier: Apache-2.0
"""Transpiles programs for trainers without servers (mode "nccl2").

The main program is unchanged: the code that runs it sums gradients over trainers, or averages parameters. The startup
program gets the operators that connect the trainers.
"""

from __future__ import annotations

from paddle.endpoints import check_endpoints
from paddle.fluid.errors import FluidError
from paddle.fluid.parallel.strategies import Averaging
from paddle.fluid.program.program import Program
from paddle.fluid.transpiler.configuration import DistributeTranspilerConfig
from paddle.ops.base.dtypes import VarType


def transpile_collective(
    config: DistributeTranspilerConfig,
    trainer_id: int,
    program: Program,
    trainers: int | str,
    startup: Program,
    current_endpoint: str,
    sync_mode: bool,
) -> None:
    """Record the trainers in a program, and append the operators that connect them to its startup program.

    Raises:
        FluidError: an argument is invalid; the message names it.
    """
    if not isinstance(trainers, str):
        raise FluidError(f"trainers: expected 'ip:port,ip:port' in nccl2 mode, got {trainers!r}")
    endpoints = [each.strip() for each in trainers.split(",") if each.strip()]
    check_endpoints(endpoints, "trainers: endpoint")
    if not 0 <= trainer_id < len(endpoints):
        raise FluidError(f"trainer_id: expected 0 to {len(endpoints) - 1}, got {trainer_id}")
    if current_endpoint not in endpoints:
        raise FluidError(f"current_endpoint {current_endpoint!r} is not one of the trainers: {trainers}")
    if endpoints[trainer_id] != current_endpoint:
        raise FluidError(
            f"trainer_id {trainer_id} has endpoint {endpoints[trainer_id]!r}, but current_endpoint is "
            f"{current_endpoint!r}"
        )
    _check_groups(config, len(endpoints))
    program._trainer_id, program._trainers_endpoints = trainer_id, endpoints
    program._averaging = None
    if not sync_mode or config.k_steps > 1:
        _check_tables(program)
        program._averaging = Averaging(config.k_steps, sync_mode)
    program._nccl_comm_num = config.nccl_comm_num
    program._use_hierarchical_allreduce = config.use_hierarchical_allreduce
    block = startup.global_block()
    for name in _identities(config):
        block.create_var(name, persistable=True, type=VarType.RAW)
    block.append_op(
        "gen_nccl_id",
        {},
        {"NCCLID": block.var("NCCLID")},
        {
            "trainers": tuple(endpoints),
            "trainer_id": trainer_id,
            "nccl_comm_num": config.nccl_comm_num,
            "use_hierarchical_allreduce": config.use_hierarchical_allreduce,
            "hierarchical_allreduce_inter_nranks": config.hierarchical_allreduce_inter_nranks,
        },
    )


def _check_tables(program: Program) -> None:
    for block in program.blocks:
        for op in block.ops:
            if op.attrs.get("is_distributed"):
                raise FluidError(
                    f"embedding {op.inputs['W'][0]!r} has is_distributed=True, but trainers that average parameters "
                    "hold whole parameters: use mode='pserver', or is_distributed=False"
                )


def _check_groups(config: DistributeTranspilerConfig, count: int) -> None:
    if not config.use_hierarchical_allreduce:
        return
    ranks = config.hierarchical_allreduce_inter_nranks
    if ranks < 2 or count % ranks:
        raise FluidError(
            f"hierarchical_allreduce_inter_nranks: expected a divisor of {count} trainers that is "
            f"2 or more, got {ranks}"
        )


def _identities(config: DistributeTranspilerConfig) -> list[str]:
    """Return the names of all variables with which the original's ranks find each other."""
    rings = range(config.nccl_comm_num)
    names = [f"NCCLID_{ring}" if ring else "NCCLID" for ring in rings]
    if config.use_hierarchical_allreduce:
        names += [f"Hierarchical_inter_NCCLID_{ring}" for ring in rings]
        names += [f"Hierarchical_exter_NCCLID_{ring}" for ring in rings]
    return names
