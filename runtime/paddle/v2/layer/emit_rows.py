# SPDX-License-Identifier: Apache-2.0
"""Operators behind the layers of ``combine`` and ``rows``."""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.sparse_input import factors
from paddle.v2.model import LayerConfig


def _number(config: LayerConfig, key: str) -> float:
    value = config.attrs[key]
    assert isinstance(value, (int, float))
    return value


def _inputs(emitter: Emitter, config: LayerConfig) -> list[Variable]:
    return [emitter.rows(link.layer) for link in config.inputs]


def _row_sum(emitter: Emitter, value: Variable) -> Variable:
    return emitter.op("reduce_sum", {"X": value}, {"dim": [1], "keep_dim": True})


def _over_rows(emitter: Emitter, kind: str, value: Variable, per_row: Variable) -> Variable:
    return emitter.op(kind, {"X": value, "Y": per_row}, {"axis": 0})


@emits("addto")
def _addto(emitter: Emitter, config: LayerConfig) -> None:
    total = emitter.add_all(_inputs(emitter, config))
    emitter.finish(config, emitter.add_bias(total, config.bias))


@emits("slope_intercept")
def _slope_intercept(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    attrs = {"scale": _number(config, "slope"), "bias": _number(config, "intercept")}
    emitter.finish(config, emitter.op("scale", {"X": value}, attrs))


@emits("scaling")
def _scaling(emitter: Emitter, config: LayerConfig) -> None:
    weight, value = _inputs(emitter, config)
    emitter.finish(config, _over_rows(emitter, "elementwise_mul", value, weight))


@emits("power")
def _power(emitter: Emitter, config: LayerConfig) -> None:
    weight, value = _inputs(emitter, config)
    emitter.finish(config, _over_rows(emitter, "elementwise_pow", value, weight))


@emits("interpolation")
def _interpolation(emitter: Emitter, config: LayerConfig) -> None:
    weight, x, y = _inputs(emitter, config)
    rest = emitter.op("scale", {"X": weight}, {"scale": -1.0, "bias": 1.0})
    terms = [
        _over_rows(emitter, "elementwise_mul", x, weight),
        _over_rows(emitter, "elementwise_mul", y, rest),
    ]
    emitter.finish(config, emitter.add_all(terms))


@emits("cos_sim")
def _cos_sim(emitter: Emitter, config: LayerConfig) -> None:
    a, b = _inputs(emitter, config)
    width = a.shape[1]
    if config.size > 1:
        a = emitter.op("expand", {"X": a}, {"expand_times": [1, config.size]})
    a, b = emitter.reshape(a, [-1, width]), emitter.reshape(b, [-1, width])
    cosine = emitter.ops("cos_sim", {"X": a, "Y": b}, None, ["Out", "XNorm", "YNorm"])[0]
    scaled = emitter.op("scale", {"X": cosine}, {"scale": _number(config, "scale")})
    emitter.finish(config, emitter.reshape(scaled, [-1, config.size]))


@emits("l2_distance")
def _l2_distance(emitter: Emitter, config: LayerConfig) -> None:
    x, y = _inputs(emitter, config)
    difference = emitter.op("elementwise_sub", {"X": x, "Y": y})
    squares = _row_sum(emitter, emitter.op("square", {"X": difference}))
    emitter.finish(config, emitter.op("sqrt", {"X": squares}))


@emits("dot_prod")
def _dot_prod(emitter: Emitter, config: LayerConfig) -> None:
    x, y = _inputs(emitter, config)
    emitter.finish(config, _row_sum(emitter, emitter.op("elementwise_mul", {"X": x, "Y": y})))


@emits("out_prod")
def _out_prod(emitter: Emitter, config: LayerConfig) -> None:
    x, y = _inputs(emitter, config)
    columns, rows = emitter.reshape(x, [-1, x.shape[1], 1]), emitter.reshape(y, [-1, 1, y.shape[1]])
    emitter.finish(
        config, emitter.reshape(emitter.op("matmul", {"X": columns, "Y": rows}), [-1, config.size])
    )


@emits("scale_shift")
def _scale_shift(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    weight = emitter.shaped_parameter(config.inputs[0].parameter, [1])
    value = emitter.op("elementwise_mul", {"X": value, "Y": weight}, {"axis": 1})
    if config.bias:
        value = emitter.op(
            "elementwise_add", {"X": value, "Y": emitter.shaped_parameter(config.bias, [1])}, {"axis": 1}
        )
    emitter.finish(config, value)


@emits("prelu")
def _prelu(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    partial = int(_number(config, "partial_sum"))
    groups = config.size // partial
    value = emitter.reshape(value, [-1, groups, partial])
    negative = emitter.op("relu", {"X": emitter.op("scale", {"X": value}, {"scale": -1.0})})
    weight = emitter.shaped_parameter(config.inputs[0].parameter, [groups])
    scaled = emitter.op("elementwise_mul", {"X": negative, "Y": weight}, {"axis": 1})
    result = emitter.op("elementwise_sub", {"X": emitter.op("relu", {"X": value}), "Y": scaled})
    emitter.finish(config, emitter.reshape(result, [-1, config.size]))


@emits("factorization_machine")
def _factorization_machine(emitter: Emitter, config: LayerConfig) -> None:
    x, v = factors(emitter, config.inputs[0])
    squares = {"X": emitter.op("square", {"X": x}), "Y": emitter.op("square", {"X": v})}
    of_sum = emitter.op("square", {"X": emitter.op("mul", {"X": x, "Y": v})})
    difference = emitter.op("elementwise_sub", {"X": of_sum, "Y": emitter.op("mul", squares)})
    emitter.finish(config, emitter.op("scale", {"X": _row_sum(emitter, difference)}, {"scale": 0.5}))


@emits("clip")
def _clip(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    emitter.finish(
        config, emitter.op("clip", {"X": value}, {key: _number(config, key) for key in ("min", "max")})
    )


@emits("sum_to_one_norm")
def _sum_to_one_norm(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    emitter.finish(config, _over_rows(emitter, "elementwise_div", value, _row_sum(emitter, value)))


@emits("row_l2_norm")
def _row_l2_norm(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    squares = _row_sum(emitter, emitter.op("square", {"X": value}))
    emitter.finish(config, _over_rows(emitter, "elementwise_div", value, emitter.op("sqrt", {"X": squares})))


@emits("trans")
def _trans(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    emitter.finish(config, emitter.ops("transpose2", {"X": value}, {"axis": [1, 0]}, ["Out", "XShape"])[0])


@emits("resize")
def _resize(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    emitter.finish(config, emitter.reshape(value, [-1, config.size]))


@emits("repeat")
def _repeat(emitter: Emitter, config: LayerConfig) -> None:
    (value,) = _inputs(emitter, config)
    times, width = int(_number(config, "times")), value.shape[1]
    if config.attrs["as_row_vector"]:
        result = emitter.op("expand", {"X": value}, {"expand_times": [1, times]})
    else:
        column = emitter.reshape(value, [-1, width, 1])
        result = emitter.op("expand", {"X": column}, {"expand_times": [1, 1, times]})
    emitter.finish(config, emitter.reshape(result, [-1, config.size]))


@emits("linear_comb")
def _linear_comb(emitter: Emitter, config: LayerConfig) -> None:
    weights, vectors = _inputs(emitter, config)
    count = weights.shape[1]
    sides = {
        "X": emitter.reshape(weights, [-1, 1, count]),
        "Y": emitter.reshape(vectors, [-1, count, config.size]),
    }
    emitter.finish(config, emitter.reshape(emitter.op("matmul", sides), [-1, config.size]))


@emits("multiplex")
def _multiplex(emitter: Emitter, config: LayerConfig) -> None:
    index, choices = (
        emitter.label(config.inputs[0].layer),
        [emitter.rows(link.layer) for link in config.inputs[1:]],
    )
    count = len(choices)
    chosen = emitter.op("one_hot", {"X": index}, {"depth": count})
    sides = {
        "X": emitter.reshape(chosen, [-1, 1, count]),
        "Y": emitter.op("stack", {"X": choices}, {"axis": 1}, "Y"),
    }
    emitter.finish(config, emitter.reshape(emitter.op("matmul", sides), [-1, config.size]))


@emits("ids")
def _ids(emitter: Emitter, config: LayerConfig) -> None:
    emitter.ids[config.name] = emitter.label(config.inputs[0].layer)


@emits("sampling_id")
def _sampling_id(emitter: Emitter, config: LayerConfig) -> None:
    (chances,) = _inputs(emitter, config)
    word = emitter.op("sampling_id", {"X": chances})
    emitter.ids[config.name] = emitter.reshape(word, [-1, 1])


@emits("max_id")
def _max_id(emitter: Emitter, config: LayerConfig) -> None:
    value = emitter.readable(config.inputs[0].layer)
    largest, column = emitter.ops("top_k", {"X": value}, {"k": 1}, ["Out", "Indices"])
    emitter.ids[config.name] = column
    emitter.set_probabilities(config.name, largest)
