# SPDX-License-Identifier: Apache-2.0
"""The namespace `fluid.incubate`: fleet, and generators of MultiSlot text. Depends on `transpiler`."""

from types import ModuleType

from paddle import second_names
from paddle.fluid.errors import ABSENT, answering
from paddle.fluid.incubate import collective, distribute_transpiler, fleet_base, role_maker
from paddle.fluid.incubate import data_generator as data_generator

_MODULES = {
    "fleet": fleet_base,
    "fleet.base": fleet_base,
    "fleet.base.fleet_base": fleet_base,
    "fleet.base.role_maker": role_maker,
    "fleet.parameter_server": ModuleType(f"{__name__}.fleet.parameter_server"),
    "fleet.parameter_server.distribute_transpiler": distribute_transpiler,
    "fleet.parameter_server.distribute_transpiler.distributed_strategy": distribute_transpiler,
    "fleet.collective": collective,
}
# Modules of the original whose names are in other modules here: scripts import them too.
_servers = _MODULES["fleet.parameter_server"]
_servers.__path__ = []
_servers.__getattr__ = answering(_servers.__name__)  # type: ignore[method-assign]
second_names.nest(__name__, _MODULES)
second_names.refuse(
    _servers.__name__, {name: ABSENT[name].removeprefix("use ") for name in ("mode", "pslib")}
)

__getattr__ = answering(__name__)
