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
    inputs = {"X": (2, 14, 4, 4), "GTBox": Values((2, 3, 4), "unit"), "GTLabel": labels}
    scored = {**inputs, "GTScore": Values((2, 3), "unit")}
    plain = {**attrs, "use_label_smooth": False}
    return [
        Case("yolov3_loss", inputs, attrs, fixed=("GTBox",)),
        Case("yolov3_loss", scored, plain, fixed=("GTBox", "GTScore")),
    ]


DETECTION_CASES = [*_yolo()]
