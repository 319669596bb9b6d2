# SPDX-License-Identifier: Apache-2.0
"""Object detection layers (SSD): prior boxes, the loss of a detector, and the boxes that it detects."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.graph import Variable
from paddle.v2.data_type import SequenceType
from paddle.v2.errors import UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.image import geometry
from paddle.v2.layer.output import LayerOutput, as_list, require_layer, require_size
from paddle.v2.model import Attrs, LayerConfig

__all__ = ["detection_output", "multibox_loss", "priorbox"]

_LOSS = ("num_classes", "overlap_threshold", "neg_pos_ratio", "neg_overlap", "background_id")
_OUTPUT = (
    "num_classes", "nms_threshold", "nms_top_k", "keep_top_k", "confidence_threshold", "background_id",
)  # fmt: skip


@declares("input, image, aspect_ratio, variance, min_size, max_size=[], name=None")
def priorbox(
    input: LayerOutput,
    image: LayerOutput,
    aspect_ratio: Sequence[float],
    variance: Sequence[float],
    min_size: Sequence[float],
    max_size: Sequence[float],
) -> Made:
    """Declare the prior boxes around each cell of a feature map, in one row for all images.

    A box has 8 numbers: left, top, right and bottom as fractions of the image, clipped to [0, 1], and 4 variances.

    Args:
        input: the feature map.
        image: the image that the sizes in pixels refer to.
        aspect_ratio: width / height of further boxes of each min_size; the inverses are added.
        variance: 4 divisors of the encoded boxes.
        min_size: side lengths of squares, in pixels.
        max_size: empty, or one per min_size: each adds a square of side √(min_size max_size).
        name: the name of the layer.
    """
    features, whole = geometry(input, None, "priorbox"), geometry(image, image.num_filters or 3, "priorbox")
    if len(variance) != 4 or not min_size or len(max_size) not in (0, len(min_size)):
        raise UsageError(
            "priorbox: variance needs 4 numbers, min_size at least one, and max_size none or one per min_size; got "
            f"variance={variance!r}, min_size={min_size!r}, max_size={max_size!r}"
        )
    ratios = [each for each in aspect_ratio if abs(each - 1) >= 1e-6]
    count = (2 * len(dict.fromkeys(ratios)) + 1) * len(min_size) + len(max_size)
    attrs: Attrs = {
        "features": tuple(features),
        "whole": tuple(whole),
        "aspect_ratios": tuple(dict.fromkeys(map(float, ratios))),
        "variances": tuple(map(float, variance)),
        "min_sizes": tuple(map(float, min_size)),
        "max_sizes": tuple(map(float, max_size)),
    }
    return Made([input, image], features.height * features.width * count * 8, attrs, image=(count * 4, 0, 0))


@emits("priorbox")
def _priorbox(emitter: Emitter, config: LayerConfig) -> Variable:
    features, image = (
        emitter.image(link.layer, *config.attrs[key])  # type: ignore[misc]
        for link, key in zip(config.inputs, ("features", "whole"), strict=True)
    )
    keys = ("aspect_ratios", "variances", "min_sizes", "max_sizes")
    attrs = {key: config.attrs[key] for key in keys}
    attrs |= {"flip": True, "clip": True, "min_max_aspect_ratios_order": True}
    made = emitter.ops("prior_box", {"Input": features, "Image": image}, attrs, ["Boxes", "Variances"])
    sides = [emitter.reshape(each, [-1, 4]) for each in made]
    return emitter.reshape(emitter.op("concat", {"X": sides}, {"axis": 1}), [1, config.size])


@declares(
    "input_loc, input_conf, priorbox, label, num_classes, overlap_threshold=0.5, neg_pos_ratio=3.0, "
    "neg_overlap=0.5, background_id=0, name=None"
)
def multibox_loss(
    input_loc: LayerOutput | Sequence[LayerOutput],
    input_conf: LayerOutput | Sequence[LayerOutput],
    priorbox: LayerOutput,
    label: LayerOutput,
    num_classes: int,
    overlap_threshold: float,
    neg_pos_ratio: float,
    neg_overlap: float,
    background_id: int,
) -> Made:
    """Declare the SSD loss of a batch (Liu et al., 2016).

    Each sample's row contains the loss of the whole batch; its gradient is counted once.

    Args:
        input_loc: one convolution per feature map, with 4 filters for each prior of a cell.
        input_conf: one convolution per feature map, with num_classes filters for each prior of a cell.
        priorbox: the priors of all feature maps in order, joined by `concat`.
        label: sequences of (class, left, top, right, bottom, difficult), as fractions of the image.
        num_classes: the number of classes, including the background.
        overlap_threshold: a prior is matched to an object if they overlap by more than this.
        neg_pos_ratio: the number of background priors used per matched prior.
        neg_overlap: background priors overlap every object by less than this.
        background_id: the class of the background.
        name: the name of the layer.
    """
    given = num_classes, overlap_threshold, neg_pos_ratio, neg_overlap, background_id
    attrs: Attrs = dict(zip(_LOSS, given, strict=True))
    made = _detector("multibox_loss", input_loc, input_conf, priorbox, attrs)
    require_layer(label, "multibox_loss")
    if not _is_open(label):
        require_size(label, 6, "multibox_loss: label")
    if label.data_type is not None and label.data_type.seq_type == SequenceType.NO_SEQUENCE:
        raise UsageError(
            f"multibox_loss: label {label.name!r} needs a sequence of objects for each image; declare it as "
            "dense_vector_sequence(6)"
        )
    return made._replace(inputs=[*made.inputs, label], size=1)


@emits("multibox_loss")
def _multibox_loss(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs = {**_inputs(emitter, config), "Label": emitter.rows(config.inputs[-1].layer)}
    attrs = {key: config.attrs[key] for key in _LOSS}
    return emitter.ops("multibox_loss", inputs, attrs, ["Loss", "LocationGrad", "ConfidenceGrad"])[0]


@declares(
    "input_loc, input_conf, priorbox, num_classes, nms_threshold=0.45, nms_top_k=400, keep_top_k=200, "
    "confidence_threshold=0.01, background_id=0, name=None"
)
def detection_output(
    input_loc: LayerOutput | Sequence[LayerOutput],
    input_conf: LayerOutput | Sequence[LayerOutput],
    priorbox: LayerOutput,
    num_classes: int,
    nms_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    confidence_threshold: float,
    background_id: int,
) -> Made:
    """Declare the detected boxes, after non-maximum suppression: rows (sample, class, score, left, top, right, bottom).

    Args:
        input_loc: the layers of location codes, as in `multibox_loss`.
        input_conf: the layers of class scores, as in `multibox_loss`.
        priorbox: the layer of prior boxes, as in `multibox_loss`.
        num_classes: the number of classes, including the background.
        nms_threshold: the overlap above which only the better one of two boxes of a class remains.
        nms_top_k: the number of boxes per class to consider.
        keep_top_k: the maximum number of boxes per image.
        confidence_threshold: boxes with a lower score are dropped.
        background_id: the class of the background.
        name: the name of the layer.
    """
    given = num_classes, nms_threshold, nms_top_k, keep_top_k, confidence_threshold, background_id
    attrs: Attrs = dict(zip(_OUTPUT, given, strict=True))
    return _detector("detection_output", input_loc, input_conf, priorbox, attrs)._replace(size=7)


@emits("detection_output")
def _detection_output(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {key: config.attrs[key] for key in _OUTPUT}
    return emitter.op("detection_output", _inputs(emitter, config), attrs)


def _detector(
    who: str,
    input_loc: LayerOutput | Sequence[LayerOutput],
    input_conf: LayerOutput | Sequence[LayerOutput],
    priorbox: LayerOutput,
    attrs: Attrs,
) -> Made:
    """Check that locations and classes fit the priors."""
    locations, classes = as_list(input_loc, who), as_list(input_conf, who)
    require_layer(priorbox, who)
    if len(locations) != len(classes):
        raise UsageError(
            f"{who}: input_conf and input_loc must have the same number of layers, got {len(classes)} "
            f"and {len(locations)}"
        )
    priors, number = priorbox.size // 8, attrs["num_classes"]
    for layers, each, what in ((locations, 4, "input_loc"), (classes, int(number), "input_conf")):  # type: ignore[arg-type]
        size = sum(layer.size for layer in layers)
        if size != priors * each and not any(map(_is_open, layers)):
            raise UsageError(
                f"{who}: {what} has {size} numbers; expected {priors * each} ({each} for each of {priors} priors)"
            )
    images = [number for layer in (*locations, *classes) for number in geometry(layer, None, who)]
    count = len(locations)
    return Made([*locations, *classes, priorbox], 0, {**attrs, "maps": count, "images": tuple(images)})


def _is_open(layer: LayerOutput) -> bool:
    """Return whether a data provider sets the type of a data layer; then only its data can be checked."""
    return layer.layer_type == "data" and layer.data_type is None


def _inputs(emitter: Emitter, config: LayerConfig) -> dict[str, Variable]:
    """Concatenate the feature maps' numbers cell by cell, in the order of the priors."""
    count: int = config.attrs["maps"]  # type: ignore[assignment]
    images: Sequence[int] = config.attrs["images"]  # type: ignore[assignment]
    rows = []
    for at, link in enumerate(config.inputs[: 2 * count]):
        channels, height, width = images[3 * at : 3 * at + 3]
        image = {"X": emitter.image(link.layer, channels, height, width)}
        turned = emitter.ops("transpose2", image, {"axis": [0, 2, 3, 1]}, ["Out", "XShape"])[0]
        rows.append(emitter.reshape(turned, [-1, channels * height * width]))
    sides = (rows[:count], rows[count:])
    location, confidence = (emitter.op("concat", {"X": each}, {"axis": 1}) for each in sides)
    prior = emitter.rows(config.inputs[2 * count].layer)
    return {"Location": location, "Confidence": confidence, "PriorBox": prior}
