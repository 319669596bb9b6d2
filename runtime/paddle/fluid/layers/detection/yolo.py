# SPDX-License-Identifier: Apache-2.0
"""YOLO v3 (Redmon and Farhadi, 2018): the loss and the detections of a feature map."""

from __future__ import annotations

from paddle.fluid.layers.plain import layer, several

__all__ = ["yolo_box", "yolov3_loss"]

yolov3_loss = layer(
    "yolov3_loss(x, gt_box, gt_label, anchors, anchor_mask, class_num, ignore_thresh, downsample_ratio, gt_score=None, "
    "use_label_smooth=True, name=None)",
    """the YOLO loss (N,) of a feature map x (N, A (5 + class_num), H, W), with the A anchors in anchor_mask.

    gt_box is (N, B, 4) centers and sides as fractions of the image, 0 for none; gt_label (N, B) int32; gt_score
    (N, B). A cell whose box overlaps an object by more than ignore_thresh has no objectness cost. downsample_ratio
    is the network's input size over the map's""",
    to="gt_box=GTBox gt_label=GTLabel gt_score=GTScore",
)
yolo_box = several(
    "yolo_box(x, img_size, anchors, class_num, conf_thresh, downsample_ratio, name=None)",
    """the boxes (N, A H W, 4) in pixels, and their class scores; img_size (N, 2) int32 is height and width.

    Both are 0 where the probability of an object is below conf_thresh""",
)
