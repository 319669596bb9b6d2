# SPDX-License-Identifier: Apache-2.0
"""Layers: functions that append operators to the default programs, by family.

Each module lists its layers in `__all__`; a new family is a new module and its name in the two lists below.
No module may be called like a layer.
"""

from paddle.fluid.layers import dense
from paddle.fluid.layers.dense import *  # noqa: F403

__all__ = [*dense.__all__]
