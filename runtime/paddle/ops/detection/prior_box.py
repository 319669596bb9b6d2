# SPDX-License-Identifier: Apache-2.0
"""Default boxes in each cell of a feature map: prior_box and density_prior_box (SSD), anchor_generator (R-CNN).

Prior boxes are in fractions of the image, anchors in pixels. box_clip clips boxes to images.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import AttrError, InputError, ShapeError
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import owners
from paddle.ops.base.shapes import product
from paddle.ops.detection.boxes import corners, host, images_of

_GRID = {
    "variances": Limit((0.1, 0.1, 0.2, 0.2), length=4),
    "clip": False,
    "step_w": 0.0,
    "step_h": 0.0,
    "offset": 0.5,
}


def expanded_ratios(ratios: tuple[float, ...], flip: bool) -> list[float]:
    """Return the aspect ratios without duplicates, beginning with 1; with `flip`, each is followed by its inverse."""
    found = [1.0]
    for ratio in ratios:
        if all(abs(ratio - each) >= 1e-6 for each in found):
            found += [ratio, 1.0 / ratio] if flip else [ratio]
    return found


def _shared(features: Spec, image: Spec, attrs: dict[str, Any], count: int) -> tuple[Spec, Spec]:
    if len(features.shape) != 4 or len(image.shape) != 4:
        raise ShapeError(f"expected Input and Image (N, C, H, W), got {features.shape} and {image.shape}")
    shape = (*features.shape[2:], count, 4)
    flat = (product(shape[:3]), 4)
    spec = Spec(flat if attrs.get("flatten_to_2d") else shape, features.dtype)
    return spec, spec


def _infer(features: Spec, image: Spec, *, attrs: dict[str, Any]) -> tuple[Spec, Spec]:
    least, most = attrs["min_sizes"], attrs["max_sizes"]
    if not least or (most and len(most) != len(least)):
        raise AttrError(
            f"expected at least one size in min_sizes, and no max_sizes or one per min_size; got min_sizes={least}, "
            f"max_sizes={most}"
        )
    if any(a <= 0 for a in least) or any(b <= a for a, b in zip(least, most, strict=False)):
        raise AttrError(
            f"expected positive min_sizes and greater max_sizes, got min_sizes={least}, max_sizes={most}"
        )
    count = len(expanded_ratios(attrs["aspect_ratios"], attrs["flip"])) * len(least) + len(most)
    return _shared(features, image, attrs, count)


@operator(
    "prior_box",
    "Input Image -> Boxes Variances",
    attrs={
        "min_sizes": tuple,
        "max_sizes": (),
        "aspect_ratios": (),
        "flip": False,
        "min_max_aspect_ratios_order": False,
        **_GRID,
    },
    infer=_infer,
    shares_lod=False,
)
def prior_box(features: Array, image: Array, *, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return prior boxes for each cell of the features (N, C, H, W), and their variances, (H, W, boxes, 4) each.

    Each min_size has a box of each aspect ratio and, with a max_size, a square of side √(min_size max_size): last,
    or second with min_max_aspect_ratios_order.
    """
    ratios = np.array(expanded_ratios(attrs["aspect_ratios"], attrs["flip"]))
    sides = []
    for number, least in enumerate(attrs["min_sizes"]):
        boxes = np.stack([least * np.sqrt(ratios), least / np.sqrt(ratios)], axis=1)
        if attrs["max_sizes"]:
            square = np.full((1, 2), np.sqrt(least * attrs["max_sizes"][number]))
            at = 1 if attrs["min_max_aspect_ratios_order"] else len(boxes)
            boxes = np.concatenate([boxes[:at], square, boxes[at:]])
        sides.append(boxes)
    centers = _centers(features, image, attrs)[:, :, None]
    return _placed(corners(centers, np.concatenate(sides)), features, image, attrs)


def _infer_density(features: Spec, image: Spec, *, attrs: dict[str, Any]) -> tuple[Spec, Spec]:
    sizes, densities = attrs["fixed_sizes"], attrs["densities"]
    if len(sizes) != len(densities) or any(each <= 0 for each in (*sizes, *densities)):
        raise AttrError(
            f"expected one positive density per positive fixed size, got densities={densities}, fixed_sizes={sizes}"
        )
    count = sum(each * each for each in densities) * len(attrs["fixed_ratios"])
    return _shared(features, image, attrs, count)


