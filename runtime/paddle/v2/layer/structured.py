# SPDX-License-Identifier: Apache-2.0
"""Structured costs: sequence tagging (crf), unaligned labels (ctc), and large numbers of classes (nce, hsigmoid)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from paddle.graph import Variable
from paddle.ops.base.dtypes import VarType
from paddle.signatures import takes
from paddle.v2 import model
from paddle.v2.data_type import DataType
from paddle.v2.errors import UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.lengths import require_sizes
from paddle.v2.layer.mixed import weight_attrs
from paddle.v2.layer.output import (
    LayerAttr,
    LayerOutput,
    Weight,
    WeightAttr,
    build,
    is_index,
    require_layer,
    require_no_extras,
    require_size,
)
from paddle.v2.model import Attrs, LayerConfig

__all__ = ["crf", "crf_decoding", "ctc", "hsigmoid", "nce", "warp_ctc"]

_SUM_TOLERANCE = 1e-5  # tolerance of a sum of float32 probabilities
_BY_CHANCES = 2  # of the operator's samplers
_LEAST_PROBABILITY = 1e-30  # ln 0 has no finite gradient


def _weigh_classes(prefix: str, given: dict[str, Any], made: Made) -> Made:
    """Declare a weight with one row per class for each input, and check the `layer_attr`."""
    count, rows = int(made.attrs["inputs"]), made.bias_dims[1]  # type: ignore[arg-type]
    require_no_extras(given.pop("layer_attr"), prefix.removesuffix("_layer"))
    given["name"] = model.current().auto_name(prefix, given["name"])
    each = weight_attrs(given.pop("param_attr"), count, given["name"])
    weights = [Weight([rows, layer.size], attr) for layer, attr in zip(made.inputs, each, strict=False)]
    return made._replace(weights=weights)


_among_many = partial(declares, many=True, has_bias=True, finish=_weigh_classes)


@takes("input, label, size=None, weight=None, param_attr=None, name=None, coeff=1.0, layer_attr=None")
def crf(given: dict[str, Any]) -> LayerOutput:
    """Declare a linear-chain CRF cost: the negative log-likelihood of each sequence's tags.

    The parameter [size + 2, size] contains the scores of first tags (row 0), of last tags (row 1), and of transitions.
    """
    return _tagging("crf", **given)


@takes("input, size, label=None, param_attr=None, name=None, layer_attr=None")
def crf_decoding(given: dict[str, Any]) -> LayerOutput:
    """Declare the most likely tags of a linear-chain CRF (field "id").

    With a label, field "value" is 1 for each wrong tag and 0 for others.
    """
    return _tagging("crf_decoding", **given)


@takes("input, label, size=None, name=None, norm_by_times=False, layer_attr=None")
def ctc(given: dict[str, Any]) -> LayerOutput:
    """Declare the connectionist temporal classification (CTC) cost of unaligned labels; the last class is the blank.

    Inputs are probabilities, which are used unchanged even if a row does not sum to 1.
    """
    return _unplaced("ctc", **given, blank=given["input"].size - 1)


@takes("input, label, size=None, name=None, blank=0, norm_by_times=False, layer_attr=None")
def warp_ctc(given: dict[str, Any]) -> LayerOutput:
    """Declare the connectionist temporal classification (CTC) cost of scores; the layer applies a softmax to them."""
    input = given["input"]
    if input.activation == "softmax":
        raise UsageError(
            f"warp_ctc: input {input.name!r} must have activation Linear, because the layer has its own softmax"
        )
    return _unplaced("warp_ctc", **given)


@_among_many(
    "input, label, num_classes=None, param_attr=None, weight=None, num_neg_samples=10, neg_distribution=None, "
    "name=None, bias_attr=None, layer_attr=None",
    prefix="nce_layer",
)
def nce(
    input: list[LayerOutput],
    label: LayerOutput,
    num_classes: int | None,
    weight: LayerOutput | None,
    num_neg_samples: int,
    neg_distribution: Sequence[float] | None,
) -> Made:
    """Declare the noise-contrastive estimation (NCE) cost, for large numbers of classes.

    A label is an integer or, for several true classes, a sparse_binary_vector. Negatives are drawn uniformly, or from
    the probabilities `neg_distribution`.
    """
    if weight is not None:
        require_size(weight, 1, "weight of nce")
    classes = _classes(label, num_classes, "nce")
    attrs: Attrs = {
        "classes": classes,
        "drawn": num_neg_samples,
        "weighted": weight is not None,
        "coeff": 1.0,
    }
    if neg_distribution is not None:
        chances = tuple(float(chance) for chance in neg_distribution)
        if len(chances) != classes or abs(sum(chances) - 1) > _SUM_TOLERANCE or min(chances) < 0:
            raise UsageError(
                f"nce: neg_distribution must be {classes} probabilities (one per class) that sum to 1, got "
                f"{len(chances)} that sum to {sum(chances):g}"
            )
        attrs = {**attrs, "neg_distribution": chances}
    extra = [label] if weight is None else [label, weight]
    return Made([*input, *extra], 1, {**attrs, "inputs": len(input)}, bias_dims=[1, classes])


@_among_many("input, label, num_classes=None, name=None, bias_attr=None, param_attr=None, layer_attr=None")
def hsigmoid(input: list[LayerOutput], label: LayerOutput, num_classes: int | None) -> Made:
    """Declare the hierarchical sigmoid cost: the cross entropy of a class's path in a binary tree of all classes."""
    classes = _classes(label, num_classes, "hsigmoid")
    if classes < 3:
        raise UsageError(f"hsigmoid needs more than two classes, got {classes}")
    attrs = {"classes": classes, "weighted": False, "coeff": 1.0, "inputs": len(input)}
    return Made([*input, label], 1, attrs, bias_dims=[1, classes - 1])


