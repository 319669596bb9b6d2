# SPDX-License-Identifier: Apache-2.0
"""distribute_fpn_proposals assigns regions to feature pyramid levels by size; collect_fpn_proposals merges levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, from_host
from paddle.ops.base.errors import AttrError, InputError
from paddle.ops.base.lod import LoDArray, ends_of, sequences
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import owners
from paddle.ops.detection.boxes import areas, expect_boxes, host

_INT32 = np.dtype("int32")


def _infer_levels(rois: Spec, *, min_level: int, max_level: int) -> tuple[list[Spec], Spec]:
    expect_boxes(rois, "FpnRois")
    if max_level < min_level:
        raise AttrError(f"max_level {max_level} must not be below min_level {min_level}")
    count = max_level - min_level + 1
    return [Spec((-1, 4), rois.dtype, 1)] * count, Spec((rois.shape[0], 1), _INT32)


@operator(
    "distribute_fpn_proposals",
    "FpnRois+ -> MultiFpnRois*+ RestoreIndex",
    attrs={"min_level": int, "max_level": int, "refer_level": int, "refer_scale": int},
    infer=_infer_levels,
)
def distribute_fpn_proposals(
    rois: Any, *, min_level: int, max_level: int, refer_level: int, refer_scale: int
) -> tuple[list[Any], Array]:
    """Assign regions to pyramid levels by size.

    Return each level's regions, by image, and regions' new indexes (n, 1) int32. A region with side refer_scale belongs
    to refer_level, a region with twice that side to the next level, and so on.

    Args:
        rois: (n, 4) in pixels, one sequence per image.
    """
    data, offsets = sequences(rois, "FpnRois")
    boxes, images = host(data), owners(offsets)
    sides = np.sqrt(areas(boxes, True))
    levels = np.floor(np.log2(sides / refer_scale + 1e-6) + refer_level).clip(min_level, max_level)
    chosen = [np.flatnonzero(levels == level) for level in range(min_level, max_level + 1)]
    parts = [
        LoDArray(
            from_host(boxes[each], data), (ends_of(np.bincount(images[each], minlength=len(offsets) - 1)),)
        )
        for each in chosen
    ]
    restore = np.empty((len(boxes), 1), _INT32)
    restore[np.concatenate(chosen), 0] = np.arange(len(boxes))
    return parts, from_host(restore, data)


def _infer_collected(rois: Sequence[Spec], scores: Sequence[Spec]) -> Spec:
    if len(rois) != len(scores):
        raise AttrError(f"expected scores for each level, got {len(scores)} for {len(rois)} levels")
    for each in rois:
        expect_boxes(each, "MultiLevelRois")
    return Spec((-1, 4), rois[0].dtype, 1)


@operator(
    "collect_fpn_proposals",
    "MultiLevelRois*+ MultiLevelScores*+ -> FpnRois+",
    attrs={"post_nms_topN": int},
    infer=_infer_collected,
)
def collect_fpn_proposals(rois: Sequence[Any], scores: Sequence[Any], *, post_nms_topN: int) -> Any:
    """Return the regions (n, 4) with the best scores of all levels and images, best first per image.

    Args:
        rois: (n, 4) for each level, one sequence per image.
        scores: (n, 1) for each level.
    """
    parts = [sequences(each, "MultiLevelRois") for each in rois]
    if any(len(offsets) != len(parts[0][1]) for _, offsets in parts):
        raise InputError(
            "MultiLevelRois: levels have the regions of "
            f"{[len(offsets) - 1 for _, offsets in parts]} images; the numbers must be equal"
        )
    boxes = np.concatenate([host(data) for data, _ in parts])
    images = np.concatenate([owners(offsets) for _, offsets in parts])
    chances = np.concatenate([host(each).reshape(-1) for each in scores])
    best = np.argsort(-chances, kind="stable")
    best = best[:post_nms_topN]
    order = best[np.argsort(images[best], kind="stable")]
    count = len(parts[0][1]) - 1
    lod = (ends_of(np.bincount(images[order], minlength=count)),)
    return LoDArray(from_host(boxes[order], parts[0][0]), lod)
