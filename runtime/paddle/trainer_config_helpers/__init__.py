# SPDX-License-Identifier: Apache-2.0
"""The names that configurations of `paddle train` import: v2's declarations under their v1 names.

Each table maps a v1 name to the corresponding declaration of ``paddle.v2``.
"""

from __future__ import annotations

from paddle import second_names
from paddle.trainer_config_helpers.activations import *  # noqa: F403
from paddle.trainer_config_helpers.activations import __all__ as _activations
from paddle.trainer_config_helpers.data_sources import *  # noqa: F403
from paddle.trainer_config_helpers.data_sources import __all__ as _data_sources
from paddle.trainer_config_helpers.evaluators import *  # noqa: F403
from paddle.trainer_config_helpers.evaluators import __all__ as _evaluators
from paddle.trainer_config_helpers.layers import *  # noqa: F403
from paddle.trainer_config_helpers.layers import __all__ as _layers
from paddle.trainer_config_helpers.networks import *  # noqa: F403
from paddle.trainer_config_helpers.networks import __all__ as _networks
from paddle.trainer_config_helpers.optimizers import *  # noqa: F403
from paddle.trainer_config_helpers.optimizers import __all__ as _optimizers
from paddle.trainer_config_helpers.poolings import *  # noqa: F403
from paddle.trainer_config_helpers.poolings import __all__ as _poolings
from paddle.trainer_config_helpers.v1_names import missing
from paddle.v2 import op as layer_math
from paddle.v2.attr import (
    ExtraAttr,
    ExtraLayerAttribute,
    HookAttr,
    HookAttribute,
    ParamAttr,
    ParameterAttribute,
)

__all__ = ["layer_math"]
__all__ += [
    "ExtraAttr",
    "ExtraLayerAttribute",
    "HookAttr",
    "HookAttribute",
    "ParamAttr",
    "ParameterAttribute",
]
__all__ += _activations + _data_sources + _evaluators
__all__ += _layers + _networks + _optimizers + _poolings

second_names.install(
    {
        f"{__name__}.attrs": "paddle.v2.attr",
        f"{__name__}.config_parser_utils": "paddle.trainer.config_parser",
        f"{__name__}.layer_math": "paddle.v2.op",
    }
)


def __getattr__(name: str) -> object:
    raise missing(__name__, name, __all__)
