# SPDX-License-Identifier: Apache-2.0
"""Operators of detection that pass gradients on, over which shapes and attributes they are checked."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values


def _yolo() -> list[Case]:
    labels = Values((2, 3), "ids", 2)
    attrs: dict[str, object] = {
        "class_num": 2,
        "anchors": [10, 13, 16, 30, 33, 23],
        "anchor_mask": [0, 2],
        "downsample_ratio": 8,
        "ignore_thresh": 0.3,
    }
    inputs = {"X": (2, 14, 3, 3), "GTBox": Values((2, 3, 4), "unit"), "GTLabel": labels}
    scored = {**inputs, "GTScore": Values((2, 3), "unit")}
    plain = {**attrs, "use_label_smooth": False}
    return [
        Case("yolov3_loss", inputs, attrs, fixed=("GTBox",)),
        Case("yolov3_loss", scored, plain, fixed=("GTBox", "GTScore")),
    ]


def _regions() -> list[Case]:
    # Whole numbers, which do not move with small steps; the last region lies outside of its image in part.
    numbers = (0, 1, 5, 6, 2, 2, 9, 7, 3, 0, 4, 1, 5, 4, 12, 11)
    rois = Values((4, 4), "ids", given=numbers, lengths=((2, 2),))
    grid: dict[str, object] = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}
    quads = Values((2, 8), "ids", given=(0, 0, 6, 1, 7, 6, 1, 5, 2, 2, 9, 2, 9, 8, 2, 8), lengths=((1, 1),))
    size = {"transformed_height": 3, "transformed_width": 4, "spatial_scale": 0.5}
    return [
        Case("roi_align", {"X": (2, 2, 4, 5), "ROIs": rois}, {**grid, "sampling_ratio": 2}),
        Case("roi_align", {"X": (2, 2, 4, 5), "ROIs": rois}, grid),
        Case("psroi_pool", {"X": (2, 6, 4, 5), "ROIs": rois}, {**grid, "output_channels": 1}),
        Case("roi_perspective_transform", {"X": (2, 2, 5, 6), "ROIs": quads}, dict(size), scored=("Out",)),
    ]


def _deformed() -> list[Case]:
    cases = []
    moved = {"strides": [2, 1], "paddings": [1, 0], "dilations": [1, 2]}
    for images, channels, groups, attrs, out in (
        (1, 2, 1, {"paddings": [0, 0]}, (2, 2)),
        (2, 4, 2, moved, (2, 1)),
    ):
        shared = groups
        inputs = {
            "Input": (images, channels, 3, 3),
            "Offset": (images, 8 * shared, *out),
            "Filter": (4, 2, 2, 2),
        }
        more = {**attrs, "groups": groups, "deformable_groups": shared}
        cases.append(Case("deformable_conv_v1", inputs, more))
        cases.append(Case("deformable_conv", {**inputs, "Mask": (images, 4 * shared, *out)}, more))
    rois = Values((3, 4), "ids", given=(0, 1, 5, 6, 2, 2, 9, 7, 1, 0, 8, 7), lengths=((2, 1),))
    grid: dict[str, object] = {
        "no_trans": False,
        "spatial_scale": 0.5,
        "pooled_height": 2,
        "pooled_width": 2,
        "sample_per_part": 2,
        "trans_std": 0.1,
    }
    whole = {**grid, "output_dim": 4, "group_size": [1, 1], "part_size": [2, 2]}
    apart = {**grid, "output_dim": 2, "group_size": [2, 2], "part_size": [1, 2]}
    none = {**whole, "no_trans": True}
    op, x, trans = "deformable_psroi_pooling", Values((2, 4, 4, 5), "apart"), Values((3, 4, 2, 2), "unit")
    wide = {"Input": Values((2, 8, 4, 5), "apart"), "ROIs": rois, "Trans": Values((3, 2, 1, 2), "unit")}
    return [
        *cases,
        Case(op, {"Input": x, "ROIs": rois, "Trans": trans}, whole, scored=("Output",)),
        Case(op, wide, apart, scored=("Output",)),
        Case(op, {"Input": x, "ROIs": rois, "Trans": trans}, none, scored=("Output",)),
    ]


def _focal() -> list[Case]:
    inputs = {
        "X": (4, 3),
        "Label": Values((4, 1), "ids", given=(2, 0, -1, 3)),
        "FgNum": Values((1,), "ids", given=(2,)),
    }
    return [
        Case("sigmoid_focal_loss", inputs),
        Case("sigmoid_focal_loss", inputs, {"gamma": 1.0, "alpha": 0.6}),
    ]


DETECTION_CASES = [*_yolo(), *_regions(), *_deformed(), *_focal()]
