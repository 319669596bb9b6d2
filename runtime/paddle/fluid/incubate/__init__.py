# SPDX-License-Identifier: Apache-2.0
"""The namespace `fluid.incubate`: fleet, and generators of MultiSlot text. Depends on `transpiler`."""

from paddle import second_names
from paddle.fluid.errors import answering
from paddle.fluid.incubate import collective, distribute_transpiler, fleet_base, role_maker
from paddle.fluid.incubate import data_generator as data_generator

_MODULES = {
    "fleet": fleet_base,
    "fleet.base": fleet_base,
    "fleet.base.fleet_base": fleet_base,
    "fleet.base.role_maker": role_maker,
    "fleet.parameter_server": fleet_base,
    "fleet.parameter_server.distribute_transpiler": distribute_transpiler,
    "fleet.collective": collective,
}
# Modules of the original whose names are in other modules here: scripts import them too.
second_names.nest(__name__, _MODULES)

__getattr__ = answering(__name__)
