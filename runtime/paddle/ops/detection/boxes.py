# SPDX-License-Identifier: Apache-2.0
"""Functions for boxes (left, top, right, bottom) on the host, and iou_similarity, the intersection over union.

A `whole` box includes both end pixels, so its sides are 1 longer than the differences of their ends.

box_coder and box_decoder_and_assign: encode boxes as shifts and scales of prior boxes, and decode them. For a prior box
with center p, sides s and variances v, the code of a box with center c and sides t is
((c − p) / s / v, log(t / s) / v).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.lod import Offsets, lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.shapes import agree


def areas(boxes: Array, whole: bool = False) -> Array:
    """Return the area of each box (..., 4), 0 where an end precedes its start."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return np.where((sides < 0).any(axis=-1), 0, (sides + whole).prod(axis=-1))


def overlaps(left: Array, right: Array, whole: bool = False) -> Array:
    """Return the intersection over union (n, m) of n boxes with m boxes; 0 for boxes without area.

    Boxes are (n, 4) and (m, 4); boxes with other leading shapes are broadcast and give one value per pair.
    """
    a, b = (left[:, None], right[None]) if left.ndim == 2 and right.ndim == 2 else (left, right)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]) + whole
    common = sides.clip(0).prod(axis=-1)
    union = areas(a, whole) + areas(b, whole) - common
    return common / np.where(union > 0, union, 1)


def corners(centers: Array, sides: Array) -> Array:
    """Convert centers and sides (..., 2) to boxes (..., 4)."""
    return np.concatenate([centers - sides / 2, centers + sides / 2], axis=-1)


def images_of(value: Any, rows: int) -> Offsets:
    """Return the row offsets of images: an image per sequence of the last level or, without LoD, a single image."""
    levels = lod_of(value)
    return levels[-1] if levels else np.array([0, rows])


def host(value: Any) -> Array:
    """Return the rows of a value as a numpy array in host memory."""
    return to_host(plain(value))


def expect_boxes(spec: Spec, slot: str) -> None:
    """Check that the shape is (rows, 4).

    Raises:
        ShapeError: the shape is different.
    """
    if len(spec.shape) != 2 or spec.shape[1] not in (4, -1):
        raise ShapeError(f"{slot}: expected boxes (rows, 4), got {spec.shape}")


@operator("iou_similarity", "X Y -> Out", infer="X(N, 4), Y(M, 4) -> X(N, M)")
def iou_similarity(x: Array, y: Array) -> Array:
    """Return the intersection over union (n, m) of boxes x (n, 4) with boxes y (m, 4)."""
    return from_host(overlaps(to_host(x), to_host(y)), x)


_ATTRS = {
    "code_type": one_of("encode_center_size", "decode_center_size"),
    "box_normalized": True,
    "axis": one_of(0, 1),
    "variance": (),
}


def encoded(boxes: Array, priors: Array, whole: bool) -> Array:
    """Return the codes (..., 4) of boxes relative to priors, without variances; the arguments are broadcast."""
    centers, sides = (
        (priors[..., :2] + priors[..., 2:] + whole) / 2,
        priors[..., 2:] - priors[..., :2] + whole,
    )
    middles = (boxes[..., :2] + boxes[..., 2:]) / 2
    widths = boxes[..., 2:] - boxes[..., :2] + whole
    return np.concatenate([(middles - centers) / sides, np.log(np.abs(widths / sides))], axis=-1)


def deltas(boxes: Array, priors: Array, weights: tuple[float, ...] = ()) -> Array:
    """Return the codes (n, 4) of boxes in pixels relative to priors, as region networks use them, divided by weights.

    Unlike in `encoded`, the center of a box includes its last pixel.
    """
    moved = encoded(boxes, priors, True)
    moved[..., :2] += 0.5 / (priors[..., 2:] - priors[..., :2] + 1)
    return moved / np.array(weights, moved.dtype) if weights else moved


