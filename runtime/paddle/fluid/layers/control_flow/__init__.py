# SPDX-License-Identifier: Apache-2.0
"""Layers that steer: loops, branches, steps of sequences, arrays, comparisons; part of the floor of `layers`."""

from paddle.fluid.absent import answering
from paddle.fluid.layers.control_flow import arrays, blocks, comparisons, printing, rank_tables, rnn
from paddle.fluid.layers.control_flow.arrays import *  # noqa: F403
from paddle.fluid.layers.control_flow.blocks import *  # noqa: F403
from paddle.fluid.layers.control_flow.comparisons import *  # noqa: F403
from paddle.fluid.layers.control_flow.printing import *  # noqa: F403
from paddle.fluid.layers.control_flow.rank_tables import *  # noqa: F403
from paddle.fluid.layers.control_flow.rnn import *  # noqa: F403

__all__ = [
    *arrays.__all__,
    *blocks.__all__,
    *comparisons.__all__,
    *printing.__all__,
    *rank_tables.__all__,
    *rnn.__all__,
]

__getattr__ = answering(__name__, "paddle.fluid.layers")
