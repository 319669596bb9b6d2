# SPDX-License-Identifier: Apache-2.0
"""Layers that resize, crop, pad, shift and resample images; adaptive pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.convolutions import sizes
from paddle.fluid.layers.plain import layer
from paddle.fluid.program.variable import Variable
from paddle.signatures import function

__all__ = [
    "adaptive_pool2d", "adaptive_pool3d", "affine_channel", "affine_grid", "grid_sampler", "im2sequence",
    "image_resize", "image_resize_short", "pad2d", "pixel_shuffle", "random_crop", "resize_bilinear",
    "resize_nearest", "shuffle_channel", "space_to_depth", "temporal_shift",
]  # fmt: skip

_RESAMPLES = {"BILINEAR": "bilinear_interp", "NEAREST": "nearest_interp"}


def _adaptive(dims: int) -> Callable[..., Any]:
    def pool(given: dict[str, Any]) -> Variable | tuple[Variable, ...]:
        kind, helper = given["pool_type"], LayerHelper(f"adaptive_pool{dims}d", given["name"])
        if kind not in ("max", "avg") or (given["require_index"] and kind == "avg"):
            raise FluidError(
                f"adaptive_pool{dims}d: expected pool_type 'max' or 'avg', and 'max' with require_index=True; got "
                f"{kind!r} with require_index={given['require_index']}"
            )
        attrs = {"ksize": sizes(given["pool_size"], dims), "adaptive": True}
        inputs = {"X": given["input"]}
        if given["require_index"]:
            return tuple(helper.apply_all(f"max_pool{dims}d_with_index", inputs, attrs, fixed=["Mask"]))
        return helper.apply(f"pool{dims}d", inputs, {**attrs, "pooling_type": kind})

    return function(
        f"adaptive_pool{dims}d(input, pool_size, pool_type='max', require_index=False, name=None)",
        """Return the maximum or the mean of each of `pool_size` cells evenly spread over the input.

    With require_index, also the position of each maximum, int32: pixels counted row by row.
    """,
        pool,
    )


adaptive_pool2d = _adaptive(2)
adaptive_pool3d = _adaptive(3)


def image_resize(
    input: Variable,
    out_shape: Sequence[int] | Variable | None = None,
    scale: float | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
) -> Variable:
    """Resize images (N, C, H, W) to a new height and width by interpolation.

    Args:
        out_shape: (height, width) in pixels, or a variable that contains them; overrides `scale`.
        scale: factor of the input's height and width.
        resample: "BILINEAR" or "NEAREST".
        actual_shape: a variable that contains (height, width); overrides both.
        align_corners: whether the centers of the corner pixels coincide with the input's.
        align_mode: reference point of positions: 0: pixel centers; 1: pixel corners. Ignored if corners are aligned.

    Raises:
        FluidError: resample is unknown, or no size is given.
    """
    if resample not in _RESAMPLES:
        raise FluidError(
            f"image_resize: expected resample to be one of {', '.join(_RESAMPLES)}, got {resample!r}"
        )
    wanted = out_shape if actual_shape is None else actual_shape
    inputs = {"X": input}
    attrs: dict[str, object] = {"align_corners": align_corners, "align_mode": align_mode}
    if isinstance(wanted, Variable):
        inputs["OutSize"] = wanted
    elif wanted is not None:
        attrs["out_h"], attrs["out_w"] = sizes(wanted, 2)
    elif scale is not None:
        attrs["scale"] = float(scale)
    else:
        raise FluidError("image_resize: give out_shape or scale")
    if resample == "NEAREST":
        del attrs["align_mode"]
    op_type = _RESAMPLES[resample]
    return LayerHelper(op_type, name).apply(op_type, inputs, attrs)


resize_bilinear = function(
    "resize_bilinear(input, out_shape=None, scale=None, name=None, actual_shape=None, align_corners=True, "
    "align_mode=1)",
    "Return images whose pixels are weighted means of the four nearest input pixels; see image_resize.",
    lambda given: image_resize(**given, resample="BILINEAR"),
)
resize_nearest = function(
    "resize_nearest(input, out_shape=None, scale=None, name=None, actual_shape=None, align_corners=True)",
    "Return images whose pixels are the nearest input pixels; see image_resize.",
    lambda given: image_resize(**given, resample="NEAREST"),
)


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resize images so that the shorter side is `out_short_len` pixels long and the aspect ratio is preserved."""
    height, width = input.shape[2:]
    short = min(height, width)
    wanted = [int(size * out_short_len / short + 0.5) for size in (height, width)]
    return image_resize(input, wanted, resample=resample)


