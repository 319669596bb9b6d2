# SPDX-License-Identifier: Apache-2.0
"""temporal_shift: moves some channels of each video frame to the neighboring frames.

Source: Lin, Gan and Han, 2019.
"""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator


def _infer(x: Spec, *, seg_num: int, shift_ratio: float) -> Spec:
    if len(x.shape) != 4 or seg_num < 1 or (x.shape[0] >= 0 and x.shape[0] % seg_num):
        raise ShapeError(f"expected X (N * seg_num, C, H, W), got {x.shape} and seg_num {seg_num}")
    if not 0 < shift_ratio < 0.5:
        raise AttrError(f"shift_ratio: expected a number between 0 and 0.5, got {shift_ratio}")
    return x


@operator("temporal_shift", "X -> Out", attrs={"seg_num": int, "shift_ratio": 0.25}, infer=_infer, fresh=True)
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
