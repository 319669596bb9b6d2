# SPDX-License-Identifier: Apache-2.0
"""generate_proposal_labels: samples region proposals, and computes their target classes and box codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, offsets_of, sequences
from paddle.ops.base.registry import operator
from paddle.ops.detection.anchor_targets import limited
from paddle.ops.detection.box_coder import deltas
from paddle.ops.detection.boxes import host, overlaps

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

    Rois (n, 4) are in pixels of the scaled image. LabelsInt32 (n, 1) has classes, 0 for no object. BboxTargets (n, 4
    class_nums) has codes in the columns of the class, where both weights are 1.

    Args:
        rois: (rows, 4) in pixels of the scaled image, one sequence per image; the same for all other inputs.
        classes: (objects, 1) int32 from 1 on.
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