pad2d = layer(
    "pad2d(input, paddings=[0,0,0,0], mode='constant', pad_value=0.0, data_format='NCHW', name=None)",
    """images padded by (top, bottom, left, right): with a constant, by reflection, or with copies of the edge.

    The paddings can be a variable (4,); the static height and width of the result are then -1""",
    to="paddings=paddings|Paddings",
)


def _windows(given: Mapping[str, Any]) -> dict[str, Any]:
    padding = given["padding"]
    around = sizes(padding, 2) * 2 if isinstance(padding, int) or len(padding) == 2 else tuple(padding)
    pairs = {name: sizes(given[name], 2) for name in ("filter_size", "stride", "out_stride")}
    return {**pairs, "padding": around}


im2sequence = layer(
    "im2sequence(input, filter_size=1, stride=1, padding=0, input_image_size=None, out_stride=1, name=None)",
    """images split into windows, which become the rows of one sequence per image.

    Args:
        input: images (N, C, H, W).
        filter_size: height and width of a window; one number or two.
        stride: step between windows.
        padding: one number, (vertical, horizontal), or (up, left, down, right).
        input_image_size: (N, 2), the height and width of each image before it was padded to the batch's size; windows
            in the padding are omitted.
        out_stride: factors by which earlier layers reduced the height and width from input_image_size to those of
            `input`""",
    to="filter_size=kernels stride=strides padding=paddings",
    change=_windows,
)


space_to_depth = layer(
    "space_to_depth(x, blocksize, name=None)", "images with each block of pixels moved into channels"
)
shuffle_channel = layer(
    "shuffle_channel(x, group, name=None)",
    "images with the first channel of each group first, then the second of each, and so on",
)
grid_sampler = layer(
    "grid_sampler(x, grid, name=None)",
    "images (N, C, H', W'): x (N, C, H, W) sampled at the points (x, y) of the grid (N, "
    "H', W', 2), which range from -1 to 1",
)
temporal_shift = layer(
    "temporal_shift(x, seg_num, shift_ratio=0.25, name=None)",
    "frames (N seg_num, C, H, W) with a fraction shift_ratio of the channels taken from the previous "
    "frame, and the same fraction from the next one",
)
pixel_shuffle = layer("pixel_shuffle(x, upscale_factor)", "images enlarged by moving channels into pixels")


affine_grid = layer(
    "affine_grid(theta, out_shape, name=None)",
    """the sampling grid of an affine transformation: each pixel's source position theta · (x, y, 1), (N, H, W, 2).

    Args:
        theta: (N, 2, 3).
        out_shape: (N, C, H, W) of the image, or a variable (4,) int32 that contains it""",
    to="out_shape=output_shape|OutputShape",
)


def _begun(given: Mapping[str, Any]) -> dict[str, Any]:
    seed = np.random.randint(1, 65536) if given["seed"] is None else given["seed"]
    if isinstance(seed, Variable):
        return {"following": seed}
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise FluidTypeError(f"random_crop: seed: expected a whole number or a variable, got {seed!r}")
    return {"seed": int(seed)}


random_crop = layer(
    "random_crop(x, shape, seed=None)",
    "a crop of each sample at a random position, whose `shape` applies to the last dimensions of x. The seed is a "
    "number (None: a new one whenever the program is built), or a variable (1,) int64 that receives the next seed",
    to="seed=startup_seed|Seed following=SeedOut",
    change=_begun,
)


def _both(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["scale"] is None or given["bias"] is None:
        raise FluidError("affine_channel: give scale and bias, each a variable of shape (channels,)")
    return {}


affine_channel = layer(
    "affine_channel(x, scale=None, bias=None, data_layout='NCHW', name=None, act=None)",
    "act(scale x + bias) with one scale and bias per channel: the second dimension (NCHW) or the last (NHWC)",
    change=_both,
)
