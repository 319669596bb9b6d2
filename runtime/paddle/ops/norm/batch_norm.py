# SPDX-License-Identifier: Apache-2.0
"""batch_norm: shifts and scales each channel to mean Bias and standard deviation Scale.

Training uses the mean and biased variance of the batch and updates the running ones: new = old momentum + batch
(1 - momentum). Test mode and use_global_stats use the running ones. SavedVariance holds 1 / √(variance + epsilon).

sync_batch_norm computes the same; each device has its own statistics.
"""

from __future__ import annotations

from math import prod

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree

_ATTRS = {
    "is_test": False,
    "momentum": 0.9,
    "epsilon": 1e-5,
    "data_layout": "NCHW",
    "use_global_stats": False,
}


def _infer(
    x: Spec, scale: Spec, bias: Spec, mean: Spec, variance: Spec, *, data_layout: str
) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    if data_layout not in ("NCHW", "NHWC"):
        raise AttrError(f"data_layout: expected 'NCHW' or 'NHWC', got {data_layout!r}")
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


@operator("batch_norm", _SLOTS, attrs=_ATTRS, infer=_infer)
@operator("sync_batch_norm", _SLOTS, attrs=_ATTRS, infer=_infer)
def batch_norm(
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
) -> tuple[Array, Array, Array, Array, Array]:
    """Return Y, the running mean and variance, and the statistics in the form that the gradient needs."""
    xp = array_module(x)
    planes = _planes(x, data_layout)
    if is_test or use_global_stats or not x.size:
        used_mean, used_variance = mean.reshape(-1), variance.reshape(-1)
        new_mean, new_variance = mean, variance
        y = planes - used_mean[:, None]
    else:
        used_mean = _channel_sums(planes) / x.dtype.type(_count(planes))
        y = planes - used_mean[:, None]
        used_variance = _channel_dots(y, y) / x.dtype.type(_count(planes))
        new_mean = mean * momentum + used_mean.reshape(mean.shape) * (1 - momentum)
        new_variance = variance * momentum + used_variance.reshape(variance.shape) * (1 - momentum)
    inverse = 1 / xp.sqrt(used_variance + x.dtype.type(epsilon))
    y *= (inverse * scale.reshape(-1))[:, None]
    y += bias.reshape(-1)[:, None]
    saved = used_mean.reshape(mean.shape), inverse.reshape(mean.shape)
    return _restored(y, x.shape, data_layout), new_mean, new_variance, *saved


@gradient("batch_norm", _GRADIENT)
@gradient("sync_batch_norm", _GRADIENT)
def batch_norm_grad(
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
) -> tuple[Array | None, Array, Array]:
    """dBias = Σ dY, dScale = Σ dY X̂, dX = Scale / σ (dY - (dBias + X̂ dScale) / m).

    With running statistics, dX = Scale / σ dY.
    """
    centered = _planes(x, data_layout) - saved_mean.reshape(-1)[:, None]
    dplanes = _planes(dy, data_layout)
    inverse = saved_variance.reshape(-1)
    dbias = _channel_sums(dplanes)
    dscale = _channel_dots(dplanes, centered) * inverse
    dx = None
    if "X@GRAD" in needs:
        if is_test or use_global_stats or not x.size:
            dx = dplanes * (inverse * scale.reshape(-1))[:, None]
        else:
            count = x.dtype.type(_count(centered))
            dx = centered
            dx *= (-dscale * inverse / count)[:, None]
            dx += dplanes
            dx -= (dbias / count)[:, None]
            dx *= (inverse * scale.reshape(-1))[:, None]
        dx = _restored(dx, x.shape, data_layout)
    return dx, dscale.reshape(scale.shape), dbias.reshape(bias.shape)


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


def _count(planes: Array) -> int:
    return int(planes.shape[0] * planes.shape[2])


def _channel_sums(planes: Array) -> Array:
    return planes.sum(axis=2).sum(axis=0)


def _channel_dots(a: Array, b: Array) -> Array:
    return array_module(a).einsum("ncp,ncp->nc", a, b).sum(axis=0)
