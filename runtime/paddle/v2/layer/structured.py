# SPDX-License-Identifier: Apache-2.0
"""Costs over structures: tags of sequences (crf), labels without places (ctc), many classes (nce, hsigmoid)."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.graph import Variable
from paddle.ops.base.dtypes import VarType
from paddle.v2 import model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.data_type import DataType
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.fc import weight_attrs
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    add_bias,
    as_list,
    declare,
    is_index,
    require_layer,
    require_size,
    weight_attr,
)
from paddle.v2.model import Attrs, InputConfig, LayerConfig

_MAY_MISS = 1e-5  # what a sum of float32 chances may miss 1 by
_BY_CHANCES = 2  # of the operator's samplers
_LEAST_PROBABILITY = 1e-30  # ln 0 would leave nothing to go back by


def crf(
    input: LayerOutput,
    label: LayerOutput,
    size: int | None = None,
    weight: LayerOutput | None = None,
    param_attr: ParameterAttribute | None = None,
    name: str | None = None,
    coeff: float = 1.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the negative log likelihood of each sequence's tags.

    The parameter [size + 2, size] scores first tags in row 0, last ones in row 1, steps from tag to tag below.
    """
    name = model.current().auto_name("crf_layer", name)
    return declare(*_tagging(name, "crf", input, label, size, weight, param_attr, coeff))


