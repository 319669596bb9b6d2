# SPDX-License-Identifier: Apache-2.0
"""SSD (single-shot detector): heads on several feature maps, the loss, and the detection output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.detection.boxes import (
    bipartite_match,
    box_coder,
    iou_similarity,
    multiclass_nms,
    target_assign,
)
from paddle.fluid.layers.detection.priors import prior_box
from paddle.fluid.layers.nn.convolutions import conv2d
from paddle.fluid.layers.nn.elements import reduce_sum, softmax
from paddle.fluid.layers.nn.losses import smooth_l1, softmax_with_cross_entropy
from paddle.fluid.layers.nn.shaping import flatten, reshape, shape, slice, transpose
from paddle.fluid.layers.tensor import cast, concat
from paddle.fluid.program.variable import Variable
from paddle.ops.base.shapes import product
from paddle.signatures import renamed, takes

__all__ = ["detection_output", "multi_box_head", "ssd_loss"]


@takes(
    "inputs, image, base_size, num_classes, aspect_ratios, min_ratio=None, max_ratio=None, min_sizes=None, "
    "max_sizes=None, steps=None, step_w=None, step_h=None, offset=0.5, variance=[0.1,0.1,0.2,0.2], flip=True, "
    "clip=False, kernel_size=1, pad=0, stride=1, name=None, min_max_aspect_ratios_order=False"
)
def multi_box_head(given: dict[str, Any]) -> tuple[Variable, Variable, Variable, Variable]:
    """Append an SSD head over several feature maps; return codes, class scores, prior boxes and variances.

    Each feature map gets prior boxes around its cells, and two convolutions that compute their codes and scores.

    Args:
        inputs: list of feature maps.
        base_size: side length of images in pixels. Box sizes go from min_ratio to max_ratio percent of it, map by map;
            the first map uses 10 and 20 percent.
        min_sizes, max_sizes: one size per map, in pixels, instead of the ratios.
        steps: distance between cells in pixels, one per map, or step_w and step_h; None to cover the image.

    For the other arguments see `prior_box` and `conv2d`.

    Returns:
        Codes (N, boxes, 4), scores (N, boxes, num_classes), prior boxes (boxes, 4), variances (boxes, 4).

    Raises:
        FluidError: inputs is not a list, or differs in length from the sizes, ratios or steps.
    """
    maps = given["inputs"]
    if not isinstance(maps, list | tuple):
        raise FluidError(f"multi_box_head: expected a list of variables as inputs, got {maps!r}")
    least, most = _sizes(given, len(maps))
    steps = {name: given["steps"] or given[name] or [0.0] * len(maps) for name in ("step_w", "step_h")}
    each_has = {"aspect_ratios": given["aspect_ratios"], "min_sizes": least, "max_sizes": most, **steps}
    for name, values in each_has.items():
        if len(values) != len(maps):
            raise FluidError(
                f"multi_box_head: expected {len(maps)} entries of {name}, one per input, got {len(values)}"
            )
    shared = renamed(given, "image offset variance flip clip min_max_aspect_ratios_order")
    found: list[list[Variable]] = []
    for number, one in enumerate(maps):
        sizes = {name: each_has[name][number] for name in ("min_sizes", "max_sizes", "aspect_ratios")}
        step = [steps["step_w"][number], steps["step_h"][number]]
        boxes, variances = prior_box(input=one, steps=step, **sizes, **shared)
        heads = [
            _head(one, boxes.shape[2], width, **renamed(given, "filter_size=kernel_size padding=pad stride"))
            for width in (4, given["num_classes"])
        ]
        found.append([*heads, flatten(boxes, axis=3), flatten(variances, axis=3)])
    axes = (1, 1, 0, 0)
    joined = [
        each[0] if len(each) == 1 else concat(list(each), axis=axis)
        for axis, each in zip(axes, zip(*found, strict=True), strict=True)
    ]
    for each in joined[2:]:
        each.stop_gradient = True
    codes, scores, priors, spread = joined
    return codes, scores, priors, spread


def _sizes(given: dict[str, Any], count: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return min_sizes and max_sizes of each map."""
    least, most, base = given["min_sizes"], given["max_sizes"], given["base_size"]
    if least is None and most is None and count > 2 and None not in (given["min_ratio"], given["max_ratio"]):
        first, last = given["min_ratio"], given["max_ratio"]
        step = math.floor((last - first) / (count - 2))
        ratios = range(first, last + 1, step)
        return (
            [base * 0.10, *(base * ratio / 100.0 for ratio in ratios)],
            [base * 0.20, *(base * (ratio + step) / 100.0 for ratio in ratios)],
        )
    if least is None or most is None:
        raise FluidError(
            "multi_box_head: give min_sizes and max_sizes; with more than two inputs, min_ratio and max_ratio also work"
        )
    return least, most


