# SPDX-License-Identifier: Apache-2.0
"""DistributeTranspilerConfig: how a program is distributed."""

from __future__ import annotations

from dataclasses import dataclass

from paddle.fluid.transpiler.dispatchers import PSDispatcher


@dataclass
class DistributeTranspilerConfig:
    """Plain settings.

    Attributes:
        slice_var_up: cut large parameters into slices for several servers.
        split_method: a class that says which server gets which slice; None: RoundRobin.
        min_block_size: least elements of a slice, 8192 or more.
        enable_dc_asgd: compensate for delay; asynchronous mode alone.
        mode: "pserver" or "nccl2".
        print_log: has no meaning.
        wait_port: False: `get_trainer_program` never waits for servers.
        runtime_split_send_recv: not supported: gradients are split by operators.
        sync_mode: None or True leaves it to `transpile`; False makes it asynchronous.
        nccl_comm_num: connections between ranks.
        use_hierarchical_allreduce: reduce in groups first.
        hierarchical_allreduce_inter_nranks: ranks of a group.
        hierarchical_allreduce_exter_nranks: number of groups.
        k_steps: mode nccl2: steps between averages of the trainers' parameters. Synchronous trainers wait for each
            other there (local SGD), or with 1 sum gradients; asynchronous ones never wait for another's steps.
    """

    slice_var_up: bool = True
    split_method: type[PSDispatcher] | None = None
    min_block_size: int = 8192
    enable_dc_asgd: bool = False
    mode: str = "pserver"
    print_log: bool = False
    wait_port: bool = True
    runtime_split_send_recv: bool = False
    sync_mode: bool = True
    nccl_comm_num: int = 1
    use_hierarchical_allreduce: bool = False
    hierarchical_allreduce_inter_nranks: int = 0
    hierarchical_allreduce_exter_nranks: int = 0
    k_steps: int = 1
