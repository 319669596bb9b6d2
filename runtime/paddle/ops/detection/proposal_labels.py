# SPDX-License-Identifier: Apache-2.0
"""Training targets of sampled region proposals.

generate_proposal_labels returns classes and box codes. generate_mask_labels rasterizes the polygons of each region's
object (Mask R-CNN).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, offsets_of, sequences
from paddle.ops.base.registry import operator
from paddle.ops.detection.anchor_targets import limited
from paddle.ops.detection.boxes import deltas, host, overlaps

_INT32 = np.dtype("int32")


@operator(
    "generate_proposal_labels",
    "RpnRois+ GtClasses+ IsCrowd+ GtBoxes+ ImInfo -> Rois+ LabelsInt32+ BboxTargets+ BboxInsideWeights+ "
    "BboxOutsideWeights+",
    attrs={
        "batch_size_per_im": int,
        "fg_fraction": float,
        "fg_thresh": float,
        "bg_thresh_hi": float,
        "bg_thresh_lo": float,
        "bbox_reg_weights": Limit(tuple, length=4),
        "class_nums": int,
        "use_random": True,
        "is_cascade_rcnn": False,
        "is_cls_agnostic": False,
    },
    infer=(
        "RpnRois(_, 4), GtBoxes(_, 4) -> RpnRois(-1, 4, lod=1), int32(-1, 1, lod=1), RpnRois(-1, 4 "
        "* class_nums, lod=1), RpnRois(-1, 4 * class_nums, lod=1), RpnRois(-1, 4 * class_nums, "
        "lod=1)"
    ),
)
def generate_proposal_labels(
    rois: Any,
    classes: Any,
    crowd: Any,
    boxes: Any,
    info: Array,
    *,
    attrs: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[Any, ...]:
    """Sample each image's proposals and objects, positive ones first; return one sequence per image, with targets.

    Rois (n, 4) are in pixels of the scaled image. LabelsInt32 (n, 1) contains classes, 0 for no object. BboxTargets (n,
    4 class_nums) contains codes in the columns of the class, where both weights are 1.

    Args:
        rois: (rows, 4) in pixels of the scaled image, one sequence per image; the same for all other inputs.
        classes: (objects, 1) int32, at least 1.
        crowd: (objects, 1) int32; an object marked 1 is not sampled itself.
        boxes: (objects, 4) in pixels before the image was scaled.
        info: (N, 3) height, width and scale.
    """
    rows, at = sequences(rois, "RpnRois")
    objects, objects_at = sequences(boxes, "GtBoxes")
    images = to_host(info)
    if not len(at) == len(objects_at) == len(images) + 1:
        raise InputError(
            f"expected the same number of images in RpnRois, GtBoxes and ImInfo, got {len(at) - 1}, "
            f"{len(objects_at) - 1} and {len(images)}"
        )
    regions, truth = to_host(rows), to_host(objects)
    labels, crowds = (host(each).reshape(-1) for each in (classes, crowd))
    parts = []
    for number, image in enumerate(images):
        own = slice(objects_at[number], objects_at[number + 1])
        mine = regions[at[number] : at[number + 1]]
        if attrs["is_cascade_rcnn"]:
            # The previous stage put the objects first.
            mine = mine[own.stop - own.start :]
        parts.append(_sampled(mine, truth[own], labels[own], crowds[own], image[2], attrs, rng))
    dtypes = (regions.dtype, _INT32, *[regions.dtype] * 3)
    lod = offsets_of([[len(each[0]) for each in parts]])
    return tuple(
        LoDArray(from_host(np.concatenate(each).astype(dtype), rows), lod)
        for each, dtype in zip(zip(*parts, strict=True), dtypes, strict=True)
    )


def _sampled(
    regions: Array,
    objects: Array,
    labels: Array,
    crowds: Array,
    scale: float,
    attrs: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[Array, ...]:
    boxes = np.concatenate([objects, regions / scale])
    shares = overlaps(boxes, objects, True)
    most = shares.max(axis=1, initial=0)
    most[: len(objects)][crowds != 0] = -1
    positive = np.flatnonzero((most >= attrs["fg_thresh"]) & (len(objects) > 0))
    is_free = (most >= attrs["bg_thresh_lo"]) & (most < attrs["bg_thresh_hi"]) & (most < attrs["fg_thresh"])
    negative = np.flatnonzero(is_free)
    if not attrs["is_cascade_rcnn"]:
        draws = rng if attrs["use_random"] else None
        size = attrs["batch_size_per_im"]
        positive = limited(positive, int(size * attrs["fg_fraction"]), draws)
        negative = limited(negative, size - len(positive), draws)
    best = shares[positive].argmax(axis=1) if len(positive) else np.zeros(0, int)
    chosen = np.concatenate([positive, negative])
    classes = np.concatenate([labels[best], np.zeros(len(negative), labels.dtype)])
    codes = deltas(objects[best], boxes[positive], attrs["bbox_reg_weights"])
    targets, weights = _by_class(codes, classes, attrs)
    return boxes[chosen] * scale, classes[:, None], targets, weights, weights


def _by_class(codes: Array, classes: Array, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return box codes and weights of 1 in the columns of each row's class; only the first rows have a class."""
    targets = np.zeros((len(classes), attrs["class_nums"], 4))
    weights = np.zeros_like(targets)
    rows = np.flatnonzero(classes[: len(codes)] > 0)
    columns = np.ones(len(rows), int) if attrs["is_cls_agnostic"] else classes[rows]
    targets[rows, columns], weights[rows, columns] = codes[rows], 1
    return targets.reshape(len(classes), -1), weights.reshape(len(classes), -1)


