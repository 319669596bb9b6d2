# SPDX-License-Identifier: Apache-2.0
"""Training targets of anchors, and RetinaNet's loss.

rpn_target_assign and retinanet_target_assign sample positive and negative anchors. sigmoid_focal_loss is cross entropy
per class, with less weight for confident predictions (Lin et al., 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, offsets_of, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.detection.boxes import deltas, host, overlaps
from paddle_node.contract.classes import NamedTuple

_INT32 = np.dtype("int32")
_CLOSE = 1e-5
_OUTPUTS = "LocationIndex+ ScoreIndex+ TargetBBox+ TargetLabel+ BBoxInsideWeight+"
_RULE = (
    "Anchor(_, 4), GtBoxes(_, 4), ImInfo(N, _) -> int32(-1, lod=1), int32(-1, lod=1), Anchor(-1, 4, lod=1), "
    "int32(-1, 1, lod=1), Anchor(-1, 4, lod=1)"
)


class Sample(NamedTuple):
    """The anchors sampled from one image.

    Attributes:
        located: (f,) the anchors with a target box.
        inside: (f,) 1, or 0 for a stand-in for an anchor that was moved to the negative ones.
        positive: the anchors with an object.
        negative: the anchors without one.
        objects: (anchors,) the object that each anchor overlaps most.
    """

    located: Array
    inside: Array
    positive: Array
    negative: Array
    objects: Array


def limited(places: Array, limit: int, rng: np.random.Generator | None) -> Array:
    """Choose at most `limit` positions, in order: sampled by `rng` or, without it, the first ones."""
    if len(places) <= limit:
        return places
    return np.sort(rng.choice(places, limit, replace=False)) if rng else places[:limit]


@operator(
    "rpn_target_assign",
    f"Anchor GtBoxes+ IsCrowd+ ImInfo -> {_OUTPUTS}",
    attrs={
        "rpn_batch_size_per_im": 256,
        "rpn_straddle_thresh": 0.0,
        "rpn_positive_overlap": 0.7,
        "rpn_negative_overlap": 0.3,
        "rpn_fg_fraction": 0.25,
        "use_random": True,
    },
    infer=_RULE,
)
def rpn_target_assign(
    anchor: Array, boxes: Any, crowd: Any, info: Array, *, attrs: dict[str, Any], rng: np.random.Generator
) -> tuple[Any, ...]:
    """Sample anchors and return the targets of a region proposal network, one sequence per image.

    LocationIndex (f,) int32 contains the anchors with an object, ScoreIndex (f + b,) all sampled anchors; anchors are
    numbered over all images. TargetBBox (f, 4) contains codes, TargetLabel (f + b, 1) int32 contains 1 or 0.
    BBoxInsideWeight (f, 4) is 1, or 0 where an anchor stands in for one without an object.

    Args:
        anchor: (A, 4) in pixels of the scaled image.
        boxes: (objects, 4) in pixels before the image was scaled, one sequence per image.
        crowd: (objects, 1) int32; objects marked 1 are ignored.
        info: (N, 3) height, width and scale.
    """
    anchors = to_host(anchor)
    size, straddle = attrs["rpn_batch_size_per_im"], attrs["rpn_straddle_thresh"]
    limits = (int(attrs["rpn_fg_fraction"] * size), size)
    bounds = (attrs["rpn_positive_overlap"], attrs["rpn_negative_overlap"])
    rows = []
    for number, (objects, _) in enumerate(_objects(boxes, crowd, None, to_host(info))):
        height, width = to_host(info)[number, :2]
        inside = np.arange(len(anchors))
        if straddle >= 0:
            ends = anchors[:, 2:] < np.array([width, height]) + straddle
            inside = np.flatnonzero((anchors[:, :2] >= -straddle).all(axis=1) & ends.all(axis=1))
        chosen = _sample(anchors[inside], objects, bounds, limits, rng if attrs["use_random"] else None)
        labels = np.ones(len(chosen.positive), _INT32)
        rows.append(_targets(chosen, anchors[inside], objects, labels, inside + number * len(anchors)))
    return _joined(rows, anchor)


@operator(
    "retinanet_target_assign",
    f"Anchor GtBoxes+ GtLabels+ IsCrowd+ ImInfo -> {_OUTPUTS} ForegroundNumber",
    infer=f"{_RULE}, int32(N, 1)",
)
def retinanet_target_assign(
    anchor: Array,
    boxes: Any,
    labels: Any,
    crowd: Any,
    info: Array,
    *,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Any, ...]:
    """Return RetinaNet's targets for all anchors, with classes as labels, and the positive count plus 1, (N, 1) int32.

    Args:
        labels: (objects, 1) int32 classes of at least 1.

    For the other arguments see `rpn_target_assign`.
    """
    anchors = to_host(anchor)
    rows, counts = [], []
    for number, (objects, classes) in enumerate(_objects(boxes, crowd, labels, to_host(info))):
        chosen = _sample(anchors, objects, (positive_overlap, negative_overlap), None, None)
        own = classes[chosen.objects[chosen.positive]] if len(classes) else np.zeros(0, _INT32)
        places = np.arange(len(anchors)) + number * len(anchors)
        rows.append(_targets(chosen, anchors, objects, own.astype(_INT32), places))
        counts.append(len(chosen.located) + 1)
    return (*_joined(rows, anchor), from_host(np.array(counts, _INT32)[:, None], anchor))


def _objects(boxes: Any, crowd: Any, labels: Any, info: Array) -> list[tuple[Array, Array]]:
    """Return the boxes (n, 4) of each image, scaled, and their classes (n,), without crowds."""
    data, offsets = sequences(boxes, "GtBoxes")
    if len(offsets) - 1 != len(info):
        raise InputError(
            f"GtBoxes has the objects of {len(offsets) - 1} images, but ImInfo has {len(info)} rows"
        )
    rows, crowds = host(data), host(crowd).reshape(-1)
    classes = np.zeros(len(rows), _INT32) if labels is None else host(labels).reshape(-1)
    found = []
    for start, end, scale in zip(offsets[:-1], offsets[1:], info[:, 2], strict=True):
        kept = start + np.flatnonzero(crowds[start:end] == 0)
        found.append((rows[kept] * scale, classes[kept]))
    return found


def _sample(
    anchors: Array,
    objects: Array,
    bounds: tuple[float, float],
    limits: tuple[int, int] | None,
    rng: np.random.Generator | None,
) -> Sample:
    """Sample positive anchors (at least the first bound, or best for an object) and negative (below the second)."""
    shares = overlaps(anchors, objects, True)
    most = shares.max(axis=1, initial=0)
    is_best = (np.abs(shares - shares.max(axis=0, initial=0)) < _CLOSE).any(axis=1)
    positive = np.flatnonzero(is_best | (most >= bounds[0]) & (len(objects) > 0))
    positive = limited(positive, limits[0], rng) if limits else positive
    negative = np.flatnonzero(most < bounds[1])
    negative = limited(negative, limits[1] - len(positive), rng) if limits else negative
    # An anchor may be the best of its object and yet overlap it too little: it then counts as negative. As in the
    # original, another anchor stands in for its box, with weight 0.
    both = np.intersect1d(positive, negative)
    real = np.setdiff1d(positive, negative)
    located = np.concatenate([np.repeat(positive[:1], len(both)), real])
    inside = np.concatenate([np.zeros(len(both)), np.ones(len(real))])
    best = shares.argmax(axis=1) if len(objects) else np.zeros(len(anchors), int)
    return Sample(located, inside, real, negative, best)


def _targets(
    chosen: Sample, anchors: Array, objects: Array, labels: Array, places: Array
) -> tuple[Array, ...]:
    boxes = objects[chosen.objects[chosen.located]]
    scored = np.concatenate([chosen.positive, chosen.negative])
    wanted = np.concatenate([labels, np.zeros(len(chosen.negative), _INT32)])
    weight = np.repeat(chosen.inside[:, None], 4, axis=1)
    codes = deltas(boxes, anchors[chosen.located])
    return places[chosen.located], places[scored], codes, wanted[:, None], weight


def _joined(rows: list[tuple[Array, ...]], like: Array) -> tuple[Any, ...]:
    dtypes = (_INT32, _INT32, like.dtype, _INT32, like.dtype)
    return tuple(
        LoDArray(from_host(np.concatenate(parts).astype(dtype), like), offsets_of([[len(p) for p in parts]]))
        for parts, dtype in zip(zip(*rows, strict=True), dtypes, strict=True)
    )


_LEAST = float(np.finfo("float32").tiny)


@operator("sigmoid_focal_loss", "X Label FgNum -> Out", infer="X(N, C), Label(N, 1) -> X")
def sigmoid_focal_loss(
    x: Array, label: Array, count: Array, *, gamma: float = 2.0, alpha: float = 0.25
) -> Array:
    """Return the focal loss (N, C), over FgNum: −α (1 − p)ᵞ ln p for a row's class, −(1 − α) pᵞ ln(1 − p) for others.

    Args:
        x: (N, C) scores before the sigmoid.
        label: (N, 1) int32 1 to C, 0 for background, −1 for a row to ignore.
        count: (1,) int32 FgNum, clipped to at least 1.
    """
    xp = array_module(x)
    right, wrong = _weights(x, label, count, alpha)
    p, rest = _chances(x)
    own = (1 - p) ** gamma * xp.log(xp.maximum(p, _LEAST))
    return (-right * own - wrong * p**gamma * rest).astype(x.dtype)


@gradient("sigmoid_focal_loss", "X Label FgNum Out@GRAD -> X@GRAD")
def sigmoid_focal_loss_grad(
    x: Array, label: Array, count: Array, dout: Array, *, gamma: float, alpha: float
) -> Array:
    """Return dX (N, C), the gradient of the focal loss times dOut.

    It follows from d/dx (1 − p)ᵞ ln p = (1 − p)ᵞ (1 − p − γ p ln p) with p = sigmoid(x), and likewise for the other
    term.
    """
    xp = array_module(x)
    right, wrong = _weights(x, label, count, alpha)
    p, rest = _chances(x)
    own = (1 - p) ** gamma * (1 - p - gamma * p * xp.log(xp.maximum(p, _LEAST)))
    other = p**gamma * (rest * (1 - p) * gamma - p)
    return ((-right * own - wrong * other) * dout).astype(x.dtype)


def _chances(x: Array) -> tuple[Any, Any]:
    """Return p = sigmoid(x) and ln(1 − p)."""
    xp = array_module(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small), -xp.maximum(x, 0) - xp.log1p(small)


def _weights(x: Array, label: Array, count: Array, alpha: float) -> tuple[Any, Any]:
    xp = array_module(x)
    wanted = label.reshape(-1, 1)
    right = wanted == xp.arange(1, x.shape[1] + 1)
    total = xp.maximum(count.reshape(-1)[:1], 1).astype(x.dtype)
    return right * alpha / total, ((wanted != -1) & ~right) * (1 - alpha) / total
