# SPDX-License-Identifier: Apache-2.0
"""Operators behind the cost layers; every one ends as (N, 1)."""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.sparse_input import dense
from paddle.v2.model import LayerConfig


def _row_sum(emitter: Emitter, value: Variable) -> Variable:
    return emitter.op("reduce_sum", {"X": value}, {"dim": [1], "keep_dim": True})


def _finish(emitter: Emitter, config: LayerConfig, cost: Variable) -> None:
    if config.attrs["weighted"]:
        weight = emitter.rows(config.inputs[-1].layer)
        cost = emitter.op("elementwise_mul", {"X": cost, "Y": weight})
    emitter.finish(config, cost)


def _difference(emitter: Emitter, config: LayerConfig) -> Variable:
    sides = {"X": emitter.rows(config.inputs[0].layer), "Y": emitter.rows(config.inputs[1].layer)}
    return emitter.op("elementwise_sub", sides)


@emits("cross_entropy")
def _cross_entropy(emitter: Emitter, config: LayerConfig) -> None:
    name, label = config.inputs[0].layer, emitter.label(config.inputs[1].layer)
    logits = emitter.logits(name)
    if logits is None:
        cost = emitter.op(
            "cross_entropy", {"X": emitter.rows(name), "Label": label}, {"soft_label": False}, "Y"
        )
    else:
        inputs = {"Logits": logits, "Label": label}
        probabilities, cost = emitter.ops(
            "softmax_with_cross_entropy", inputs, {"soft_label": False}, ["Softmax", "Loss"]
        )
        emitter.set_probabilities(name, probabilities)
    _finish(emitter, config, cost)


@emits("cross_entropy_with_selfnorm")
def _cross_entropy_with_selfnorm(emitter: Emitter, config: LayerConfig) -> None:
    value, label = emitter.rows(config.inputs[0].layer), emitter.label(config.inputs[1].layer)
    entropy = emitter.op("cross_entropy", {"X": value, "Label": label}, {"soft_label": False}, "Y")
    log_z = emitter.op("log", {"X": _row_sum(emitter, value)})
    penalty = emitter.op("scale", {"X": emitter.op("square", {"X": log_z})}, {"scale": config.attrs["alpha"]})
    _finish(emitter, config, emitter.add_all([entropy, log_z, penalty]))


@emits("multi_binary_label_cross_entropy")
def _multi_binary(emitter: Emitter, config: LayerConfig) -> None:
    name, label = config.inputs[0].layer, dense(emitter, config.inputs[1].layer)
    before = emitter.before_sigmoid(name)
    if before is not None:
        cost = emitter.op("sigmoid_cross_entropy_with_logits", {"X": before, "Label": label})
    else:
        value = emitter.rows(name)
        yes = _log_times(emitter, value, label)
        no = _log_times(emitter, _one_minus(emitter, value), _one_minus(emitter, label))
        cost = emitter.op("scale", {"X": emitter.add_all([yes, no])}, {"scale": -1.0})
    _finish(emitter, config, _row_sum(emitter, cost))


def _one_minus(emitter: Emitter, value: Variable) -> Variable:
    return emitter.op("scale", {"X": value}, {"scale": -1.0, "bias": 1.0})


def _log_times(emitter: Emitter, value: Variable, factor: Variable) -> Variable:
    return emitter.op("elementwise_mul", {"X": emitter.op("log", {"X": value}), "Y": factor})


@emits("square_error")
def _square_error(emitter: Emitter, config: LayerConfig) -> None:
    squares = emitter.op("square", {"X": _difference(emitter, config)})
    _finish(emitter, config, squares if squares.shape[-1] == 1 else _row_sum(emitter, squares))


@emits("sum_cost")
def _sum_cost(emitter: Emitter, config: LayerConfig) -> None:
    _finish(emitter, config, _row_sum(emitter, emitter.rows(config.inputs[0].layer)))


@emits("rank_cost")
def _rank_cost(emitter: Emitter, config: LayerConfig) -> None:
    label = emitter.numbers(config.inputs[2].layer)
    inputs = {"X": _difference(emitter, config), "Label": label}
    _finish(emitter, config, emitter.op("sigmoid_cross_entropy_with_logits", inputs))


@emits("lambda_cost")
def _lambda_cost(emitter: Emitter, config: LayerConfig) -> None:
    score, relevance = (emitter.rows(link.layer) for link in config.inputs[:2])
    attrs = {key: config.attrs[key] for key in ("top", "compared")}
    _finish(emitter, config, emitter.op("lambda_rank", {"X": score, "Label": relevance}, attrs))


@emits("huber_regression")
def _huber_regression(emitter: Emitter, config: LayerConfig) -> None:
    value, label = (emitter.rows(link.layer) for link in config.inputs[:2])
    sides = {"X": emitter.reshape(value, [-1, 1]), "Y": emitter.reshape(label, [-1, 1])}
    attrs = {"delta": config.attrs["delta"]}
    cost = emitter.ops("huber_loss", sides, attrs, ["Out", "Residual"])[0]
    _finish(emitter, config, _row_sum(emitter, emitter.reshape(cost, [-1, value.shape[1]])))


@emits("huber_classification")
def _huber_classification(emitter: Emitter, config: LayerConfig) -> None:
    label = emitter.op("one_hot", {"X": emitter.label(config.inputs[1].layer)}, {"depth": 2})
    positive = emitter.op("slice", {"Input": label}, {"axes": [1], "starts": [1], "ends": [2]})
    sign = emitter.op("scale", {"X": positive}, {"scale": 2.0, "bias": -1.0})
    a = emitter.op("elementwise_mul", {"X": emitter.rows(config.inputs[0].layer), "Y": sign})
    margin = emitter.op("clip", {"X": _one_minus(emitter, a)}, {"min": 0.0, "max": 2.0})
    beyond = emitter.op("relu", {"X": emitter.op("scale", {"X": a}, {"scale": -1.0, "bias": -1.0})})
    terms = [emitter.op("square", {"X": margin}), emitter.op("scale", {"X": beyond}, {"scale": 4.0})]
    _finish(emitter, config, emitter.add_all(terms))