def _head(features: Variable, boxes: int, width: int, **window: Any) -> Variable:
    """Return predictions (N, H W boxes, width) computed by a convolution of the features."""
    planes = conv2d(input=features, num_filters=boxes * width, **window)
    count = product([*planes.shape[2:], boxes])
    return reshape(transpose(planes, perm=[0, 2, 3, 1]), [0, count, width])


@takes(
    "location, confidence, gt_box, gt_label, prior_box, prior_box_var=None, background_label=0, "
    "overlap_threshold=0.5, neg_pos_ratio=3.0, neg_overlap=0.5, loc_loss_weight=1.0, conf_loss_weight=1.0, "
    "match_type='per_prediction', mining_type='max_negative', normalize=True, sample_size=None"
)
def ssd_loss(given: dict[str, Any]) -> Variable:
    """Return the SSD loss of each image, (N, 1): class loss over all prior boxes, location loss over matched ones.

    Args:
        location: codes (N, boxes, 4).
        confidence: class scores (N, boxes, classes) before softmax.
        gt_box: (objects, 4), one sequence per image.
        gt_label: (objects, 1) int32, one sequence per image.
        prior_box: (boxes, 4).
        prior_box_var: (boxes, 4).
        background_label: the class of boxes without an object.
        overlap_threshold: minimum overlap of a matched box, if match_type is "per_prediction".
        neg_pos_ratio: number of negatives, boxes without an object, per box with one; those with the largest loss are
            used.
        neg_overlap: boxes that overlap an object by this much or more are not used as negatives.
        normalize: whether to divide by the number of boxes with an object in all images.

    Raises:
        FluidError: mining_type is not "max_negative".
    """
    if given["mining_type"] != "max_negative":
        raise FluidError(
            f"ssd_loss: only mining_type 'max_negative' is supported, got {given['mining_type']!r}"
        )
    confidence, gt_box, background = given["confidence"], given["gt_box"], given["background_label"]
    priors, spread = given["prior_box"], given["prior_box_var"]
    sizes = slice(shape(confidence), axes=[0], starts=[0], ends=[2])
    overlap = iou_similarity(gt_box, priors)
    matched, distances = bipartite_match(overlap, given["match_type"], given["overlap_threshold"])
    labels = reshape(given["gt_label"], (0, -1, 1))
    labels.stop_gradient = True
    wanted, _ = target_assign(labels, matched, mismatch_value=background)
    scores = flatten(confidence, axis=2)
    cost = _by_image(_class_cost(scores, wanted), confidence, sizes)
    cost.stop_gradient = True
    helper = LayerHelper("ssd_loss")
    negative, updated = helper.apply_all(
        "mine_hard_examples",
        {"ClsLoss": cost, "MatchIndices": matched, "MatchDist": distances},
        renamed(given, "neg_pos_ratio neg_dist_threshold=neg_overlap mining_type sample_size"),
        fixed=["NegIndices", "UpdatedMatchIndices"],
    )
    codes = box_coder(priors, spread, gt_box, "encode_center_size")
    goal, goal_weight = target_assign(codes, updated, mismatch_value=background)
    wanted, wanted_weight = target_assign(labels, updated, negative, background)
    for each in (codes, goal, goal_weight, wanted_weight):
        each.stop_gradient = True
    class_cost = _class_cost(scores, wanted) * _fixed_rows(wanted_weight)
    place_cost = smooth_l1(flatten(given["location"], axis=2), _fixed_rows(goal)) * _fixed_rows(goal_weight)
    both = given["conf_loss_weight"] * class_cost + given["loc_loss_weight"] * place_cost
    loss = reduce_sum(_by_image(both, confidence, sizes), dim=1, keep_dim=True)
    return loss / reduce_sum(goal_weight) if given["normalize"] else loss


def _by_image(cost: Variable, confidence: Variable, sizes: Variable) -> Variable:
    """Reshape the costs of the boxes from (N boxes, 1) to (N, boxes)."""
    return reshape(cost, confidence.shape[:2], actual_shape=sizes)


def _fixed_rows(value: Variable) -> Variable:
    rows = flatten(value, axis=2)
    rows.stop_gradient = True
    return rows


def _class_cost(scores: Variable, labels: Variable) -> Any:
    return softmax_with_cross_entropy(scores, _fixed_rows(cast(labels, "int64")))


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
) -> Variable:
    """Decode SSD outputs and apply non-maximum suppression; return each detection's label, score and box, (found, 6).

    Args:
        loc: codes (N, boxes, 4).
        scores: (N, boxes, classes) before softmax.
        prior_box: (boxes, 4).
        prior_box_var: (boxes, 4).
    """
    boxes = box_coder(prior_box, prior_box_var, loc, "decode_center_size")
    chances = transpose(softmax(scores), perm=[0, 2, 1])
    chances.stop_gradient = True
    return multiclass_nms(
        boxes,
        chances,
        score_threshold,
        nms_top_k,
        keep_top_k,
        nms_threshold,
        nms_eta=nms_eta,
        background_label=background_label,
    )
