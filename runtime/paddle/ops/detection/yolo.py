# SPDX-License-Identifier: Apache-2.0
"""yolo_box: the boxes and class scores of a YOLO v3 feature map; yolov3_loss: the loss of such a map.

The channels of an anchor are: horizontal shift, vertical shift, width, height, objectness, and one per class.

Each object belongs to the most similar anchor of all maps. If this map has that anchor, the cell under the object's
center has costs for box, classes and objectness. Every other cell has a cost for predicting an object, unless its box
overlaps an object by more than ignore_thresh.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree, product, same
from paddle.ops.detection.boxes import corners, overlaps
from paddle_node.contract.classes import NamedTuple


def sigmoid(x: Array) -> Array:
    """Return the logistic function 1 / (1 + exp(−x)) of each element."""
    small = np.exp(-np.abs(x))
    return np.where(x > 0, 1, small) / (1 + small)


def by_anchor(x: Array, anchors: int) -> Array:
    """Return a feature map (N, anchors (5 + classes), H, W) as a view (N, anchors, 5 + classes, H, W)."""
    return to_host(x).reshape(len(x), anchors, -1, *x.shape[2:])


def placed(maps: Array, anchors: Any, downsample: int) -> tuple[Array, Array]:
    """Return centers and sides (N, anchors, H, W, 2) of the boxes at each position, in fractions of the image.

    As in the original, both are relative to the height of the map.
    """
    height, width = maps.shape[3:]
    here = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)
    centers = (here + sigmoid(np.moveaxis(maps[:, :, :2], 2, -1))) / height
    base = np.asarray(anchors, maps.dtype).reshape(1, -1, 1, 1, 2) / (downsample * height)
    return centers.astype(maps.dtype), np.exp(np.moveaxis(maps[:, :, 2:4], 2, -1)) * base


def expect_channels(x: Spec, anchors: int, classes: int) -> None:
    """Check that a feature map has the right number of channels.

    Raises:
        ShapeError: the feature map does not have 5 + classes channels per anchor.
        AttrError: class_num is below 1.
    """
    if classes <= 0:
        raise AttrError(f"class_num must be above 0, got {classes}")
    if len(x.shape) != 4 or not agree(x.shape[1], anchors * (5 + classes)):
        raise ShapeError(f"X: expected (N, {anchors} anchors x (5 + {classes} classes), H, W), got {x.shape}")


def _infer_box(x: Spec, size: Spec, *, anchors: tuple[int, ...], class_num: int) -> tuple[Spec, Spec]:
    if not anchors or len(anchors) % 2:
        raise AttrError(f"anchors: expected pairs of width and height, got {anchors}")
    expect_channels(x, len(anchors) // 2, class_num)
    same((x.shape[0], 2), size.shape, "sizes (N, 2) of the images of X and ImgSize")
    count = product([len(anchors) // 2, *x.shape[2:]])
    return Spec((x.shape[0], count, 4), x.dtype), Spec((x.shape[0], count, class_num), x.dtype)


@operator(
    "yolo_box",
    "X ImgSize -> Boxes Scores",
    attrs={"class_num": int, "anchors": tuple},
    infer=_infer_box,
    shares_lod=False,
)
def yolo_box(
    x: Array, size: Array, *, anchors: tuple[int, ...], downsample_ratio: int = 32, conf_thresh: float = 0.01
) -> tuple[Array, Array]:
    """Decode boxes (N, A H W, 4) in pixels of their images, and scores (N, A H W, classes).

    Both are 0 where the probability of an object is below conf_thresh.

    Args:
        x: (N, A (5 + classes), H, W).
        size: (N, 2) int32 height and width of each image.
        anchors: the widths and heights of the A anchors, in pixels of the network's input.
    """
    maps = by_anchor(x, len(anchors) // 2)
    centers, sides = placed(maps, anchors, downsample_ratio)
    image = to_host(size)[:, ::-1].astype(maps.dtype).reshape(-1, 1, 1, 1, 2)
    ends = [(centers - sides / 2) * image, (centers + sides / 2) * image]
    boxes = np.concatenate([np.maximum(ends[0], 0), np.minimum(ends[1], image - 1)], axis=-1)
    chance = sigmoid(maps[:, :, 4])
    seen = (chance >= conf_thresh)[..., None]
    scores = chance[..., None] * sigmoid(np.moveaxis(maps[:, :, 5:], 2, -1))
    found = (
        from_host((each * seen).reshape(len(x), -1, each.shape[-1]).astype(maps.dtype), x)
        for each in (boxes, scores)
    )
    rows, chances = found
    return rows, chances


_INT32 = np.dtype("int32")
_ATTRS = {
    "class_num": int,
    "anchors": tuple,
    "anchor_mask": tuple,
    "downsample_ratio": 32,
    "ignore_thresh": 0.7,
    "use_label_smooth": True,
}


class _Matches(NamedTuple):
    """Objects of this map, one per row: their cells and targets.

    Attributes:
        at: image, anchor of this map, row and column.
        goal: (n, 4) shifts and logarithms of scales.
        scale: (n, 1) weight of the box's cost; smaller for a large box.
        classes: (n, classes) probabilities.
        score: (n,) weight of the object.
    """

    at: tuple[Array, Array, Array, Array]
    goal: Array
    scale: Array
    classes: Array
    score: Array


def _infer(
    x: Spec, box: Spec, label: Spec, score: Spec | None, *, attrs: dict[str, Any]
) -> tuple[Spec, Spec, Spec]:
    anchors, mask = attrs["anchors"], attrs["anchor_mask"]
    if not anchors or len(anchors) % 2 or not mask or not all(0 <= each < len(anchors) // 2 for each in mask):
        raise AttrError(
            "expected anchors as pairs of width and height, and anchor_mask with indices of these pairs, got "
            f"{anchors} and {mask}"
        )
    expect_channels(x, len(mask), attrs["class_num"])
    if len(box.shape) != 3 or len(label.shape) != 2:
        raise ShapeError(
            f"expected GTBox (N, objects, 4) and GTLabel (N, objects), got {box.shape}, {label.shape}"
        )
    same(x.shape[:1], box.shape[:1], "images of X and GTBox")
    for other, name in ((label, "GTLabel"), (score, "GTScore")):
        if other is not None:
            same(box.shape[:2], other.shape, f"objects of GTBox and {name}")
    seen = Spec((x.shape[0], len(mask), *x.shape[2:]), x.dtype)
    return Spec(x.shape[:1], x.dtype), seen, Spec(box.shape[:2], _INT32)


@operator(
    "yolov3_loss",
    "X GTBox GTLabel GTScore? -> Loss ObjectnessMask~ GTMatchMask~",
    attrs=_ATTRS,
    infer=_infer,
    shares_lod=False,
)
def yolov3_loss(
    x: Array, box: Array, label: Array, score: Array | None, *, attrs: dict[str, Any]
) -> tuple[Array, Array, Array]:
    """Return the YOLO v3 loss of each image (N,), the weight of each cell's object, and the anchor of each object.

    Args:
        x: (N, A (5 + classes), H, W) for the A anchors of this map.
        box: (N, B, 4) centers and sides of objects, as parts of the image; none where a side is 0.
        label: (N, B) int32 classes.
        score: (N, B) weight of each object; None means 1.

    The weights are (N, A, H, W): the object's score, 0 without an object, −1 where a cell has no cost. The anchors are
    (N, B) int32, −1 for an anchor of a different map.
    """
    maps, boxes = by_anchor(x, len(attrs["anchor_mask"])), to_host(box)
    seen = _unpaid(maps, boxes, attrs)
    index = _anchor_of(boxes, maps.shape[3], attrs)
    match = _matches(maps, boxes, index, to_host(label), score, attrs)
    seen[match.at] = match.score
    image, anchor, row, column = match.at
    own = maps[image, anchor, :, row, column]
    cost = _cross_entropy(own[:, :2], match.goal[:, :2]) + np.abs(match.goal[:, 2:] - own[:, 2:4])
    each = (cost * match.scale).sum(axis=1)
    each += (_cross_entropy(own[:, 5:], match.classes) * match.score[:, None]).sum(axis=1)
    present, paid = _paid(seen)
    loss = (_cross_entropy(maps[:, :, 4], present) * paid).sum(axis=(1, 2, 3))
    np.add.at(loss, image, each)
    return from_host(loss.astype(maps.dtype), x), from_host(seen, x), from_host(index, x)


@gradient("yolov3_loss", "X GTBox GTLabel GTScore? ObjectnessMask GTMatchMask Loss@GRAD -> X@GRAD")
def yolov3_loss_grad(
    x: Array,
    box: Array,
    label: Array,
    score: Array | None,
    seen: Array,
    index: Array,
    dloss: Array,
    *,
    attrs: dict[str, Any],
) -> Array:
    """Return dX, in the shape of X.

    It is sigmoid(x) − target for cross-entropy terms and sign(x − target) for absolute differences, times dLoss."""
    maps, arriving = by_anchor(x, len(attrs["anchor_mask"])), to_host(dloss)
    match = _matches(maps, to_host(box), to_host(index), to_host(label), score, attrs)
    present, paid = _paid(to_host(seen))
    dx = np.zeros_like(maps)
    dx[:, :, 4] = (sigmoid(maps[:, :, 4]) - present) * paid * arriving.reshape(-1, 1, 1, 1)
    image, anchor, row, column = match.at
    own = maps[image, anchor, :, row, column]
    change = np.zeros_like(own)
    change[:, :2] = (sigmoid(own[:, :2]) - match.goal[:, :2]) * match.scale
    change[:, 2:4] = np.where(own[:, 2:4] > match.goal[:, 2:], 1, -1) * match.scale
    change[:, 5:] = (sigmoid(own[:, 5:]) - match.classes) * match.score[:, None]
    # Objects may share a cell: their gradients add up.
    np.add.at(np.moveaxis(dx, 2, -1), match.at, change * arriving[image, None])
    return from_host(dx.reshape(x.shape), x)


def _cross_entropy(x: Array, target: Array) -> Array:
    return np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))


def _paid(seen: Array) -> tuple[Array, Array]:
    """Return the objectness target of each cell, and the weight of its cost."""
    present = seen > 1e-5
    return present, np.where(present, seen, seen > -0.5)


def _are_objects(boxes: Array) -> Array:
    return (boxes[..., 2:] >= 1e-6).all(axis=-1)


def _unpaid(maps: Array, boxes: Array, attrs: dict[str, Any]) -> Array:
    """Return (N, A, H, W): −1 where the predicted box overlaps an object by more than the threshold, elsewhere 0."""
    own = np.asarray(attrs["anchors"]).reshape(-1, 2)[list(attrs["anchor_mask"])]
    predicted = corners(*placed(maps, own, attrs["downsample_ratio"]))
    seen = np.zeros(predicted.shape[:-1], maps.dtype)
    for number, objects in enumerate(boxes):
        real = objects[_are_objects(objects)]
        if len(real):
            shares = overlaps(predicted[number].reshape(-1, 4), corners(real[:, :2], real[:, 2:]))
            over = shares.max(axis=1) > attrs["ignore_thresh"]
            seen[number][over.reshape(seen.shape[1:])] = -1
    return seen


def _anchor_of(boxes: Array, height: int, attrs: dict[str, Any]) -> Array:
    """Return (N, B) int32, the position in anchor_mask of the anchor most similar to each object, or −1."""
    anchors = np.asarray(attrs["anchors"], boxes.dtype).reshape(-1, 2) / (attrs["downsample_ratio"] * height)
    sides = boxes[..., 2:].reshape(-1, 2)
    zeros = np.zeros_like(sides), np.zeros_like(anchors)
    best = overlaps(corners(zeros[0], sides), corners(zeros[1], anchors)).argmax(axis=1)
    place = {anchor: at for at, anchor in reversed(list(enumerate(attrs["anchor_mask"])))}
    found = np.array([place.get(each, -1) for each in best.tolist()], _INT32).reshape(boxes.shape[:2])
    found[~_are_objects(boxes)] = -1
    return found


def _matches(
    maps: Array, boxes: Array, index: Array, label: Array, score: Array | None, attrs: dict[str, Any]
) -> _Matches:
    image, number = np.nonzero(index >= 0)
    objects, anchor = boxes[image, number], index[image, number]
    height, width = maps.shape[3:]
    column = (objects[:, 0] * width).astype(int).clip(0, width - 1)
    row = (objects[:, 1] * height).astype(int).clip(0, height - 1)
    base = np.asarray(attrs["anchors"], maps.dtype).reshape(-1, 2)[np.array(attrs["anchor_mask"])[anchor]]
    shifts = objects[:, :2] * height - np.stack([column, row], axis=1)
    scales = np.log(objects[:, 2:] * (attrs["downsample_ratio"] * height) / base)
    counts = np.ones(len(objects), maps.dtype) if score is None else to_host(score)[image, number]
    smooth = min(1.0 / attrs["class_num"], 1.0 / 40) if attrs["use_label_smooth"] else 0.0
    classes = np.where(label[image, number][:, None] == np.arange(attrs["class_num"]), 1 - smooth, smooth)
    scale = (2 - objects[:, 2:].prod(axis=1)) * counts
    goal = np.concatenate([shifts, scales], axis=1).astype(maps.dtype)
    return _Matches((image, anchor, row, column), goal, scale[:, None], classes.astype(maps.dtype), counts)
