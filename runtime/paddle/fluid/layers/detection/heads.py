# SPDX-License-Identifier: Apache-2.0
"""What region networks and RetinaNet have to predict, their loss, and the boxes that they find."""

from __future__ import annotations

from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.shaping import gather, reshape
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = [
    "generate_mask_labels", "generate_proposal_labels", "retinanet_detection_output", "retinanet_target_assign",
    "rpn_target_assign", "sigmoid_focal_loss",
]  # fmt: skip


@takes(
    "bbox_pred, cls_logits, anchor_box, anchor_var, gt_boxes, is_crowd, im_info, rpn_batch_size_per_im=256, "
    "rpn_straddle_thresh=0.0, rpn_fg_fraction=0.5, rpn_positive_overlap=0.7, rpn_negative_overlap=0.3, use_random=True"
)
def rpn_target_assign(given: dict[str, Any]) -> tuple[Variable, ...]:
    """Return a sample of a region network's scores (f + b, 1) and codes (f, 4), and what they should be.

    These are labels (f + b, 1) int32 1 or 0, codes (f, 4), and what each code counts (f, 4), 1 or 0.

    Args:
        bbox_pred: (N, A, 4) codes.
        cls_logits: (N, A, 1) scores.
        anchor_box: (A, 4) in pixels of the scaled image; anchor_var has no meaning.
        gt_boxes: (objects, 4) in pixels before the image was scaled, a sequence for each image.
        is_crowd: (objects, 1) int32; objects with 1 do not count.
        im_info: (N, 3) height, width and scale.
        rpn_batch_size_per_im: anchors taken of an image, of which rpn_fg_fraction have an object at most.
        rpn_straddle_thresh: how far, in pixels, anchors may lie outside of their image; below 0: however far.
        rpn_positive_overlap: from here on an anchor has the object; the best anchor of an object always.
        rpn_negative_overlap: below, an anchor has none.
        use_random: draw the sample, instead of taking the first ones.
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
    """Return the same for RetinaNet, with scores (f + b, num_classes), classes as labels, and (N, 1) int32 f + 1.

    Args:
        gt_labels: (objects, 1) int32 classes from 1 on.
        num_classes: how many there are.

    All others are those of `rpn_target_assign`.
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


@takes(
    "rpn_rois, gt_classes, is_crowd, gt_boxes, im_info, batch_size_per_im=256, fg_fraction=0.25, fg_thresh=0.25, "
    "bg_thresh_hi=0.5, bg_thresh_lo=0.0, bbox_reg_weights=[0.1,0.1,0.2,0.2], class_nums=None, use_random=True, "
    "is_cls_agnostic=False, is_cascade_rcnn=False"
)
def generate_proposal_labels(given: dict[str, Any]) -> tuple[Variable, ...]:
    """Return a sample of regions (n, 4), their classes (n, 1) int32, codes (n, 4 class_nums), and two weights of these.

    Args:
        rpn_rois: (rows, 4) in pixels of the scaled image, a sequence for each image, as all others.
        gt_classes: (objects, 1) int32 from 1 on.
        is_crowd: (objects, 1) int32.
        gt_boxes: (objects, 4) in pixels before the image was scaled; they are among the regions.
        im_info: (N, 3) height, width and scale.
        batch_size_per_im: regions taken of an image, of which fg_fraction have an object at most.
        fg_thresh: from this overlap on a region has the object; from bg_thresh_lo to bg_thresh_hi it has none.
        bbox_reg_weights: what codes are divided by.
        class_nums: how many classes there are, with the background.
        is_cls_agnostic: all classes have the codes of class 1.
        is_cascade_rcnn: take all regions but the first ones, which are the objects.

    Raises:
        FluidError: class_nums is missing.
    """
    if given["class_nums"] is None:
        raise FluidError(
            "generate_proposal_labels: give class_nums, the number of classes with the background"
        )
    inputs = renamed(
        given, "RpnRois=rpn_rois GtClasses=gt_classes IsCrowd=is_crowd GtBoxes=gt_boxes ImInfo=im_info"
    )
    attrs = renamed(
        given,
        "batch_size_per_im fg_fraction fg_thresh bg_thresh_hi bg_thresh_lo bbox_reg_weights class_nums use_random "
        "is_cls_agnostic is_cascade_rcnn",
    )
    made = LayerHelper("generate_proposal_labels").apply_all("generate_proposal_labels", inputs, attrs)
    for each in made:
        each.stop_gradient = True
    return tuple(made)


generate_mask_labels = several(
    "generate_mask_labels(im_info, gt_classes, is_crowd, gt_segms, rois, labels_int32, num_classes, resolution)",
    """regions with an object (n, 4), their numbers (n, 1) int32, and masks (n, num_classes resolution²) int32.

    gt_segms are corners (points, 2) of polygons with three levels of sequences: images, objects, polygons. All others
    are those of `generate_proposal_labels`""",
    fixed="MaskRois RoiHasMaskInt32 MaskInt32",
)
retinanet_detection_output = layer(
    "retinanet_detection_output(bboxes, scores, anchors, im_info, score_threshold=0.05, nms_top_k=1000, "
    "keep_top_k=100, nms_threshold=0.3, nms_eta=1.0)",
    """(found, 6) class from 1 on, score and box of what is found in each image, a sequence each.

    bboxes (N, M, 4) are codes, scores (N, M, classes), anchors (M, 4), a list of each for the levels of a pyramid""",
    fixed="Out",
)
sigmoid_focal_loss = layer(
    "sigmoid_focal_loss(x, label, fg_num, gamma=2, alpha=0.25)",
    """(N, C) cross entropies of sigmoids that count less what is sure already, over fg_num (1,) int32.

    x is (N, C), label (N, 1) int32 1 to C, 0 for none of the classes and −1 for a row that does not count""",
)
