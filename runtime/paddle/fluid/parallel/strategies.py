# SPDX-License-Identifier: Apache-2.0
"""BuildStrategy and ExecutionStrategy: how a data-parallel program is built and run.

Fields for the original's graph passes are accepted and ignored: the core always fuses operators and frees memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class ReduceStrategy(IntEnum):
    """How gradients are combined; both methods give the same values."""

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(IntEnum):
    """How the gradient of the loss is set: 1/ranks, 1, or fed by the user as `<loss>@GRAD`."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


@dataclass
class BuildStrategy:
    """Options of a data-parallel program; only num_trainers, trainer_id and gradient_scale_strategy have an effect."""

    reduce_strategy: ReduceStrategy = ReduceStrategy.AllReduce
    gradient_scale_strategy: GradientScaleStrategy = GradientScaleStrategy.CoeffNumDevice
    debug_graphviz_path: str = ""
    enable_sequential_execution: bool = False
    remove_unnecessary_lock: bool = True
    num_trainers: int = 1
    trainer_id: int = 0
    trainers_endpoints: list[str] = field(default_factory=list)
    nccl_comm_num: int = 1
    use_hierarchical_allreduce_: bool = False
    hierarchical_allreduce_inter_nranks_: int = 0
    hierarchical_allreduce_exter_nranks_: int = 0
    fuse_elewise_add_act_ops: bool = False
    fuse_relu_depthwise_conv: bool = False
    fuse_broadcast_ops: bool = False
    fuse_all_optimizer_ops: bool = False
    fuse_all_reduce_ops: bool = False
    sync_batch_norm: bool = False
    enable_backward_optimizer_op_deps: bool = False
    cache_runtime_context: bool = False
    async_mode: bool = False
    memory_optimize: bool = False
    enable_inplace: bool = False


BuildStrategy.ReduceStrategy = ReduceStrategy  # type: ignore[attr-defined]
BuildStrategy.GradientScaleStrategy = GradientScaleStrategy  # type: ignore[attr-defined]


@dataclass
class ExecutionStrategy:
    """Options for running a data-parallel program. They are ignored: each place always runs on its own thread."""

    num_threads: int = 0
    use_cuda: bool = True
    allow_op_delay: bool = False
    num_iteration_per_drop_scope: int = 1
    num_iteration_per_run: int = 1


@dataclass(frozen=True)
class Averaging:
    """Settings of trainers that average parameters, as in `DistributeTranspilerConfig`.

    Attributes:
        k_steps: number of steps between averages.
        waits: whether all trainers wait for each other at each average.
    """

    k_steps: int
    waits: bool
