# SPDX-License-Identifier: Apache-2.0
"""BuildStrategy and ExecutionStrategy: options that determine how a data-parallel program is built and run.

Fields for the original's graph passes are accepted and ignored: the core always fuses operators and frees memory.
Other names are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar

from paddle.errors import MissingNameError
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.signatures import advice
from paddle_node.contract.classes import dataclass, field, fields

_MERGE, _REPEATS = "multi_batch_merge_pass", "num_repeats"


class ReduceStrategy(IntEnum):
    """The method for combining gradients; both methods give the same values."""

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(IntEnum):
    """The gradient of the loss at the start of the backward pass: 1/ranks, 1, or fed by the user as `<loss>@GRAD`."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class Pass:
    """The gradient accumulation pass: each step runs the program's forward and backward pass several times."""

    def __init__(self) -> None:
        self.repeats: int | None = None

    def type(self) -> str:
        """Return the name of the pass, "multi_batch_merge_pass"."""
        return _MERGE

    def set(self, name: str, value: int) -> None:
        """Set `num_repeats`, the number of parts into which each place's batch is split.

        Raises:
            FluidError: the pass has no such setting, or the number is smaller than 1.
            FluidTypeError: the value is not a whole number.
        """
        if name != _REPEATS:
            raise FluidError(f"{_MERGE} has no setting {name!r}; {advice(name, [_REPEATS], 'its settings')}")
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise FluidTypeError(f"{_MERGE}: {name}: expected a whole number, got {value!r}")
        if operator.index(value) < 1:
            raise FluidError(f"{_MERGE}: {name}: expected at least 1, got {value}")
        self.repeats = operator.index(value)

    set_int = set


class PassBuilder:
    """The passes that a script adds to a build strategy.

    The only pass is `multi_batch_merge_pass` (gradient accumulation).
    """

    def __init__(self) -> None:
        self._passes: list[Pass] = []

    def all_passes(self) -> list[Pass]:
        """Return the passes that have been added; the core's own optimizations are not listed."""
        return list(self._passes)

    def append_pass(self, pass_type: str) -> Pass:
        """Add a pass by name and return it.

        Raises:
            FluidError: the pass is not supported, or was added before.
        """
        if pass_type != _MERGE:
            raise FluidError(
                f"the pass {pass_type!r} is not supported, only {_MERGE!r}: set the fields of BuildStrategy"
            )
        if self._passes:
            raise FluidError(f"{_MERGE} was added twice: set {_REPEATS} of the first one")
        self._passes.append(Pass())
        return self._passes[0]

    def insert_pass(self, index: int, pass_type: str) -> Pass:
        """Add a pass by name and return it; the index is ignored, because there is only one pass."""
        return self.append_pass(pass_type)

    def remove_pass(self, index: int) -> None:
        """Remove the pass at an index.

        Raises:
            FluidError: the index is out of range.
        """
        if not 0 <= index < len(self._passes):
            raise FluidError(
                f"remove_pass: index {index} is out of range: the number of added passes is {len(self._passes)}"
            )
        del self._passes[index]

    @property
    def repeats(self) -> int:
        """The number of times that a step runs the forward and backward pass.

        Raises:
            FluidError: `num_repeats` was not set.
        """
        if not self._passes:
            return 1
        if self._passes[0].repeats is None:
            raise FluidError(f"{_MERGE}: call .set({_REPEATS!r}, number) on the added pass")
        return self._passes[0].repeats


class Options:
    """Base class of option sets; unknown names are refused, but those of Fluid 1.6 to 1.8 accept their defaults."""

    later: ClassVar[Mapping[str, object]] = MappingProxyType({})

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.later and value == self.later[name]:
            return
        if name in self.later:
            raise FluidError(
                f"{type(self).__name__}.{name}={value!r}: this option of Fluid 1.6 to 1.8 supports only its default, "
                f"{self.later[name]!r}{_INSTEAD.get(name, '')}"
            )
        known = [each.name for each in fields(self)]  # type: ignore[arg-type]
        if name not in known:
            public = [each for each in known if not each.startswith("_")]
            raise MissingNameError(
                f"{type(self).__name__} has no field {name!r}; {advice(name, public, 'its fields')}"
            )
        super().__setattr__(name, value)


_INSTEAD = {
    **dict.fromkeys(
        ("geo_sgd_mode", "geo_sgd_need_push_nums", "completely_not_async", "half_async"),
        ": use asynchronous training, transpile(..., sync_mode=False)",
    ),
    **dict.fromkeys(
        ("use_local_sgd", "local_sgd_config"),
        ": use DistributeTranspiler, and a DistributeTranspilerConfig with mode='nccl2' and k_steps",
    ),
    "use_amp": ": wrap the optimizer with contrib.mixed_precision.decorate",
}
"""An option of Fluid 1.6 -> what to use instead."""


@dataclass
class BuildStrategy(Options):
    """Options for building a data-parallel program.

    These have an effect: num_trainers, trainer_id, trainers_endpoints, gradient_scale_strategy, sync_batch_norm, and
    the passes that are added to `_finalize_strategy_and_create_passes()`.
    """

    later = MappingProxyType(
        dict.fromkeys(
            ("fuse_bn_act_ops", "fuse_bn_add_act_ops", "enable_auto_fusion", "fix_op_run_order"), False
        )
    )
    reduce_strategy: ReduceStrategy = ReduceStrategy.AllReduce
    gradient_scale_strategy: GradientScaleStrategy = GradientScaleStrategy.CoeffNumDevice
    debug_graphviz_path: str = ""
    enable_sequential_execution: bool = False
    remove_unnecessary_lock: bool = True
    num_trainers: int = 1
    trainer_id: int = 0
    trainers_endpoints: list[str] = field(default_factory=list)
    nccl_comm_num: int = 1
    use_hierarchical_allreduce: bool = False
    use_hierarchical_allreduce_: bool = False
    hierarchical_allreduce_inter_nranks: int = 0
    hierarchical_allreduce_inter_nranks_: int = 0
    hierarchical_allreduce_exter_nranks: int = 0
    hierarchical_allreduce_exter_nranks_: int = 0
    is_distribution: bool = False
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
    # In some releases of 1.0 to 1.5.
    enable_data_balance: bool = False
    enable_parallel_graph: bool = False
    memory_early_delete: bool = False
    cache_expected_kernel: bool = False
    mkldnn_enabled_op_types: set[str] = field(default_factory=set)
    _passes: PassBuilder = field(default_factory=PassBuilder, repr=False)

    def _finalize_strategy_and_create_passes(self) -> PassBuilder:
        """Return the passes, to which scripts can add gradient accumulation before the program is first run."""
        return self._passes


BuildStrategy.ReduceStrategy = ReduceStrategy  # type: ignore[attr-defined]
BuildStrategy.GradientScaleStrategy = GradientScaleStrategy  # type: ignore[attr-defined]


@dataclass
class ExecutionStrategy(Options):
    """Options for running a data-parallel program, all ignored: each place always runs on its own thread."""

    later = MappingProxyType({"use_thread_barrier": False})
    num_threads: int = 0
    use_cuda: bool = True
    allow_op_delay: bool = False
    num_iteration_per_drop_scope: int = 1
    num_iteration_per_run: int = 1
    use_event: bool = True
    use_experimental_executor: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Averaging:
    """Settings of trainers that average their parameters, as in `DistributeTranspilerConfig`.

    Attributes:
        k_steps: number of steps between averages.
        waits: whether all trainers wait for each other at each average.
    """

    k_steps: int
    waits: bool
