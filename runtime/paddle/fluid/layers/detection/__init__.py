# SPDX-License-Identifier: Apache-2.0
"""Detection layers, one family per module. Depends on `nn`."""

from paddle.fluid.errors import answering
from paddle.fluid.layers.detection import boxes, heads, priors, proposals, ssd

_FAMILIES = (boxes, heads, priors, proposals, ssd)
__all__ = [name for family in _FAMILIES for name in family.__all__]

__getattr__ = answering(__name__, "paddle.fluid.layers")
