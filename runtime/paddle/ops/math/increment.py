# SPDX-License-Identifier: Apache-2.0
"""increment: Out = X + step; a counter when Out is X."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.registry import Spec, operator


def _infer(x: Spec) -> Spec:
    return x


@operator("increment", "X -> Out", attrs={"step": 1.0}, infer=_infer)
def increment(x: Array, *, step: float) -> Array:
    """Add a number, in X's dtype."""
    return x + x.dtype.type(step)