def _tagging(
    kind: str,
    input: LayerOutput,
    label: LayerOutput | None,
    size: int | None,
    param_attr: WeightAttr,
    name: str | None,
    layer_attr: LayerAttr,
    weight: LayerOutput | None = None,
    coeff: float | None = None,
) -> LayerOutput:
    require_layer(input, kind)
    require_no_extras(layer_attr, kind)
    tags = input.size if size is None else size
    if label is not None and (label.layer_type == "data" or label.data_type is not None):
        _require_tags(label, tags, kind)
    parents = [layer for layer in (input, label, weight) if layer is not None]
    cost = {} if coeff is None else {"weighted": weight is not None, "coeff": float(coeff)}
    attrs = {"tags": tags, **cost}
    weights = [Weight([tags + 2, tags], param_attr)]
    return build(kind, parents, 1, name, prefix=f"{kind}_layer", weights=weights, attrs=attrs)


def _require_tags(label: LayerOutput, tags: int, who: str) -> None:
    if not is_index(label) or label.size > tags:
        found = label.data_type or f"size {label.size}"
        raise UsageError(
            f"{who}: label {label.name!r} must be a data layer of integers below {tags}, the size of the input, "
            f"got {found}; use integer_value_sequence({tags})"
        )


def _unplaced(
    kind: str,
    input: LayerOutput,
    label: LayerOutput,
    size: int | None,
    name: str | None,
    blank: int,
    norm_by_times: bool,
    layer_attr: LayerAttr,
) -> LayerOutput:
    require_no_extras(layer_attr, kind)
    if size is not None:
        require_size(input, size, kind)
    attrs = {"blank": blank, "norm_by_times": bool(norm_by_times), "coeff": 1.0}
    return build(kind, [input, label], 1, name, prefix=f"{kind}_layer", attrs=attrs)


def _classes(label: LayerOutput, num_classes: int | None, who: str) -> int:
    many = who == "nce" and label.data_type is not None and label.data_type.type == DataType.SparseNonValue
    if not many and not is_index(label):
        raise UsageError(
            f"{who}: label {label.name!r} must be a data layer of type integer_value, got {label.data_type}"
        )
    return label.size if num_classes is None else num_classes


