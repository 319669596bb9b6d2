# SPDX-License-Identifier: Apache-2.0
"""maxout: the maximum over each group of `groups` neighboring channels (Goodfellow et al., 2013)."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import gradient, operator


@operator("maxout", "X -> Out", attrs={"groups": int}, infer="X(N, C * groups, ...) -> X(N, C, ...)")
def maxout(x: Array, *, groups: int) -> Array:
    """Return the maximum over each group of `groups` neighboring channels: (N, C, ...) -> (N, C / groups, ...)."""
    return _grouped(x, groups).max(axis=2)


@gradient("maxout", "X Out@GRAD -> X@GRAD")
def maxout_grad(x: Array, dout: Array, *, groups: int) -> Array:
    """Return dX, which is dOut at the first maximal channel of each group and 0 elsewhere."""
    xp = array_module(x)
    grouped = _grouped(x, groups)
    dx = xp.zeros(grouped.shape, x.dtype)
    xp.put_along_axis(dx, grouped.argmax(axis=2)[:, :, None], dout[:, :, None], axis=2)
    return dx.reshape(x.shape)


def _grouped(x: Array, groups: int) -> Array:
    return x.reshape(x.shape[0], x.shape[1] // groups, groups, *x.shape[2:])
