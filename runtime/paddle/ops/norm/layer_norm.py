# SPDX-License-Identifier: Apache-2.0
"""layer_norm and group_norm: normalize rows, or groups of channels, to mean 0 and variance 1, then scale and shift."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import product


def _infer_layer(
    x: Spec, scale: Spec | None, bias: Spec | None, *, begin_norm_axis: int
) -> tuple[Spec, Spec, Spec]:
    if not 0 < begin_norm_axis < len(x.shape):
        raise AttrError(f"begin_norm_axis: expected 1 to {len(x.shape) - 1}, got {begin_norm_axis}")
    rows = Spec((product(x.shape[:begin_norm_axis]),), x.dtype)
    return x, rows, rows


@operator("layer_norm", "X Scale? Bias? -> Y Mean~ Variance~", infer=_infer_layer)
def layer_norm(
    x: Array, scale: Array | None, bias: Array | None, *, epsilon: float = 1e-5, begin_norm_axis: int = 1
) -> tuple[Array, Array, Array]:
    """Return Y, and the mean and variance of each row; the dimensions starting at begin_norm_axis form a row."""
    rows = _rows(x, begin_norm_axis)
    normed, mean, variance = _normed(rows, epsilon)
    if scale is not None:
        normed *= scale.reshape(-1)
    if bias is not None:
        normed += bias.reshape(-1)
    return normed.reshape(x.shape), mean, variance


@gradient("layer_norm", "X Scale? Bias? Mean Variance Y@GRAD -> X@GRAD Scale@GRAD? Bias@GRAD?")
def layer_norm_grad(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    dy: Array,
    *,
    epsilon: float,
    begin_norm_axis: int,
) -> tuple[Array, Array | None, Array | None]:
    """Return dX, dScale and dBias, with gradients through the mean and variance of each row."""
    rows, drows = _rows(x, begin_norm_axis), _rows(dy, begin_norm_axis)
    inner = drows if scale is None else drows * scale.reshape(-1)
    normed = (rows - mean[:, None]) / array_module(x).sqrt(variance[:, None] + epsilon)
    dx = _back(normed, inner, variance, epsilon)
    return (
        dx.reshape(x.shape),
        None if scale is None else (drows * normed).sum(axis=0).reshape(scale.shape),
        None if bias is None else drows.sum(axis=0).reshape(bias.shape),
    )


@operator(
    "group_norm",
    "X Scale? Bias? -> Y Mean~ Variance~",
    attrs={"epsilon": 1e-5, "groups": int},
    infer="X(N, C * groups, ...) -> X, X(N, groups, lod=0), X(N, groups, lod=0)",
)
def group_norm(
    x: Array, scale: Array | None, bias: Array | None, *, epsilon: float, groups: int
) -> tuple[Array, Array, Array]:
    """Return Y (the shape of x), and the mean and variance of each group (images, groups).

    Scale and bias are per channel.
    """
    normed, mean, variance = _normed(_grouped(x, groups), epsilon)
    out = normed.reshape(x.shape)
    if scale is not None:
        out *= _channels(scale, x)
    if bias is not None:
        out += _channels(bias, x)
    return out, mean.reshape(-1, groups), variance.reshape(-1, groups)


@gradient("group_norm", "X Scale? Bias? Mean Variance Y@GRAD -> X@GRAD Scale@GRAD? Bias@GRAD?")
def group_norm_grad(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    dy: Array,
    *,
    epsilon: float,
    groups: int,
) -> tuple[Array, Array | None, Array | None]:
    """Return dX, dScale and dBias, with gradients through the mean and variance of each group."""
    flat_mean, flat_variance = mean.reshape(-1, 1), variance.reshape(-1, 1)
    inner = dy if scale is None else dy * _channels(scale, x)
    normed = (_grouped(x, groups) - flat_mean) / array_module(x).sqrt(flat_variance + epsilon)
    dx = _back(normed, _grouped(inner, groups), variance.reshape(-1), epsilon)
    axes = (0, *range(2, x.ndim))
    return (
        dx.reshape(x.shape),
        None if scale is None else (dy * normed.reshape(x.shape)).sum(axis=axes),
        None if bias is None else dy.sum(axis=axes),
    )


def _normed(rows: Array, epsilon: float) -> tuple[Array, Array, Array]:
    mean = rows.mean(axis=1)
    out = rows - mean[:, None]
    variance = (out * out).mean(axis=1)
    out /= array_module(rows).sqrt(variance + rows.dtype.type(epsilon))[:, None]
    return out, mean, variance


def _back(normed: Array, dnormed: Array, variance: Array, epsilon: float) -> Array:
    inner = dnormed - dnormed.mean(axis=1, keepdims=True)
    inner -= normed * (dnormed * normed).mean(axis=1, keepdims=True)
    inner /= array_module(normed).sqrt(variance[:, None] + normed.dtype.type(epsilon))
    return inner


def _rows(x: Array, axis: int) -> Array:
    return x.reshape(
        int(np.prod(x.shape[:axis], dtype=np.int64)), int(np.prod(x.shape[axis:], dtype=np.int64))
    )


def _grouped(x: Array, groups: int) -> Array:
    return x.reshape(len(x) * groups, int(np.prod(x.shape[1:], dtype=np.int64)) // groups)


def _channels(values: Array, x: Array) -> Array:
    return values.reshape(-1, *(1,) * (x.ndim - 2))
