# SPDX-License-Identifier: Apache-2.0
"""Layers: functions that append operators to the default programs, grouped by family. Depends on `run`.

Scripts also import from these modules. `layers` itself does not export the names in `collective` and `device`. A layer
that consists of one operator is a table row; see `plain`.
"""

from inspect import isfunction

from paddle.fluid.errors import answering
from paddle.fluid.layers import collective as collective
from paddle.fluid.layers import (
    control_flow,
    detection,
    io,
    learning_rate_scheduler,
    metric_op,
    nn,
    ops,
    tensor,
)
from paddle.fluid.layers import device as device
from paddle.fluid.layers.control_flow import *  # noqa: F403
from paddle.fluid.layers.detection.boxes import *  # noqa: F403  # noqa: F403
from paddle.fluid.layers.detection.heads import *  # noqa: F403  # noqa: F403
from paddle.fluid.layers.detection.priors import *  # noqa: F403
from paddle.fluid.layers.detection.proposals import *  # noqa: F403
from paddle.fluid.layers.detection.ssd import *  # noqa: F403
from paddle.fluid.layers.io import *  # noqa: F403
from paddle.fluid.layers.learning_rate_scheduler import *  # noqa: F403
from paddle.fluid.layers.metric_op import *  # noqa: F403
from paddle.fluid.layers.nn.convolutions import *  # noqa: F403  # noqa: F403
from paddle.fluid.layers.nn.elements import *  # noqa: F403
from paddle.fluid.layers.nn.losses import *  # noqa: F403
from paddle.fluid.layers.nn.normalization import *  # noqa: F403
from paddle.fluid.layers.nn.projections import *  # noqa: F403
from paddle.fluid.layers.nn.python_functions import *  # noqa: F403
from paddle.fluid.layers.nn.recurrent import *  # noqa: F403
from paddle.fluid.layers.nn.resizing import *  # noqa: F403
from paddle.fluid.layers.nn.sequences import *  # noqa: F403
from paddle.fluid.layers.nn.shaping import *  # noqa: F403
from paddle.fluid.layers.nn.structured_losses import *  # noqa: F403
from paddle.fluid.layers.ops import *  # noqa: F403
from paddle.fluid.layers.tensor import *  # noqa: F403
from paddle.fluid.program.program import with_programs

__all__ = [
    *control_flow.__all__,
    *detection.__all__,
    *io.__all__,
    *learning_rate_scheduler.__all__,
    *metric_op.__all__,
    *nn.__all__,
    *ops.__all__,
    *tensor.__all__,
]

_taking = {name: with_programs(globals()[name]) for name in __all__ if isfunction(globals()[name])}
globals().update(_taking)
for _module in (control_flow, io, learning_rate_scheduler, metric_op, ops, tensor):
    vars(_module).update((name, each) for name, each in _taking.items() if name in vars(_module))

__getattr__ = answering(__name__)
