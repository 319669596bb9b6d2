# SPDX-License-Identifier: Apache-2.0
"""Layers: functions that append operators to the default programs, by family.

Each module lists its layers in `__all__`; a new family is a new module and its name in the three lists below.
No module may be called like a layer.
"""

from paddle.fluid.layers import (
    activations,
    arithmetic,
    arrays,
    comparisons,
    control_flow,
    creation,
    decoding,
    dense,
    image,
    inputs,
    learning_rate_scheduler,
    losses,
    measures,
    normalise,
    orders,
    printing,
    readers,
    recurrent_layers,
    reductions,
    resizing,
    rnn_blocks,
    row_norms,
    selecting,
    sequences,
    shaping,
    shrinking,
    structured_losses,
    table,
    temporal,
    trigonometry,
    volumes,
)
from paddle.fluid.layers.activations import *  # noqa: F403
from paddle.fluid.layers.arithmetic import *  # noqa: F403
from paddle.fluid.layers.arrays import *  # noqa: F403
from paddle.fluid.layers.comparisons import *  # noqa: F403
from paddle.fluid.layers.control_flow import *  # noqa: F403
from paddle.fluid.layers.creation import *  # noqa: F403
from paddle.fluid.layers.decoding import *  # noqa: F403
from paddle.fluid.layers.dense import *  # noqa: F403
from paddle.fluid.layers.image import *  # noqa: F403
from paddle.fluid.layers.inputs import *  # noqa: F403
from paddle.fluid.layers.learning_rate_scheduler import *  # noqa: F403
from paddle.fluid.layers.losses import *  # noqa: F403
from paddle.fluid.layers.measures import *  # noqa: F403
from paddle.fluid.layers.normalise import *  # noqa: F403
from paddle.fluid.layers.orders import *  # noqa: F403
from paddle.fluid.layers.printing import *  # noqa: F403
from paddle.fluid.layers.readers import *  # noqa: F403
from paddle.fluid.layers.recurrent_layers import *  # noqa: F403
from paddle.fluid.layers.reductions import *  # noqa: F403
from paddle.fluid.layers.resizing import *  # noqa: F403
from paddle.fluid.layers.rnn_blocks import *  # noqa: F403
from paddle.fluid.layers.row_norms import *  # noqa: F403
from paddle.fluid.layers.selecting import *  # noqa: F403
from paddle.fluid.layers.sequences import *  # noqa: F403
from paddle.fluid.layers.shaping import *  # noqa: F403
from paddle.fluid.layers.shrinking import *  # noqa: F403
from paddle.fluid.layers.structured_losses import *  # noqa: F403
from paddle.fluid.layers.table import *  # noqa: F403
from paddle.fluid.layers.temporal import *  # noqa: F403
from paddle.fluid.layers.trigonometry import *  # noqa: F403
from paddle.fluid.layers.volumes import *  # noqa: F403

__all__ = [
    *activations.__all__,
    *arithmetic.__all__,
    *arrays.__all__,
    *comparisons.__all__,
    *control_flow.__all__,
    *creation.__all__,
    *decoding.__all__,
    *dense.__all__,
    *image.__all__,
    *inputs.__all__,
    *learning_rate_scheduler.__all__,
    *losses.__all__,
    *measures.__all__,
    *normalise.__all__,
    *orders.__all__,
    *printing.__all__,
    *readers.__all__,
    *recurrent_layers.__all__,
    *reductions.__all__,
    *resizing.__all__,
    *rnn_blocks.__all__,
    *row_norms.__all__,
    *selecting.__all__,
    *sequences.__all__,
    *shaping.__all__,
    *shrinking.__all__,
    *structured_losses.__all__,
    *table.__all__,
    *temporal.__all__,
    *trigonometry.__all__,
    *volumes.__all__,
]
