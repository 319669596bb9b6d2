# SPDX-License-Identifier: Apache-2.0
"""multibox_loss and detection_output: the loss and the output of an SSD detector (Liu et al., 2016), for v2 layers.

A prior has 8 numbers: a box (left, top, right, bottom) in fractions of the image, and the variances of its code.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.detection.boxes import decoded, encoded, overlaps
from paddle.ops.detection.matching import match, match_rest
from paddle.ops.detection.suppression import chosen

_LOSS = {
    "num_classes": int,
    "overlap_threshold": 0.5,
    "neg_pos_ratio": 3.0,
    "neg_overlap": 0.5,
    "background_id": 0,
}
_OUTPUT = {
    "num_classes": int,
    "nms_threshold": 0.45,
    "nms_top_k": 400,
    "keep_top_k": 200,
    "confidence_threshold": 0.01,
    "background_id": 0,
}


def _check(location: Spec, confidence: Spec, prior: Spec, classes: int) -> None:
    numbers = prior.shape[-1]
    if numbers % 8 or location.shape[1] * 2 != numbers or confidence.shape[1] * 8 != numbers * classes:
        raise ShapeError(
            f"expected Location (N, 4 P), Confidence (N, {classes} P) and PriorBox (1, 8 P), got {location.shape}, "
            f"{confidence.shape} and {prior.shape}"
        )


def _infer_loss(
    location: Spec, confidence: Spec, prior: Spec, label: Spec, *, num_classes: int
) -> tuple[Spec, Spec, Spec]:
    _check(location, confidence, prior, num_classes)
    if len(label.shape) != 2 or label.shape[1] != 6:
        raise ShapeError(f"Label: expected (objects, 6) with class, box and difficult, got {label.shape}")
    return location._replace(shape=(location.shape[0], 1)), location, confidence


@operator(
    "multibox_loss",
    "Location Confidence PriorBox Label+ -> Loss LocationGrad~ ConfidenceGrad~",
    attrs=_LOSS,
    infer=_infer_loss,
    shares_lod=False,
)
def multibox_loss(
    location: Array, confidence: Array, prior: Array, label: Any, *, attrs: dict[str, Any]
) -> tuple[Array, Array, Array]:
    """Return the SSD loss of the batch, repeated for each image (N, 1), and its gradients.

    The loss is that of SSD (Liu et al., 2016): smooth L1 of the codes of matched priors, and cross entropy of their
    classes and of the hardest negatives' background, divided by the number of matches in the batch. All N rows are
    equal, so the gradient uses the mean of dLoss.

    Args:
        location: (N, 4 P) codes.
        confidence: (N, num_classes P), before a softmax.
        prior: (1, 8 P); only the first row is used.
        label: (objects, 6) class, left, top, right, bottom, difficult; one sequence per image.
        attrs: a negative overlaps every object by less than neg_overlap; there are at most neg_pos_ratio negatives per
            match.
    """
    data, offsets = sequences(label, "Label")
    objects = to_host(data)
    boxes, variances = np.split(to_host(prior)[0].reshape(-1, 8), 2, axis=1)
    codes = to_host(location).reshape(len(location), -1, 4)
    scores = to_host(confidence).reshape(len(location), -1, attrs["num_classes"])
    chances = _softmax(scores)
    d_codes, d_scores = np.zeros_like(codes), np.zeros_like(scores)
    loss, matches = 0.0, 0
    for image, (start, end) in enumerate(itertools.pairwise(offsets)):
        wanted, at, negative = _paired(boxes, objects[start:end], chances[image], attrs)
        target = encoded(wanted[:, 1:5], boxes[at], whole=False) / variances[at]
        difference = codes[image, at] - target
        far = np.abs(difference) >= 1
        loss += float(np.where(far, np.abs(difference) - 0.5, difference**2 / 2).sum())
        d_codes[image, at] = difference.clip(-1, 1)
        places = np.concatenate([at, negative])
        labels = np.concatenate([wanted[:, 0].astype(int), np.full(len(negative), attrs["background_id"])])
        of_label = chances[image, places, labels]
        loss -= float(np.log(of_label.clip(np.finfo(np.float32).tiny)).sum())
        d_scores[image, places] = chances[image, places]
        d_scores[image, places, labels] -= 1
        matches += len(at)
    scale = 1.0 / max(matches, 1)
    rows = np.full((len(location), 1), loss * scale, location.dtype)
    found = (d_codes * scale).reshape(location.shape), (d_scores * scale).reshape(confidence.shape)
    return from_host(rows, location), *(from_host(each.astype(rows.dtype), location) for each in found)


@gradient("multibox_loss", "LocationGrad ConfidenceGrad Loss@GRAD -> Location@GRAD Confidence@GRAD")
def multibox_loss_grad(d_location: Array, d_confidence: Array, d_loss: Array) -> tuple[Array, Array]:
    """Return dLocation and dConfidence: the gradients from the forward pass, multiplied by the mean of dLoss."""
    factor = d_loss.mean()
    return d_location * factor, d_confidence * factor


def _infer_output(location: Spec, confidence: Spec, prior: Spec, *, num_classes: int) -> Spec:
    _check(location, confidence, prior, num_classes)
    return Spec((-1, 7), location.dtype)


@operator(
    "detection_output",
    "Location Confidence PriorBox -> Out",
    attrs=_OUTPUT,
    infer=_infer_output,
    shares_lod=False,
)
def detection_output(location: Array, confidence: Array, prior: Array, *, attrs: dict[str, Any]) -> Array:
    """Return the detected boxes (found, 7): image, class, score, left, top, right, bottom, clipped to [0, 1].

    Among boxes of a class that overlap by more than nms_threshold, only the best remains; at most keep_top_k boxes per
    image remain.
    """
    boxes, variances = np.split(to_host(prior)[0].reshape(-1, 8), 2, axis=1)
    codes = to_host(location).reshape(len(location), -1, 4) * variances
    chances = _softmax(to_host(confidence).reshape(len(location), -1, attrs["num_classes"]))
    settings = {
        "background_label": attrs["background_id"],
        "score_threshold": attrs["confidence_threshold"],
        "nms_top_k": attrs["nms_top_k"],
        "nms_threshold": attrs["nms_threshold"],
        "nms_eta": 1.0,
        "keep_top_k": attrs["keep_top_k"] or -1,
        "normalized": True,
    }
    rows = [np.zeros((0, 7))]
    for image, (code, chance) in enumerate(zip(codes, chances, strict=True)):
        found = decoded(code, boxes, whole=False)
        labels, at = chosen(found[None], chance.T, settings)
        columns = np.full(len(at), image), labels, chance[at, labels], found[at].clip(0, 1)
        rows.append(np.column_stack(columns))
    return from_host(np.concatenate(rows).astype(location.dtype), location)


def _paired(
    boxes: Array, objects: Array, chances: Array, attrs: dict[str, Any]
) -> tuple[Array, Array, Array]:
    """Return the objects of matched priors (matches, 6), those priors, and the negatives, hardest first."""
    shares = overlaps(objects[:, 1:5], boxes)
    indices, found = np.full(len(boxes), -1), np.zeros(len(boxes))
    match(shares, indices, found)
    match_rest(shares, indices, found, attrs["overlap_threshold"])
    at = np.flatnonzero(indices >= 0)
    closest = shares.max(axis=0, initial=0.0)
    candidates = np.flatnonzero((indices < 0) & (closest < attrs["neg_overlap"]))
    hardness = np.delete(chances, attrs["background_id"], axis=1).max(axis=1)
    hardest = candidates[np.argsort(-hardness[candidates], kind="stable")]
    return objects[indices[at]], at, hardest[: int(len(at) * attrs["neg_pos_ratio"])]


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