@emits("crf", together=2, sequences=(0, 1), one_a_sample=True)
def _crf(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs = {**_crf_inputs(emitter, config), "Label": emitter.label(config.inputs[1].layer)}
    outs = ["LogLikelihood", "Alpha", "EmissionExps", "TransitionExps"]
    cost = emitter.ops("linear_chain_crf", inputs, None, outs)[0]
    if not config.attrs["weighted"]:
        return cost
    return emitter.binary("elementwise_mul", cost, emitter.rows(config.inputs[2].layer))


def _crf_inputs(emitter: Emitter, config: LayerConfig) -> dict[str, Variable]:
    link, tags = config.inputs[0], int(config.attrs["tags"])  # type: ignore[arg-type]
    transition = emitter.shaped_parameter(link.parameter, [tags + 2, tags])
    require_sizes(emitter.layers, config, tags)
    return {"Emission": emitter.first(config), "Transition": transition}


@emits("crf_decoding", together=2, sequences=(0, 1))
def _crf_decoding(emitter: Emitter, config: LayerConfig) -> Variable | None:
    inputs = _crf_inputs(emitter, config)
    emitter.ids[config.name] = emitter.op("crf_decoding", inputs, out="ViterbiPath")
    if len(config.inputs) == 1:
        return None
    inputs["Label"] = emitter.label(config.inputs[1].layer)
    right = emitter.op("crf_decoding", inputs, out="ViterbiPath")
    as_float = emitter.unary("cast", right, in_dtype="int64", out_dtype="float32")
    return emitter.unary("scale", as_float, scale=-1.0, bias=1.0)


@emits("warp_ctc", sequences=(0, 1), one_a_sample=True)
def _warp_ctc(emitter: Emitter, config: LayerConfig) -> Variable:
    return _ctc_cost(emitter, config, emitter.first(config))


@emits("ctc", sequences=(0, 1), one_a_sample=True)
def _ctc(emitter: Emitter, config: LayerConfig) -> Variable:
    scores = config.inputs[0].layer
    logits = emitter.logits(scores)
    if logits is not None:
        return _ctc_cost(emitter, config, logits)
    value = emitter.unary("clip", emitter.rows(scores), min=_LEAST_PROBABILITY, max=float("inf"))
    cost = _ctc_cost(emitter, config, emitter.unary("log", value))
    # The difference that the operator's softmax makes to a sequence's log probability: Σ ln of the rows' sums.
    logs = {"X": emitter.unary("log", emitter.row_sum(value))}
    taken = emitter.ops("sequence_pool", logs, {"pooltype": "SUM"}, ["Out", "MaxIndex"])[0]
    return emitter.binary("elementwise_sub", cost, taken)


def _ctc_cost(emitter: Emitter, config: LayerConfig, logits: Variable) -> Variable:
    inputs = {"Logits": logits, "Label": emitter.label(config.inputs[1].layer)}
    attrs = {key: config.attrs[key] for key in ("blank", "norm_by_times")}
    return emitter.ops("warpctc", inputs, attrs, ["Loss", "WarpCTCGrad"])[0]


@emits("nce", together=None)
def _nce(emitter: Emitter, config: LayerConfig) -> Variable:
    classes, drawn = (int(config.attrs[key]) for key in ("classes", "drawn"))  # type: ignore[arg-type]
    inputs = _class_inputs(emitter, config, "Input", "Weight", classes)
    if config.attrs["weighted"]:
        inputs["SampleWeight"] = emitter.rows(config.inputs[-1].layer)
    attrs = {"num_total_classes": classes, "num_neg_samples": drawn}
    chances = config.attrs.get("neg_distribution")
    if chances is not None:
        values = {"shape": [classes], "dtype": VarType.FP32, "fp32_values": chances}
        inputs["CustomDistProbs"] = emitter.op("assign_value", {}, values)
        attrs["sampler"] = _BY_CHANCES
    return emitter.ops("nce", inputs, attrs, ["Cost", "SampleLogits", "SampleLabels"])[0]


@emits("hsigmoid", together=None)
def _hsigmoid(emitter: Emitter, config: LayerConfig) -> Variable:
    classes = int(config.attrs["classes"])  # type: ignore[arg-type]
    inputs = _class_inputs(emitter, config, "X", "W", classes - 1)
    outs = ["Out", "PreOut", "W_Out"]
    return emitter.ops("hierarchical_sigmoid", inputs, {"num_classes": classes}, outs)[0]


def _class_inputs(
    emitter: Emitter, config: LayerConfig, rows_slot: str, weight_slot: str, rows: int
) -> dict[str, Any]:
    count = int(config.attrs["inputs"])  # type: ignore[arg-type]
    links, label = config.inputs[:count], config.inputs[count].layer

    def beside(values: Sequence[Variable]) -> Variable:
        # Several inputs with a weight each are one input with the weights side by side.
        return values[0] if count == 1 else emitter.op("concat", {"X": list(values)}, {"axis": 1})

    inputs: dict[str, Any] = {
        rows_slot: beside([emitter.rows(link.layer) for link in links]),
        weight_slot: beside([emitter.parameter(link.parameter) for link in links]),
    }
    if label in emitter.sparse:
        inputs["Label"], inputs["LabelWeight"] = emitter.sparse[label]
    else:
        inputs["Label"] = emitter.label(label)
    if config.bias:
        inputs["Bias"] = emitter.shaped_parameter(config.bias, [rows, 1])
    return inputs
