# SPDX-License-Identifier: Apache-2.0
"""prelu, the parametric ReLU (He et al., 2015): X where positive, else Alpha X, with a learned Alpha.

Alpha is one number, one per channel, or one per element.

maxout: the maximum over each group of `groups` neighboring channels (Goodfellow et al., 2013).
"""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import product


def _infer(x: Spec, alpha: Spec, *, mode: str) -> Spec:
    wanted = product(_alpha_shape(x.shape, mode))
    if product(alpha.shape) != wanted:
        raise ShapeError(
            f"Alpha must have {wanted} elements for mode {mode!r} and X {x.shape}, got shape {alpha.shape}"
        )
    return x


@operator("prelu", "X Alpha -> Out", attrs={"mode": one_of("all", "channel", "element")}, infer=_infer)
def prelu(x: Array, alpha: Array, *, mode: str) -> Array:
    """Return the parametric ReLU: X where positive, otherwise Alpha X."""
    return array_module(x).where(x > 0, x, x * alpha.reshape(_alpha_shape(x.shape, mode)))


@gradient("prelu", "X Alpha Out@GRAD -> X@GRAD Alpha@GRAD")
def prelu_grad(
    x: Array, alpha: Array, dout: Array, *, mode: str, needs: frozenset[str]
) -> tuple[Array | None, Array | None]:
    """Return dX, which is dOut where X is positive and Alpha dOut elsewhere, and dAlpha in the shape of Alpha.

    dAlpha is the sum of dOut X where X is not positive.
    """
    xp = array_module(x)
    shape = _alpha_shape(x.shape, mode)
    dx = xp.where(x > 0, dout, dout * alpha.reshape(shape)) if "X@GRAD" in needs else None
    if "Alpha@GRAD" not in needs:
        return dx, None
    shares = xp.minimum(x, 0) * dout
    spread = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return dx, shares.sum(axis=spread, keepdims=True).reshape(alpha.shape)


def _alpha_shape(x: tuple[int, ...], mode: str) -> tuple[int, ...]:
    if mode == "all":
        return (1,) * len(x)
    return (1, x[1], *(1,) * (len(x) - 2)) if mode == "channel" else (1, *x[1:])


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