_FINE = 5.0  # points on an outline for each pixel, as in the COCO tools


@operator(
    "generate_mask_labels",
    "ImInfo GtClasses+ IsCrowd+ GtSegms+ Rois+ LabelsInt32+ -> MaskRois+ RoiHasMaskInt32+ MaskInt32+",
    attrs={"num_classes": int, "resolution": int},
    infer="-> Rois(-1, 4, lod=1), int32(-1, 1, lod=1), int32(-1, num_classes * resolution**2, lod=1)",
)
def generate_mask_labels(
    info: Array, classes: Any, crowd: Any, segms: Any, rois: Any, labels: Any, *, attrs: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """Return the regions with an object (n, 4), their indices (n, 1) within the image, and mask targets.

    Masks are (n, num_classes resolution²) int32: 0 or 1 in the columns of the class, elsewhere −1. For an image without
    such a region, its first region is returned, with −1 everywhere.

    Args:
        info: (N, 3) height, width and scale.
        classes: (objects, 1) int32, one sequence per image; the same for all other inputs.
        crowd: (objects, 1) int32; objects marked 1 have no mask.
        segms: (points, 2) in pixels before the image was scaled, with three levels: images' objects,
            objects' polygons, polygons' points.
        rois: (rows, 4) in pixels of the scaled image, with labels (rows, 1) int32 classes.
    """
    regions, at = sequences(rois, "Rois")
    _, objects_at = sequences(classes, "GtClasses")
    points, _ = sequences(segms, "GtSegms")
    if len(segms.lod) != 3:
        raise InputError(f"GtSegms needs three levels of sequences, but has {len(segms.lod)}")
    rows, wanted, outline = to_host(regions), host(labels).reshape(-1), to_host(points)
    real = (host(classes).reshape(-1) > 0) & (host(crowd).reshape(-1) == 0)
    parts = []
    for number, image in enumerate(to_host(info)):
        own = slice(at[number], at[number + 1])
        chosen = objects_at[number] + np.flatnonzero(real[objects_at[number] : objects_at[number + 1]])
        shapes = [_polygons(outline, segms.lod, each) for each in chosen]
        if own.stop > own.start:
            if not shapes and (wanted[own] > 0).any():
                raise InputError(
                    f"Rois of image {number} contain an object, but GtSegms has no object for this image"
                )
            parts.append((*_masks(rows[own], wanted[own], shapes, image[2], attrs), number))
    counts = np.bincount([part[-1] for part in parts for _ in part[0]], minlength=len(at) - 1)
    lod = offsets_of([counts.tolist()])
    width = attrs["num_classes"] * attrs["resolution"] ** 2
    empty = (np.zeros((0, 4)), np.zeros((0, 1)), np.zeros((0, width)))
    joined = [np.concatenate([none, *(part[i] for part in parts)]) for i, none in enumerate(empty)]
    return (
        LoDArray(from_host(joined[0].astype(rows.dtype), regions), lod),
        LoDArray(from_host(joined[1].astype(_INT32), regions), lod),
        LoDArray(from_host(joined[2].astype(_INT32), regions), lod),
    )


def _polygons(points: Array, lod: Any, number: int) -> list[Array]:
    _, by_object, by_polygon = lod
    return [
        points[by_polygon[each] : by_polygon[each + 1]]
        for each in range(by_object[number], by_object[number + 1])
    ]


def _masks(
    regions: Array, labels: Array, shapes: list[list[Array]], scale: float, attrs: dict[str, Any]
) -> tuple[Array, Array, Array]:
    size = attrs["resolution"]
    chosen = np.flatnonzero(labels > 0)
    masks = np.full((max(len(chosen), 1), attrs["num_classes"], size, size), -1)
    if not len(chosen):
        return regions[:1], np.flatnonzero(labels == 0)[:1, None], masks.reshape(1, -1)
    boxes = regions[chosen] / scale
    around = np.array([_around(np.concatenate(each)) for each in shapes])
    best = overlaps(boxes, around, True).argmax(axis=1)
    for row, (box, shape) in enumerate(zip(boxes, best, strict=True)):
        masks[row, labels[chosen[row]]] = _drawn(shapes[shape], box, size)
    return boxes * scale, chosen[:, None], masks.reshape(len(chosen), -1)


def _around(points: Array) -> Array:
    return np.concatenate([points.min(axis=0), points.max(axis=0)])


def _drawn(polygons: list[Array], box: Array, size: int) -> Array:
    """Return the pixels (size, size) of a box that are inside any of the polygons."""
    scale = size / np.maximum(box[2:] - box[:2], 1)
    found = np.zeros((size, size), bool)
    for each in polygons:
        found |= filled((each - box[:2]) * scale, size)
    return found


def filled(polygon: Array, size: int) -> Array:
    """Rasterize a polygon (k, 2) as the COCO tools do; return its pixels (size, size).

    The outline is sampled every 1/5 pixel, which gives the rows at which it crosses each column. In column-major order,
    a pixel is inside after an odd number of crossings.
    """
    fine = np.trunc(_FINE * polygon + 0.5).astype(int)
    xs, ys = [], []
    for (x, y), (x2, y2) in zip(fine, np.roll(fine, -1, axis=0), strict=True):
        across, down = abs(x2 - x), abs(y2 - y)
        flip = (x > x2) if across >= down else (y > y2)
        first, last = ((x2, y2), (x, y)) if flip else ((x, y), (x2, y2))
        steps = np.arange(max(across, down) + 1)
        steps = steps[::-1] if flip else steps
        if across >= down:
            slope = (last[1] - first[1]) / across if across else 0.0
            xs.append(steps + first[0])
            ys.append(np.trunc(first[1] + slope * steps + 0.5).astype(int))
        else:
            slope = (last[0] - first[0]) / down
            ys.append(steps + first[1])
            xs.append(np.trunc(first[0] + slope * steps + 0.5).astype(int))
    x, y = np.concatenate(xs), np.concatenate(ys)
    moved = np.flatnonzero(x[1:] != x[:-1]) + 1
    columns = (np.where(x[moved] < x[moved - 1], x[moved], x[moved] - 1) + 0.5) / _FINE - 0.5
    rows = np.minimum(y[moved], y[moved - 1])
    inside = (np.floor(columns) == columns) & (columns >= 0) & (columns <= size - 1)
    heights = np.ceil(((rows[inside] + 0.5) / _FINE - 0.5).clip(0, size)).astype(int)
    crossings = np.bincount(columns[inside].astype(int) * size + heights, minlength=size * size + 1)
    within = crossings.cumsum()[: size * size] % 2 == 1
    return within.reshape(size, size).T