def decoded(codes: Array, priors: Array, whole: bool, longest: float = np.inf) -> Array:
    """Decode boxes (..., 4) from codes without variances; the logarithm of a scale is at most `longest`."""
    sides = priors[..., 2:] - priors[..., :2] + whole
    centers = priors[..., :2] + sides / 2
    found = corners(codes[..., :2] * sides + centers, np.exp(codes[..., 2:].clip(None, longest)) * sides)
    found[..., 2:] -= whole
    return found


def _infer(prior: Spec, variances: Spec | None, target: Spec, *, attrs: dict[str, Any]) -> Spec:
    expect_boxes(prior, "PriorBox")
    if len(attrs["variance"]) not in (0, 4):
        raise AttrError(f"variance: expected 4 numbers, got {attrs['variance']}")
    if attrs["code_type"] == "encode_center_size":
        expect_boxes(target, "TargetBox")
        return Spec((target.shape[0], prior.shape[0], 4), target.dtype, target.lod_level)
    if len(target.shape) != 3 or not agree(target.shape[1 - attrs["axis"]], prior.shape[0]):
        raise ShapeError(
            f"TargetBox: expected codes (N, M, 4) with the priors {prior.shape} along axis {1 - attrs['axis']}, got "
            f"{target.shape}"
        )
    return Spec(target.shape, target.dtype, (prior if attrs["axis"] else target).lod_level)


@operator("box_coder", "PriorBox+ PriorBoxVar? TargetBox+ -> OutputBox+", attrs=_ATTRS, infer=_infer)
def box_coder(prior: Any, variances: Array | None, target: Any, *, attrs: dict[str, Any]) -> Any:
    """Encode boxes (N, 4) relative to M priors as (N, M, 4), or decode such codes into boxes (N, M, 4).

    Args:
        prior: (M, 4); with axis 1 a decoded row belongs to a prior, otherwise a column.
        variances: (M, 4) or (4,); None means the attribute `variance`, or 1.
        target: boxes, or codes.
    """
    priors, values, whole = host(prior), host(target), not attrs["box_normalized"]
    scale = np.array(attrs["variance"] or 1.0, values.dtype) if variances is None else to_host(variances)
    if attrs["code_type"] == "encode_center_size":
        codes = encoded(values[:, None], priors[None], whole) / scale
        return with_lod(from_host(codes.astype(values.dtype), plain(target)), lod_of(target))
    if attrs["axis"]:
        priors, scale = priors[:, None], scale[:, None] if scale.ndim == 2 else scale
    boxes = decoded(values * scale, priors, whole)
    lod = lod_of(prior if attrs["axis"] else target)
    return with_lod(from_host(boxes.astype(values.dtype), plain(target)), lod)


@operator(
    "box_decoder_and_assign",
    "PriorBox PriorBoxVar TargetBox BoxScore -> DecodeBox OutputAssignBox",
    infer=(
        "PriorBox(M, 4), BoxScore(N, C), TargetBox(N, C * 4) -> TargetBox(N, C * 4, lod=0), "
        "TargetBox(M, 4, lod=0)"
    ),
)
def box_decoder_and_assign(
    prior: Array, variances: Array, target: Array, score: Array, *, box_clip: float = 4.135
) -> tuple[Array, Array]:
    """Decode boxes (N, 4C) in pixels from codes per class; also return the most probable class's box (N, 4).

    Class 0 is the background; a row without any other class keeps its prior box.

    Args:
        prior: (N, 4).
        variances: (4,).
        target: (N, 4C) codes; the logarithm of a scale is at most box_clip.
        score: (N, C).
    """
    priors, chances = to_host(prior), to_host(score)
    codes = to_host(target).reshape(len(priors), -1, 4) * to_host(variances).reshape(-1)
    boxes = decoded(codes, priors[:, None], True, box_clip).astype(codes.dtype)
    assigned = priors.astype(codes.dtype)
    if chances.shape[1] > 1 and len(priors):
        best = chances[:, 1:].argmax(axis=1) + 1
        assigned = boxes[np.arange(len(priors)), best]
    return from_host(boxes.reshape(len(priors), -1), target), from_host(assigned, target)
