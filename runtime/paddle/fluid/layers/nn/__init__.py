# SPDX-License-Identifier: Apache-2.0
"""Layers of nets, a family a module; part of the floor of `layers`, above `control_flow`.

Each module lists its layers in `__all__`. A new family is a new module, its name in the three lists below, and a line
in `layers`, since mypy follows no star through two lists.
No module may be called like a layer.
"""

from paddle.fluid.absent import answering
from paddle.fluid.layers.nn import (
    activations,
    arithmetic,
    convolutions,
    decoding,
    losses,
    normalise,
    projections,
    random,
    recurrent,
    reductions,
    resizing,
    selecting,
    sequences,
    shaping,
    structured_losses,
)
from paddle.fluid.layers.nn.activations import *  # noqa: F403
from paddle.fluid.layers.nn.arithmetic import *  # noqa: F403
from paddle.fluid.layers.nn.convolutions import *  # noqa: F403
from paddle.fluid.layers.nn.decoding import *  # noqa: F403
from paddle.fluid.layers.nn.losses import *  # noqa: F403
from paddle.fluid.layers.nn.normalise import *  # noqa: F403
from paddle.fluid.layers.nn.projections import *  # noqa: F403
from paddle.fluid.layers.nn.random import *  # noqa: F403
from paddle.fluid.layers.nn.recurrent import *  # noqa: F403
from paddle.fluid.layers.nn.reductions import *  # noqa: F403
from paddle.fluid.layers.nn.resizing import *  # noqa: F403
from paddle.fluid.layers.nn.selecting import *  # noqa: F403
from paddle.fluid.layers.nn.sequences import *  # noqa: F403
from paddle.fluid.layers.nn.shaping import *  # noqa: F403
from paddle.fluid.layers.nn.structured_losses import *  # noqa: F403

__all__ = [
    *activations.__all__,
    *arithmetic.__all__,
    *convolutions.__all__,
    *decoding.__all__,
    *losses.__all__,
    *normalise.__all__,
    *projections.__all__,
    *random.__all__,
    *recurrent.__all__,
    *reductions.__all__,
    *resizing.__all__,
    *selecting.__all__,
    *sequences.__all__,
    *shaping.__all__,
    *structured_losses.__all__,
]

__getattr__ = answering(__name__, "paddle.fluid.layers", "paddle.fluid.initializer", "paddle.fluid.framework")
