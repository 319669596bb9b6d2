# SPDX-License-Identifier: Apache-2.0
"""spp, spatial pyramid pooling: reduces images of any size to a fixed number of values (He et al., 2014)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import Limit, one_of
from paddle.ops.base.registry import gradient, operator
from paddle.ops.conv.pool import pool, pool_grad

_ATTRS = {"pyramid_height": Limit(int, least=1), "pooling_type": one_of("max", "avg", default=str)}


@operator(
    "spp",
    "X -> Out",
    attrs=_ATTRS,
    infer="X(N, C, H, W) -> X(N, C * (4**pyramid_height - 1) // 3)",
    shares_lod=False,
)
def spp(x: Array, *, pyramid_height: int, pooling_type: str) -> Array:
    """Apply spatial pyramid pooling over 1, 2 x 2, 4 x 4, ... cells.

    Return (N, C (1 + 4 + 16 + ...)), level by level.
    """
    levels = []
    for bins, window in _levels(x, pyramid_height):
        cells = pool(x, pooling_type=pooling_type, ceil_mode=False, **window)[..., :bins, :bins]
        levels.append(cells.reshape(len(x), x.shape[1] * bins * bins))
    return array_module(x).concatenate(levels, axis=1)


@gradient("spp", "X Out Out@GRAD -> X@GRAD")
def spp_grad(x: Array, out: Array, dout: Array, *, pyramid_height: int, pooling_type: str) -> Array:
    """Return dX, the sum of the gradients of all pyramid levels, (N, C, H, W)."""
    dx, begin = array_module(x).zeros_like(x), 0
    for bins, window in _levels(x, pyramid_height):
        end = begin + x.shape[1] * bins * bins
        parts = [each[:, begin:end].reshape(*x.shape[:2], bins, bins) for each in (out, dout)]
        dx += pool_grad(x, *parts, pooling_type=pooling_type, **window)
        begin = end
    return dx


def _levels(x: Array, height: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of cells per side and the windows of each level: adjacent ones, with the necessary padding."""
    for level in range(height):
        bins = 2**level
        kernel = tuple(-(-size // bins) for size in x.shape[2:])
        paddings = tuple(
            (each * bins - size + 1) // 2 for each, size in zip(kernel, x.shape[2:], strict=True)
        )
        fixed = {"global_pooling": False, "exclusive": True, "adaptive": False}
        yield bins, {"ksize": kernel, "strides": kernel, "paddings": paddings, **fixed}
