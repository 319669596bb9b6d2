# SPDX-License-Identifier: Apache-2.0
"""`fleet.parameter_server.distribute_transpiler`: the fleet for jobs with parameter servers."""

from paddle.fluid.incubate.fleet_base import Fleet
from paddle.fluid.transpiler import DistributeTranspilerConfig

__all__ = ["DistributeTranspilerConfig", "fleet"]

fleet = Fleet()
