# SPDX-License-Identifier: Apache-2.0
"""conv_shift: circular convolution of each row with a short row of weights (neural Turing machines).

temporal_shift: moves some channels of each video frame to the neighboring frames (Lin, Gan and Han, 2019).
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module, from_host
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree


def _infer_conv_shift(x: Spec, y: Spec) -> Spec:
    if len(x.shape) != 2 or len(y.shape) != 2 or not agree(x.shape[0], y.shape[0]):
        raise ShapeError(f"expected X (rows, M) and Y (rows, N), got {x.shape} and {y.shape}")
    if y.shape[1] >= 0 and (y.shape[1] % 2 == 0 or (x.shape[1] >= 0 and y.shape[1] > x.shape[1])):
        raise ShapeError(f"the width of Y must be odd and at most that of X {x.shape}, got {y.shape}")
    return x


@operator("conv_shift", "X Y -> Out", infer=_infer_conv_shift)
def conv_shift(x: Array, y: Array) -> Array:
    """Return the circular convolution of rows X (B, M) and Y (B, N): Out[i] = Σ_j X[(i + j - (N - 1)/2) mod M] Y[j]."""
    return (x[:, _places(x, y)] * y[:, None, :]).sum(axis=2)


@gradient("conv_shift", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def conv_shift_grad(x: Array, y: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX, the convolution of dOut with reversed Y, and dY[j] = Σ_i dOut[i] X[(i + j - (N - 1)/2) mod M]."""
    return conv_shift(dout, y[:, ::-1]), (x[:, _places(x, y)] * dout[:, :, None]).sum(axis=1)


def _places(x: Array, y: Array) -> Array:
    """Return the column of X that each element [i, j] reads, (M, N)."""
    width, weights = x.shape[1], y.shape[1]
    places = np.arange(width)[:, None] + np.arange(weights)[None, :] - (weights - 1) // 2
    return from_host(places % max(width, 1), x)


def _infer_temporal_shift(x: Spec, *, seg_num: int, shift_ratio: float) -> Spec:
    if len(x.shape) != 4 or seg_num < 1 or (x.shape[0] >= 0 and x.shape[0] % seg_num):
        raise ShapeError(f"expected X (N * seg_num, C, H, W), got {x.shape} and seg_num {seg_num}")
    if not 0 < shift_ratio < 0.5:
        raise AttrError(f"shift_ratio: expected a number between 0 and 0.5, got {shift_ratio}")
    return x


@operator(
    "temporal_shift",
    "X -> Out",
    attrs={"seg_num": int, "shift_ratio": 0.25},
    infer=_infer_temporal_shift,
    fresh=True,
)
def temporal_shift(x: Array, *, seg_num: int, shift_ratio: float) -> Array:
    """Shift some channels of video frames (N · seg_num, C, H, W) along the time axis.

    The first C * shift_ratio channels come from the previous frame, and the next C * shift_ratio from the next frame.
    At the ends of a video of seg_num frames, zeros take their place.
    """
    return _shifted(x, seg_num, shift_ratio, 1)


@gradient("temporal_shift", "Out@GRAD -> X@GRAD", fresh=True)
def temporal_shift_grad(dout: Array, *, seg_num: int, shift_ratio: float) -> Array:
    """Return dX, the channels of dOut shifted in time in the opposite direction."""
    return _shifted(dout, seg_num, shift_ratio, -1)


def _shifted(x: Array, frames: int, ratio: float, towards: int) -> Array:
    videos = x.reshape(len(x) // frames, frames, *x.shape[1:])
    out = array_module(x).zeros_like(videos)
    first, second = int(x.shape[1] * ratio), int(x.shape[1] * 2 * ratio)
    for channels, step in ((slice(first), towards), (slice(first, second), -towards)):
        into, of = slice(max(step, 0), frames + min(step, 0)), slice(max(-step, 0), frames - max(step, 0))
        out[:, into, channels] = videos[:, of, channels]
    out[:, :, second:] = videos[:, :, second:]
    return out.reshape(x.shape)
