# SPDX-License-Identifier: Apache-2.0
"""`fleet.collective`: the fleet for jobs without servers."""

from __future__ import annotations

from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.incubate.fleet_base import DistributedOptimizer, Fleet
from paddle.fluid.transpiler import DistributeTranspilerConfig

__all__ = ["Collective", "fleet"]


class Collective(Fleet):
    """The fleet of a job without servers: workers average gradients among themselves."""

    is_collective = True

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributeTranspilerConfig | None = None
    ) -> DistributedOptimizer:
        """Return an optimizer whose `minimize` averages gradients over the workers.

        Raises:
            FluidError: a strategy is given; this fleet supports none.
        """
        if strategy is not None:
            raise FluidError("strategy: collective.fleet does not take a strategy; omit it")
        config = DistributeTranspilerConfig()
        config.mode = "nccl2"
        return DistributedOptimizer(self, optimizer, config)

    def init_worker(self) -> None:
        """Do nothing, because workers connect in their first step."""

    def stop_worker(self) -> None:
        """Do nothing, because workers exit independently."""


fleet = Collective()
