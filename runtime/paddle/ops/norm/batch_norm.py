# SPDX-License-Identifier: Apache-2.0
"""batch_norm: batch normalization, which gives each channel the mean Bias and the standard deviation Scale.

Training uses the mean and biased variance of the batch and updates the running ones: new = old · momentum + batch · (1
- momentum). Test mode and use_global_stats use the running ones. SavedVariance holds 1 / √(variance + epsilon).

sync_batch_norm takes the mean and variance over the batches of all places and trainers of a data-parallel program.
Each place's gradients of Scale and Bias are those of its batch: the program sums them.

data_norm normalizes columns by the count, sum and sum of squares of all data so far, which are parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import Limit, one_of
from paddle.ops.base.body import Remote
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree

_Total: TypeAlias = Callable[[Array], Array]

_ATTRS = {
    "is_test": False,
    "momentum": 0.9,
    "epsilon": 1e-5,
    "data_layout": one_of("NCHW", "NHWC"),
    "use_global_stats": False,
}


def _infer(
    x: Spec, scale: Spec, bias: Spec, mean: Spec, variance: Spec, *, data_layout: str
) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    if len(x.shape) < 2:
        raise ShapeError(f"expected X (N, channels, ...), got {x.shape}")
    channels = x.shape[1] if data_layout == "NCHW" else x.shape[-1]
    for name, spec in (("Scale", scale), ("Bias", bias), ("Mean", mean), ("Variance", variance)):
        if not agree(channels, prod(spec.shape)):
            raise ShapeError(
                f"{name} {spec.shape} must have {channels} elements, one per channel of X {x.shape}"
            )
    return x, mean, variance, mean, variance


_SLOTS = "X Scale Bias Mean Variance -> Y MeanOut VarianceOut SavedMean~ SavedVariance~"
_GRADIENT = "X Scale Bias SavedMean SavedVariance Y@GRAD -> X@GRAD Scale@GRAD Bias@GRAD"


def _own(value: Array) -> Array:
    return value


def _total(remote: Remote | None) -> _Total:
    """Return the sum over all places; without peers, a value is its own sum."""
    return _own if remote is None or remote.peers is None else remote.peers.total


@operator("sync_batch_norm", _SLOTS, attrs=_ATTRS, infer=_infer)
def sync_batch_norm(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_layout: str,
    use_global_stats: bool,
    remote: Remote | None,
) -> tuple[Array, Array, Array, Array, Array]:
    """Normalize by the statistics of all places.

    Return Y, the running statistics, and the statistics that the gradient needs.
    """
    total = _total(remote)
    xp = array_module(x)
    planes = _planes(x, data_layout)
    if is_test or use_global_stats or not (x.size or total is not _own):
        used_mean, used_variance = mean.reshape(-1), variance.reshape(-1)
        new_mean, new_variance = mean, variance
        y = planes - used_mean[:, None]
    else:
        sums, count = _totals(total, _channel_sums(planes), planes)
        used_mean = sums / count
        y = planes - used_mean[:, None]
        used_variance = total(_channel_dots(y, y)) / count
        new_mean = mean * momentum + used_mean.reshape(mean.shape) * (1 - momentum)
        new_variance = variance * momentum + used_variance.reshape(variance.shape) * (1 - momentum)
    inverse = 1 / xp.sqrt(used_variance + x.dtype.type(epsilon))
    y *= (inverse * scale.reshape(-1))[:, None]
    y += bias.reshape(-1)[:, None]
    saved = used_mean.reshape(mean.shape), inverse.reshape(mean.shape)
    return _restored(y, x.shape, data_layout), new_mean, new_variance, *saved


@operator("batch_norm", _SLOTS, attrs=_ATTRS, infer=_infer)
def batch_norm(
    *arrays: Array, is_test: bool, momentum: float, epsilon: float, data_layout: str, use_global_stats: bool
) -> tuple[Array, Array, Array, Array, Array]:
    """Apply batch normalization like `sync_batch_norm`, but with the statistics of this place only."""
    found: tuple[Array, Array, Array, Array, Array] = sync_batch_norm(
        *arrays,
        is_test=is_test,
        momentum=momentum,
        epsilon=epsilon,
        data_layout=data_layout,
        use_global_stats=use_global_stats,
        remote=None,
    )
    return found


@gradient("sync_batch_norm", _GRADIENT)
def sync_batch_norm_grad(
    x: Array,
    scale: Array,
    bias: Array,
    saved_mean: Array,
    saved_variance: Array,
    dy: Array,
    *,
    is_test: bool,
    data_layout: str,
    use_global_stats: bool,
    needs: frozenset[str],
    remote: Remote | None,
) -> tuple[Array | None, Array, Array]:
    """Return dBias = Σ dY, dScale = Σ dY X̂, dX = Scale / σ (dY - (dBias + X̂ dScale) / m).

    With running statistics, dX = Scale / σ dY.
    """
    total = _total(remote)
    centered = _planes(x, data_layout) - saved_mean.reshape(-1)[:, None]
    dplanes = _planes(dy, data_layout)
    inverse = saved_variance.reshape(-1)
    dbias = _channel_sums(dplanes)
    dscale = _channel_dots(dplanes, centered) * inverse
    dx = None
    if "X@GRAD" in needs:
        if is_test or use_global_stats or not (x.size or total is not _own):
            dx = dplanes * (inverse * scale.reshape(-1))[:, None]
        else:
            all_bias, count = _totals(total, dbias, centered)
            dx = centered
            dx *= (-total(dscale) * inverse / count)[:, None]
            dx += dplanes
            dx -= (all_bias / count)[:, None]
            dx *= (inverse * scale.reshape(-1))[:, None]
        dx = _restored(dx, x.shape, data_layout)
    return dx, dscale.reshape(scale.shape), dbias.reshape(bias.shape)


@gradient("batch_norm", _GRADIENT)
def batch_norm_grad(
    *arrays: Array, is_test: bool, data_layout: str, use_global_stats: bool, needs: frozenset[str]
) -> tuple[Array | None, Array, Array]:
    """Return the gradients of `batch_norm`, like `sync_batch_norm_grad`, but with the sums of this place only."""
    found: tuple[Array | None, Array, Array] = sync_batch_norm_grad(
        *arrays,
        is_test=is_test,
        data_layout=data_layout,
        use_global_stats=use_global_stats,
        needs=needs,
        remote=None,
    )
    return found


def _totals(total: _Total, sums: Array, planes: Array) -> tuple[Array, Array]:
    """Return the totals of sums per channel (channels,) and of the elements per channel (1,), or a number."""
    count = sums.dtype.type(planes.shape[0] * planes.shape[2])
    if total is _own:
        return sums, count
    both = total(array_module(planes).append(sums, count))
    return both[:-1], both[-1:]


def _planes(x: Array, data_layout: str) -> Array:
    """Return X as (N, channels, elements)."""
    if data_layout == "NHWC":
        x = array_module(x).moveaxis(x, -1, 1)
    return x.reshape(x.shape[0], x.shape[1], prod(x.shape[2:]))


def _restored(planes: Array, shape: tuple[int, ...], data_layout: str) -> Array:
    if data_layout == "NCHW":
        return planes.reshape(shape)
    moved = planes.reshape(shape[0], shape[-1], *shape[1:-1])
    return array_module(planes).moveaxis(moved, 1, -1)


def _channel_sums(planes: Array) -> Array:
    return planes.sum(axis=2).sum(axis=0)


def _channel_dots(a: Array, b: Array) -> Array:
    if array_module(a) is not np:
        return (a * b).sum(axis=(0, 2))  # on a GPU, einsum starts ten kernels
    return np.einsum("ncp,ncp->nc", a, b).sum(axis=0)


_DATA_NORM_ATTRS = {"epsilon": Limit(1e-4, 0, 1e-3), "data_layout": "NCHW"}


@operator(
    "data_norm",
    "X BatchSize BatchSum BatchSquareSum -> Y Means~ Scales~",
    attrs=_DATA_NORM_ATTRS,
    infer="X(N, C), BatchSize(C), BatchSum(C), BatchSquareSum(C) -> X, X(C, lod=0), X(C, lod=0)",
)
def data_norm(x: Array, size: Array, total: Array, squares: Array) -> tuple[Array, Array, Array]:
    """Return Y = (X - Means) Scales, with Means = BatchSum/BatchSize and Scales = √(BatchSize/BatchSquareSum)."""
    means, scales = total / size, array_module(x).sqrt(size / squares)
    return (x - means) * scales, means, scales


@gradient(
    "data_norm",
    "X Means Scales Y@GRAD -> X@GRAD BatchSize@GRAD BatchSum@GRAD BatchSquareSum@GRAD",
)
def data_norm_grad(
    x: Array, means: Array, scales: Array, dy: Array, *, epsilon: float
) -> tuple[Array, Array, Array, Array]:
    """Return dX = dY Scales; the other outputs are not derivatives but this batch's additions to the statistics."""
    size = array_module(x).full(means.shape, len(x), x.dtype)
    squares = ((x - means) ** 2).sum(axis=0) + size * x.dtype.type(epsilon)
    return dy * scales, size, x.sum(axis=0), squares
