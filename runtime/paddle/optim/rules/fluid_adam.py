# SPDX-License-Identifier: Apache-2.0
"""Adam as Fluid uses it: the formula of `adam`, with L1 and L2 as terms of the gradient.

On rows Fluid moves all of them in every batch, which sparse parameters here cannot; its lazy mode, which moves the
touched rows alone, is `LazyAdam`. The correction by t counts all batches in either.
"""

from __future__ import annotations

from typing import ClassVar

from paddle.optim.rules.adam import Adam


class FluidAdam(Adam):
    """See `Adam`."""

    penalises_gradient: ClassVar[bool] = True


class LazyAdam(FluidAdam):
    """Leaves m and v of rows without a gradient as they are; the same as Adam on dense parameters."""

    handles_rows: ClassVar[bool] = True
