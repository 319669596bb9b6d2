# SPDX-License-Identifier: Apache-2.0
"""Heads of region proposal networks (Faster R-CNN), RetinaNet and YOLO v3: target assignment, loss and detections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.shaping import gather, reshape
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = [
    "generate_mask_labels", "generate_proposal_labels", "retinanet_detection_output", "retinanet_target_assign",
    "rpn_target_assign", "sigmoid_focal_loss", "yolo_box", "yolov3_loss",
]  # fmt: skip


@takes(
    "bbox_pred, cls_logits, anchor_box, anchor_var, gt_boxes, is_crowd, im_info, rpn_batch_size_per_im=256, "
    "rpn_straddle_thresh=0.0, rpn_fg_fraction=0.5, rpn_positive_overlap=0.7, rpn_negative_overlap=0.3, use_random=True"
)
def rpn_target_assign(given: dict[str, Any]) -> tuple[Variable, ...]:
    """Sample anchors to train a region proposal network; return scores (f + b, 1), codes (f, 4) and targets.

    f and b are the numbers of sampled anchors with and without an object. The targets are labels (f + b, 1), int32, 1
    or 0; codes (f, 4); and the codes' weights (f, 4), 1 or 0.

    Args:
        bbox_pred: (N, A, 4) codes.
        cls_logits: (N, A, 1) scores.
        anchor_box: (A, 4) in pixels of the scaled image; anchor_var is ignored.
        gt_boxes: (objects, 4) in pixels of the unscaled image, one sequence per image.
        is_crowd: (objects, 1) int32; objects with value 1 are ignored.
        im_info: (N, 3) height, width and scale.
        rpn_batch_size_per_im: number of anchors sampled per image; at most the fraction rpn_fg_fraction of them have an
            object.
        rpn_straddle_thresh: number of pixels by which an anchor may extend beyond the image; negative means no limit.
        rpn_positive_overlap: minimum overlap of an anchor with its object; each object's best anchor always counts.
        rpn_negative_overlap: anchors whose overlap with every object is smaller have no object.
        use_random: whether to sample at random; False means use the first anchors.
    """
    inputs = renamed(given, "Anchor=anchor_box GtBoxes=gt_boxes IsCrowd=is_crowd ImInfo=im_info")
    attrs = renamed(
        given,
        "rpn_batch_size_per_im rpn_straddle_thresh rpn_fg_fraction rpn_positive_overlap rpn_negative_overlap "
        "use_random",
    )
    return _assigned("rpn_target_assign", given, inputs, attrs, 1)[:5]


@takes(
    "bbox_pred, cls_logits, anchor_box, anchor_var, gt_boxes, gt_labels, is_crowd, im_info, num_classes=1, "
    "positive_overlap=0.5, negative_overlap=0.4"
)
def retinanet_target_assign(given: dict[str, Any]) -> tuple[Variable, ...]:
    """Sample anchors to train RetinaNet, like `rpn_target_assign`; also return f + 1 per image, (N, 1) int32.

    Args:
        gt_labels: (objects, 1) int32 classes, counted from 1; the returned labels are classes.
        num_classes: number of classes; the returned scores are (f + b, num_classes).

    For the other arguments see `rpn_target_assign`.
    """
    inputs = renamed(
        given, "Anchor=anchor_box GtBoxes=gt_boxes GtLabels=gt_labels IsCrowd=is_crowd ImInfo=im_info"
    )
    attrs = renamed(given, "positive_overlap negative_overlap")
    return _assigned("retinanet_target_assign", given, inputs, attrs, given["num_classes"])


def _assigned(
    op_type: str, given: dict[str, Any], inputs: dict[str, Any], attrs: dict[str, Any], classes: int
) -> tuple[Variable, ...]:
    located, scored, boxes, labels, weight, *count = LayerHelper(op_type).apply_all(op_type, inputs, attrs)
    for each in (located, scored, boxes, labels, weight, *count):
        each.stop_gradient = True
    scores = gather(reshape(given["cls_logits"], (-1, classes)), scored)
    codes = gather(reshape(given["bbox_pred"], (-1, 4)), located)
    return (scores, codes, labels, boxes, weight, *count)


def _classes(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["class_nums"] is None:
        raise FluidError(
            "generate_proposal_labels: class_nums is required: the number of classes including the background"
        )
    return {}


generate_proposal_labels = several(
    "generate_proposal_labels(rpn_rois, gt_classes, is_crowd, gt_boxes, im_info, batch_size_per_im=256, "
    "fg_fraction=0.25, fg_thresh=0.25, bg_thresh_hi=0.5, bg_thresh_lo=0.0, bbox_reg_weights=[0.1,0.1,0.2,0.2], "
    "class_nums=None, use_random=True, is_cls_agnostic=False, is_cascade_rcnn=False)",
    """region proposals sampled to train a detection head, with their class, code and weight targets.

    These are regions (n, 4), classes (n, 1) int32, codes (n, 4 class_nums), and two arrays of the codes' weights.

    Args:
        rpn_rois: (rows, 4) in pixels of the scaled image; this and the next three inputs have one sequence per image.
        gt_classes: (objects, 1) int32, at least 1.
        is_crowd: (objects, 1) int32.
        gt_boxes: (objects, 4) in pixels of the unscaled image; the objects are added to the regions.
        im_info: (N, 3) height, width and scale.
        batch_size_per_im: number of regions sampled per image; at most the fraction fg_fraction of them have an object.
        fg_thresh: minimum overlap of a region with its object; a region whose largest overlap is between bg_thresh_lo
            and bg_thresh_hi has no object.
        bbox_reg_weights: the four numbers by which codes are divided.
        class_nums: number of classes, including the background.
        is_cls_agnostic: whether all classes share the codes of class 1.
        is_cascade_rcnn: whether to use all regions except the first, which are the objects""",
    change=_classes,
    fixed="Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights",
)
generate_mask_labels = several(
    "generate_mask_labels(im_info, gt_classes, is_crowd, gt_segms, rois, labels_int32, num_classes, resolution)",
    """the regions with an object (n, 4), their indices (n, 1) int32, and masks (n, num_classes resolution²) int32.

    gt_segms are corners (points, 2) of polygons with three levels of sequences: images, objects, polygons. For the
    other arguments see `generate_proposal_labels`""",
    fixed="MaskRois RoiHasMaskInt32 MaskInt32",
)
retinanet_detection_output = layer(
    "retinanet_detection_output(bboxes, scores, anchors, im_info, score_threshold=0.05, nms_top_k=1000, "
    "keep_top_k=100, nms_threshold=0.3, nms_eta=1.0)",
    """the class (at least 1), score and box of each detection (found, 6), one sequence per image.

    bboxes (N, M, 4) are codes, scores are (N, M, classes), anchors (M, 4): each is a list over the pyramid's levels""",
    fixed="Out",
)
sigmoid_focal_loss = layer(
    "sigmoid_focal_loss(x, label, fg_num, gamma=2, alpha=0.25)",
    """the cross entropies of sigmoids (N, C), reduced for confident predictions and divided by fg_num (1,) int32.

    x is (N, C), label (N, 1) int32 1 to C, 0 for the background and −1 for ignored rows""",
)


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
