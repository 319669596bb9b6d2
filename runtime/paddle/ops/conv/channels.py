# SPDX-License-Identifier: Apache-2.0
"""Operators on channels: space_to_depth, shuffle_channel, pixel_shuffle, affine_channel; and scale_sub_region.

scale_sub_region multiplies a part of each image by a factor.
"""

from __future__ import annotations

from paddle.backend import Array, to_host
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import product


@operator(
    "space_to_depth",
    "X -> Out",
    attrs={"blocksize": int},
    infer="X(N, C * blocksize**2, H * blocksize, W * blocksize) -> X(N, C * blocksize**4, H, W)",
)
def space_to_depth(x: Array, *, blocksize: int) -> Array:
    """Move b × b blocks of pixels to channels, in Paddle's order: return images (N, b² C, H/b, W/b).

    The operator first arranges the channels of X as blocks of C/b² images (b H, b W): channel (i b + j) C/b² + c is row
    i, column j of each block of image c. The resulting numbers are then reshaped to the output's shape.
    """
    n, channels, height, width = x.shape
    blocks = x.reshape(n, blocksize, blocksize, channels // blocksize**2, height, width)
    moved = blocks.transpose(0, 3, 4, 1, 5, 2)
    return moved.reshape(n, channels * blocksize**2, height // blocksize, width // blocksize)


@gradient("space_to_depth", "X Out@GRAD -> X@GRAD")
def space_to_depth_grad(x: Array, dout: Array, *, blocksize: int) -> Array:
    """Return dX, which is dOut with its elements moved back by the inverse permutation."""
    n, channels, height, width = x.shape
    blocks = dout.reshape(n, channels // blocksize**2, height, blocksize, width, blocksize)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(x.shape)


@operator("shuffle_channel", "X -> Out", attrs={"group": int}, infer="X(N, C * group, H, W) -> X")
def shuffle_channel(x: Array, *, group: int) -> Array:
    """Shuffle channels (ShuffleNet): the first channel of each group, then the second of each group, and so on."""
    n, channels, *size = x.shape
    return x.reshape(n, group, channels // group, *size).swapaxes(1, 2).reshape(x.shape)


@gradient("shuffle_channel", "Out@GRAD -> X@GRAD")
def shuffle_channel_grad(dout: Array, *, group: int) -> Array:
    """Return dX by the inverse shuffle, which exchanges the number of groups and the number of channels per group."""
    return shuffle_channel(dout, group=dout.shape[1] // group)


@operator(
    "pixel_shuffle",
    "X -> Out",
    infer="X(N, C * upscale_factor**2, H, W) -> X(N, C, H * upscale_factor, W * upscale_factor)",
)
def pixel_shuffle(x: Array, *, upscale_factor: int = 1) -> Array:
    """Rearrange channels as pixels: return (N, C/f², f H, f W), where f² channels of a pixel become f × f pixels."""
    n, channels, height, width = x.shape
    parts = x.reshape(n, channels // upscale_factor**2, upscale_factor, upscale_factor, height, width)
    grown = (n, channels // upscale_factor**2, height * upscale_factor, width * upscale_factor)
    return parts.transpose(0, 1, 4, 2, 5, 3).reshape(grown)


@gradient("pixel_shuffle", "X Out@GRAD -> X@GRAD")
def pixel_shuffle_grad(x: Array, dout: Array, *, upscale_factor: int) -> Array:
    """Return dX, which is dOut with its elements moved back by the inverse permutation."""
    n, channels, height, width = x.shape
    count = channels // upscale_factor**2
    parts = dout.reshape(n, count, height, upscale_factor, width, upscale_factor)
    return parts.transpose(0, 1, 3, 5, 2, 4).reshape(x.shape)


def _infer_affine(x: Spec, scale: Spec, bias: Spec, *, data_layout: str) -> Spec:
    if len(x.shape) < 2:
        raise ShapeError(f"expected X with at least 2 dimensions, got {x.shape}")
    channels = x.shape[_channel_axis(data_layout)]
    if product(scale.shape) != channels or product(bias.shape) != channels:
        raise ShapeError(
            f"Scale and Bias need one element for each of the {channels} channels of X ({data_layout}, shape "
            f"{x.shape}), got shapes {scale.shape} and {bias.shape}"
        )
    return x


@operator(
    "affine_channel",
    "X Scale Bias -> Out",
    attrs={"data_layout": one_of("NCHW", "NHWC", "AnyLayout")},
    infer=_infer_affine,
)
def affine_channel(x: Array, scale: Array, bias: Array, *, data_layout: str) -> Array:
    """Scale and shift each channel: Out = Scale X + Bias, with one Scale and one Bias per channel."""
    return x * _by_channel(scale, x, data_layout) + _by_channel(bias, x, data_layout)


@gradient("affine_channel", "X Scale Bias Out@GRAD -> X@GRAD Scale@GRAD Bias@GRAD")
def affine_channel_grad(
    x: Array, scale: Array, bias: Array, dout: Array, *, data_layout: str
) -> tuple[Array, Array, Array]:
    """Return dX = Scale dOut; dScale and dBias are sums over each channel."""
    axes = tuple(at for at in range(x.ndim) if at != _channel_axis(data_layout) % x.ndim)
    dscale, dbias = (dout * x).sum(axis=axes), dout.sum(axis=axes)
    dx = dout * _by_channel(scale, x, data_layout)
    return dx, dscale.reshape(scale.shape), dbias.reshape(bias.shape)


def _channel_axis(data_layout: str) -> int:
    return 1 if data_layout == "NCHW" else -1


def _by_channel(values: Array, x: Array, data_layout: str) -> Array:
    return values.reshape(-1, *(1,) * (x.ndim - 2 if data_layout == "NCHW" else 0))


@operator("scale_sub_region", "X Indices -> Out", infer="X(N, C, H, W), Indices(_, 6) -> X")
def scale_sub_region(x: Array, indices: Array, *, value: float = 1.0) -> Array:
    """Multiply a part of each image (N, C, H, W) by `value`.

    Indices (N, 6) are the first and last channel, row and column of the part, counted from 1.
    """
    out: Array = x.copy()
    for image, (c, c_end, h, h_end, w, w_end) in zip(out, to_host(indices).astype(int), strict=True):
        image[c - 1 : c_end, h - 1 : h_end, w - 1 : w_end] *= value
    return out


@gradient("scale_sub_region", "Indices Out@GRAD -> X@GRAD")
def scale_sub_region_grad(indices: Array, dout: Array, *, value: float) -> Array:
    """Return dX, which is dOut multiplied by `value` in the same part of each image."""
    return scale_sub_region(dout, indices, value=value)