@operator(
    "density_prior_box",
    "Input Image -> Boxes Variances",
    attrs={"fixed_sizes": (), "fixed_ratios": (), "densities": (), "flatten_to_2d": False, **_GRID},
    infer=_infer_density,
    shares_lod=False,
)
def density_prior_box(features: Array, image: Array, *, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return dense prior boxes and their variances, (H, W, boxes, 4), or (H W boxes, 4) with flatten_to_2d.

    A size of density d gives d × d boxes of each ratio, evenly spaced. Without `clip`, each side is limited only in its
    own direction (left, top, right, bottom), so a box outside the image may have its right or bottom end before its
    left or top end.
    """
    step = int(sum(_steps(features, image, attrs)) * 0.5)
    shifts, sides = [], []
    for size, density in zip(attrs["fixed_sizes"], attrs["densities"], strict=True):
        apart = step // density
        line = np.arange(density) * float(apart) + apart / 2.0 - step / 2.0
        grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
        for ratio in attrs["fixed_ratios"]:
            shifts.append(grid)
            sides.append(np.tile([[size * np.sqrt(ratio), size / np.sqrt(ratio)]], (len(grid), 1)))
    centers = _centers(features, image, attrs)[:, :, None] + np.concatenate(shifts)
    boxes, variances = _placed(corners(centers, np.concatenate(sides)), features, image, attrs)
    if not attrs["clip"]:
        boxes = array_module(boxes).concatenate(
            [boxes[..., :2].clip(0, None), boxes[..., 2:].clip(None, 1)], axis=-1
        )
    return (boxes.reshape(-1, 4), variances.reshape(-1, 4)) if attrs["flatten_to_2d"] else (boxes, variances)


def _steps(features: Array, image: Array, attrs: dict[str, Any]) -> tuple[float, float]:
    """Return the steps (across, down) in pixels; by default, those with which the cells cover the image."""
    if attrs["step_w"] == 0 or attrs["step_h"] == 0:
        return image.shape[3] / features.shape[3], image.shape[2] / features.shape[2]
    return attrs["step_w"], attrs["step_h"]


def _centers(features: Array, image: Array, attrs: dict[str, Any]) -> Array:
    """Return the center (x, y) of each cell in pixels, (H, W, 2)."""
    across, down = _steps(features, image, attrs)
    x = (np.arange(features.shape[3]) + attrs["offset"]) * across
    y = (np.arange(features.shape[2]) + attrs["offset"]) * down
    return np.stack(np.meshgrid(x, y), axis=-1)


def _placed(boxes: Array, features: Array, image: Array, attrs: dict[str, Any]) -> tuple[Array, Array]:
    size = np.array([image.shape[3], image.shape[2]] * 2)
    parts = boxes / size
    cut = parts.clip(0, 1) if attrs["clip"] else parts
    variances = np.broadcast_to(np.array(attrs["variances"]), cut.shape)
    return from_host(cut.astype(features.dtype), features), from_host(
        variances.astype(features.dtype), features
    )


def rounded(values: Array) -> Array:
    """Round each element to the nearest integer, with halves rounded away from zero as in C."""
    whole = np.trunc(values)
    return whole + np.trunc(2 * (values - whole))


def within(boxes: Array, height: Any, width: Any) -> Array:
    """Clip boxes (..., 4) to the pixels of an image; the sizes may be arrays, which are broadcast."""
    last = np.stack(np.broadcast_arrays(width - 1, height - 1, width - 1, height - 1), axis=-1)
    return np.maximum(np.minimum(boxes, last), 0)


@operator(
    "anchor_generator",
    "Input -> Anchors Variances",
    attrs={
        "anchor_sizes": tuple,
        "aspect_ratios": tuple,
        "variances": Limit((0.1, 0.1, 0.2, 0.2), length=4),
        "stride": Limit(tuple, length=2),
        "offset": 0.5,
    },
    infer=(
        "Input(N, C, H, W) -> Input(H, W, len(anchor_sizes) * len(aspect_ratios), 4, lod=0), "
        "Input(H, W, len(anchor_sizes) * len(aspect_ratios), 4, lod=0)"
    ),
    shares_lod=False,
)
def anchor_generator(features: Array, *, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return anchor boxes (H, W, boxes, 4) in pixels and their variances, for each cell of a feature map.

    Every size is combined with every ratio (height / width). The base box of a ratio has the area of a stride and
    integer sides; a size scales it relative to the stride.
    """
    strides = np.array(attrs["stride"], float)
    ratios = np.array(attrs["aspect_ratios"], float)
    widths = rounded(np.sqrt(strides.prod() / ratios))
    base = np.stack([widths, rounded(widths * ratios)], axis=1)
    scales = np.array(attrs["anchor_sizes"], float)[:, None] / strides
    half = (0.5 * (base[:, None] * scales - 1)).reshape(-1, 2)
    x, y = (
        np.arange(size) * stride + attrs["offset"] * (stride - 1)
        for size, stride in zip((features.shape[3], features.shape[2]), strides, strict=True)
    )
    centers = np.stack(np.meshgrid(x, y), axis=-1)[:, :, None]
    boxes = np.concatenate([centers - half, centers + half], axis=-1)
    variances = np.broadcast_to(np.array(attrs["variances"]), boxes.shape)
    found = (from_host(each.astype(features.dtype), features) for each in (boxes, variances))
    anchors, spread = found
    return anchors, spread


@operator("box_clip", "Input+ ImInfo -> Output+", infer="Input(..., 4), ImInfo(_, 3) -> Input")
def box_clip(boxes: Any, info: Array) -> Any:
    """Clip boxes to their image; its size is (height, width) / scale, from its row of ImInfo.

    Args:
        boxes: (rows, ..., 4), one sequence per image.
        info: (N, 3) height, width and scale of each image.
    """
    data, images = host(boxes), to_host(info)
    offsets = images_of(boxes, len(data))
    if len(offsets) - 1 != len(images):
        raise InputError(f"Input has boxes of {len(offsets) - 1} images, but ImInfo has {len(images)} rows")
    sizes = rounded(images[:, :2] / images[:, 2:3])[owners(offsets)]
    height, width = (sizes[:, at].reshape(-1, *[1] * (data.ndim - 2)) for at in (0, 1))
    cut = within(data, height, width).astype(data.dtype)
    return with_lod(from_host(cut, plain(boxes)), lod_of(boxes))
