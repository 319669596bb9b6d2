# SPDX-License-Identifier: Apache-2.0
"""`fleet.collective`: the fleet for jobs without servers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from paddle.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from paddle.fluid.errors import FluidError
from paddle.fluid.incubate.fleet_base import DistributedOptimizer, Fleet
from paddle.fluid.transpiler import DistributeTranspilerConfig
from paddle_node.contract.classes import dataclass, field

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "fleet"]


@dataclass
class DistributedStrategy(BuildStrategy):
    """Options for training without servers: those of `BuildStrategy` and the following.

    Attributes:
        exec_strategy: ignored, as in `CompiledProgram.with_data_parallel`.
        mode: "nccl2" or "collective", which train alike.
        collective_mode: None or "grad_allreduce".
    """

    later = MappingProxyType(
        {
            **BuildStrategy.later,
            **dict.fromkeys(("use_local_sgd", "use_dist_fc", "forward_recompute", "use_amp"), False),
            **dict.fromkeys(("local_sgd_config", "dist_fc_config")),
            "recompute_checkpoints": [],
        }
    )
    exec_strategy: ExecutionStrategy = field(default_factory=ExecutionStrategy)
    mode: str = "nccl2"
    collective_mode: str | None = None


class Collective(Fleet):
    """The fleet of a job without servers: workers average gradients among themselves."""

    is_collective = True

    def distributed_optimizer(self, optimizer: Any, strategy: object = None) -> CollectiveOptimizer:
        """Return an optimizer whose `minimize` averages gradients over the workers.

        Args:
            strategy: a DistributedStrategy or None.

        Raises:
            FluidError: the strategy is not a DistributedStrategy, or has a mode that is not supported.
        """
        return CollectiveOptimizer(optimizer, strategy, self)

    def init_worker(self) -> None:
        """Do nothing, because workers connect in their first step."""

    def stop_worker(self) -> None:
        """Do nothing, because workers exit independently."""


fleet = Collective()


class CollectiveOptimizer(DistributedOptimizer):
    """A wrapper of an optimizer whose `minimize` makes workers average gradients.

    With a strategy, `fleet.main_program` is a `CompiledProgram`; otherwise, it is a `Program`.
    """

    def __init__(self, optimizer: Any, strategy: object = None, of: Collective = fleet) -> None:
        """Wrap an optimizer of `fluid.optimizer`.

        Args:
            strategy: a DistributedStrategy or None.
            of: the fleet.

        Raises:
            FluidError: the strategy is not a DistributedStrategy, or has a mode that is not supported.
        """
        config = DistributeTranspilerConfig(mode="nccl2")
        self._build_strategy = None if strategy is None else _checked(strategy)
        if self._build_strategy is not None:
            config.nccl_comm_num = self._build_strategy.nccl_comm_num
        super().__init__(of, optimizer, config)

    def minimize(self, loss: Any, *arguments: Any, **named: Any) -> Any:
        """Append gradients and updates, then create this worker's programs; see `DistributedOptimizer.minimize`."""
        found = super().minimize(loss, *arguments, **named)
        if self._build_strategy is not None:
            program = CompiledProgram(loss.block.program)
            self._fleet.main_program = program.with_data_parallel(loss.name, self._build_strategy)
        return found


def _checked(strategy: object) -> DistributedStrategy:
    if not isinstance(strategy, DistributedStrategy):
        raise FluidError(
            f"strategy: expected a DistributedStrategy of fleet.collective, got a {type(strategy).__name__}"
        )
    for name, known in (("mode", ("nccl2", "collective")), ("collective_mode", (None, "grad_allreduce"))):
        value = getattr(strategy, name)
        if value not in known:
            raise FluidError(
                f"DistributedStrategy.{name}: expected {known[0]!r} or {known[1]!r}, got {value!r}; to average "
                "parameters, use DistributeTranspilerConfig with mode='nccl2' and k_steps"
            )
    return strategy