def crf_decoding(
    input: LayerOutput,
    size: int,
    label: LayerOutput | None = None,
    param_attr: ParameterAttribute | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the best tags (field "id"); with a label also 1 where a tag is wrong and 0 elsewhere (field "value")."""
    name = model.current().auto_name("crf_decoding_layer", name)
    return declare(*_tagging(name, "crf_decoding", input, label, size, None, param_attr, 1.0))


def ctc(
    input: LayerOutput,
    label: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    norm_by_times: bool = False,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the cost of labels without places over probabilities; the last class is the blank.

    Whatever layer made them, rows are taken as they are, also where they do not add up to 1.
    """
    return _unplaced("ctc", input, label, size, name, input.size - 1, norm_by_times)


def warp_ctc(
    input: LayerOutput,
    label: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    blank: int = 0,
    norm_by_times: bool = False,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the cost of labels without places over scores, which go through a softmax here."""
    if input.activation == "softmax":
        raise UsageError(
            f"warp_ctc: input {input.name!r} must have activation Linear; it has its own softmax"
        )
    return _unplaced("warp_ctc", input, label, size, name, blank, norm_by_times)


def nce(
    input: LayerOutput | Sequence[LayerOutput],
    label: LayerOutput,
    num_classes: int | None = None,
    param_attr: ParameterAttribute | Sequence[ParameterAttribute] | None = None,
    weight: LayerOutput | None = None,
    num_neg_samples: int = 10,
    neg_distribution: Sequence[float] | None = None,
    name: str | None = None,
    bias_attr: BiasAttr = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the cost of true classes against drawn ones, uniformly or by `neg_distribution`.

    A label is an integer, or a sparse_binary_vector: several true classes.
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
        if len(chances) != classes or abs(sum(chances) - 1) > _MAY_MISS or min(chances) < 0:
            raise UsageError(
                f"nce: neg_distribution must be {classes} probabilities (one per class) that sum to 1, got "
                f"{len(chances)} that sum to {sum(chances):g}"
            )
        attrs = {**attrs, "neg_distribution": chances}
    extra = [label] if weight is None else [label, weight]
    return _many_classes("nce", "nce_layer", input, extra, classes, name, param_attr, bias_attr, attrs)


def hsigmoid(
    input: LayerOutput | Sequence[LayerOutput],
    label: LayerOutput,
    num_classes: int | None = None,
    name: str | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | Sequence[ParameterAttribute] | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the cost of the way to a class through a binary tree of all classes."""
    classes = _classes(label, num_classes, "hsigmoid")
    if classes < 3:
        raise UsageError(f"hsigmoid needs more than two classes, got {classes}")
    attrs = {"classes": classes, "weighted": False, "coeff": 1.0}
    return _many_classes(
        "hsigmoid", "hsigmoid", input, [label], classes - 1, name, param_attr, bias_attr, attrs
    )


def _tagging(
    name: str,
    kind: str,
    input: LayerOutput,
    label: LayerOutput | None,
    size: int | None,
    weight: LayerOutput | None,
    param_attr: ParameterAttribute | None,
    coeff: float,
) -> tuple[LayerConfig, list[LayerOutput]]:
    require_layer(input, kind)
    tags = input.size if size is None else size
    require_size(input, tags, kind)
    parents = [layer for layer in (input, label, weight) if layer is not None]
    parameter = model.current().add_parameter(f"_{name}.w0", [tags + 2, tags], weight_attr(param_attr))
    links = [InputConfig(input.name, parameter), *(InputConfig(layer.name) for layer in parents[1:])]
    attrs = {"tags": tags, "weighted": weight is not None, "coeff": float(coeff)}
    return LayerConfig(name, kind, 1, tuple(links), attrs=attrs), parents


def _unplaced(
    kind: str,
    input: LayerOutput,
    label: LayerOutput,
    size: int | None,
    name: str | None,
    blank: int,
    norm_by_times: bool,
) -> LayerOutput:
    if size is not None:
        require_size(input, size, kind)
    name = model.current().auto_name(f"{kind}_layer", name)
    attrs = {"blank": blank, "norm_by_times": bool(norm_by_times), "coeff": 1.0}
    links = (InputConfig(input.name), InputConfig(label.name))
    return declare(LayerConfig(name, kind, 1, links, attrs=attrs), [input, label])


def _many_classes(
    kind: str,
    prefix: str,
    input: LayerOutput | Sequence[LayerOutput],
    extra: list[LayerOutput],
    rows: int,
    name: str | None,
    param_attr: ParameterAttribute | Sequence[ParameterAttribute] | None,
    bias_attr: BiasAttr,
    attrs: Attrs,
) -> LayerOutput:
    inputs = as_list(input, kind)
    name = model.current().auto_name(prefix, name)
    weights = weight_attrs(param_attr, len(inputs), name)
    links = [
        InputConfig(layer.name, model.current().add_parameter(f"_{name}.w{at}", [rows, layer.size], attr))
        for at, (layer, attr) in enumerate(zip(inputs, weights, strict=True))
    ]
    links += [InputConfig(layer.name) for layer in extra]
    bias = add_bias(name, [1, rows], bias_attr, default=True)
    config = LayerConfig(name, kind, 1, tuple(links), bias=bias, attrs={**attrs, "inputs": len(inputs)})
    return declare(config, [*inputs, *extra])


def _classes(label: LayerOutput, num_classes: int | None, who: str) -> int:
    many = who == "nce" and label.data_type is not None and label.data_type.type == DataType.SparseNonValue
    if not many and not is_index(label):
        raise UsageError(
            f"{who}: label {label.name!r} must be a data layer of integer_value, got {label.data_type}"
        )
    return label.size if num_classes is None else num_classes


@emits("crf")
def _emit_crf(emitter: Emitter, config: LayerConfig) -> None:
    link, label = config.inputs[:2]
    tags = int(config.attrs["tags"])  # type: ignore[arg-type]
    inputs = {
        "Emission": emitter.rows(link.layer),
        "Transition": emitter.shaped_parameter(link.parameter, [tags + 2, tags]),
        "Label": emitter.label(label.layer),
    }
    outs = ["LogLikelihood", "Alpha", "EmissionExps", "TransitionExps"]
    cost = emitter.ops("linear_chain_crf", inputs, None, outs)[0]
    if config.attrs["weighted"]:
        cost = emitter.op("elementwise_mul", {"X": cost, "Y": emitter.rows(config.inputs[2].layer)})
    emitter.finish(config, cost)


@emits("crf_decoding")
def _emit_crf_decoding(emitter: Emitter, config: LayerConfig) -> None:
    link, *labels = config.inputs
    tags = int(config.attrs["tags"])  # type: ignore[arg-type]
    inputs = {
        "Emission": emitter.rows(link.layer),
        "Transition": emitter.shaped_parameter(link.parameter, [tags + 2, tags]),
    }
    emitter.ids[config.name] = emitter.op("crf_decoding", inputs, out="ViterbiPath")
    if not labels:
        return
    inputs["Label"] = emitter.label(labels[0].layer)
    right = emitter.op("crf_decoding", inputs, out="ViterbiPath")
    as_float = emitter.op("cast", {"X": right}, {"in_dtype": "int64", "out_dtype": "float32"})
    emitter.finish(config, emitter.op("scale", {"X": as_float}, {"scale": -1.0, "bias": 1.0}))


@emits("ctc")
@emits("warp_ctc")
def _emit_ctc(emitter: Emitter, config: LayerConfig) -> None:
    scores, label = (link.layer for link in config.inputs)
    logits, value = emitter.logits(scores), None
    if logits is None:
        value = emitter.rows(scores)
        if config.type == "ctc":
            value = emitter.op("clip", {"X": value}, {"min": _LEAST_PROBABILITY, "max": float("inf")})
        logits = emitter.op("log", {"X": value}) if config.type == "ctc" else value
    inputs = {"Logits": logits, "Label": emitter.label(label)}
    attrs = {key: config.attrs[key] for key in ("blank", "norm_by_times")}
    cost = emitter.ops("warpctc", inputs, attrs, ["Loss", "WarpCTCGrad"])[0]
    if value is not None and config.type == "ctc":
        cost = emitter.op("elementwise_sub", {"X": cost, "Y": _log_of_sums(emitter, value)})
    emitter.finish(config, cost)


def _log_of_sums(emitter: Emitter, value: Variable) -> Variable:
    """What the operator's softmax took off the logarithm of a sequence: ln of each row's sum, added up."""
    sums = emitter.op("reduce_sum", {"X": value}, {"dim": [1], "keep_dim": True})
    logs = emitter.op("log", {"X": sums})
    return emitter.ops("sequence_pool", {"X": logs}, {"pooltype": "SUM"}, ["Out", "MaxIndex"])[0]


@emits("nce")
def _emit_nce(emitter: Emitter, config: LayerConfig) -> None:
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
    outs = ["Cost", "SampleLogits", "SampleLabels"]
    emitter.finish(config, emitter.ops("nce", inputs, attrs, outs)[0])


@emits("hsigmoid")
def _emit_hsigmoid(emitter: Emitter, config: LayerConfig) -> None:
    classes = int(config.attrs["classes"])  # type: ignore[arg-type]
    inputs = _class_inputs(emitter, config, "X", "W", classes - 1)
    outs = ["Out", "PreOut", "W_Out"]
    emitter.finish(config, emitter.ops("hierarchical_sigmoid", inputs, {"num_classes": classes}, outs)[0])


def _class_inputs(
    emitter: Emitter, config: LayerConfig, rows_slot: str, weight_slot: str, rows: int
) -> dict[str, object]:
    count = int(config.attrs["inputs"])  # type: ignore[arg-type]
    links = config.inputs[:count]
    values = [emitter.rows(link.layer) for link in links]
    weights = [emitter.parameter(link.parameter) for link in links]
    inputs: dict[str, object] = {
        # Several inputs with a weight each are one input with the weights side by side.
        rows_slot: values[0] if count == 1 else emitter.op("concat", {"X": values}, {"axis": 1}),
        weight_slot: weights[0] if count == 1 else emitter.op("concat", {"X": list(weights)}, {"axis": 1}),
    }
    label = config.inputs[count].layer
    if label in emitter.sparse:
        inputs["Label"], inputs["LabelWeight"] = emitter.sparse[label]
    else:
        inputs["Label"] = emitter.label(label)
    if config.bias:
        inputs["Bias"] = emitter.shaped_parameter(config.bias, [rows, 1])
    return inputs
