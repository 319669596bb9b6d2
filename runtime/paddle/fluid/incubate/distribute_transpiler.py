# SPDX-License-Identifier: Apache-2.0
"""`fleet.parameter_server.distribute_transpiler`: the fleet for jobs with parameter servers."""

from paddle.fluid.errors import FluidError, answering
from paddle.fluid.incubate.fleet_base import Fleet
from paddle.fluid.transpiler import DistributeTranspilerConfig

__all__ = ["DistributeTranspilerConfig", "StrategyFactory", "fleet"]

__path__: list[str] = []  # scripts import distributed_strategy from it
fleet = Fleet()
__getattr__ = answering(__name__)


class StrategyFactory:
    """Creates the strategies of Fluid 1.6 for `fleet.distributed_optimizer`."""

    @staticmethod
    def create_sync_strategy() -> DistributeTranspilerConfig:
        """Return the strategy of synchronous training."""
        return DistributeTranspilerConfig()

    @staticmethod
    def create_async_strategy() -> DistributeTranspilerConfig:
        """Return the strategy of asynchronous training."""
        return DistributeTranspilerConfig(sync_mode=False)

    @staticmethod
    def create_half_async_strategy() -> DistributeTranspilerConfig:
        """Raise FluidError: half-asynchronous training is not supported.

        Raises:
            FluidError: always; its text names the replacements.
        """
        raise FluidError(_INSTEAD.format("create_half_async_strategy"))

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> DistributeTranspilerConfig:
        """Raise FluidError: geo-SGD is not supported.

        Raises:
            FluidError: always; its text names the replacements.
        """
        raise FluidError(_INSTEAD.format("create_geo_strategy"))


_INSTEAD = "StrategyFactory.{} is not supported: use create_async_strategy() or create_sync_strategy()"
