# SPDX-License-Identifier: Apache-2.0
"""Sequences where single rows belong, lengths that do not match, parameters of another network: told to the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, data_type, layer, model, networks
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.output import LayerOutput

_WORDS, _TAGS = 9, 3


def _single(name: str = "x") -> LayerOutput:
    return layer.data(name, data_type.dense_vector(6))


def _words(name: str = "words") -> LayerOutput:
    return layer.embedding(layer.data(name, data_type.integer_value_sequence(_WORDS)), 6)


def _tags(sequence: bool = True) -> LayerOutput:
    kind = data_type.integer_value_sequence if sequence else data_type.integer_value
    return layer.data("tag", kind(_TAGS))


def _score(rows: LayerOutput) -> LayerOutput:
    return layer.fc(rows, 1)


def _infer(out: LayerOutput, samples: list[tuple[Any, ...]]) -> Any:
    return paddle.infer(output_layer=out, parameters=paddle.parameters.create(out), input=samples)


@pytest.mark.parametrize(
    ("declare", "called"),
    [
        (lambda x: layer.pooling(x), "pooling"),
        (lambda x: layer.last_seq(layer.fc(x, 4)), "last_seq"),
        (lambda x: layer.pooling(layer.last_seq(_words())), "pooling"),
        (lambda x: layer.expand(x, expand_as=x), "expand"),
        (lambda x: layer.seq_concat(x, x), "seq_concat"),
        (lambda x: layer.seq_reshape(x, 3), "seq_reshape"),
        (lambda x: networks.simple_lstm(x, 4), "lstmemory"),
        (lambda x: networks.simple_gru(x, 4), "grumemory"),
        (lambda x: layer.recurrent(x), "recurrent"),
        (lambda x: layer.crf(layer.fc(x, _TAGS), _tags()), "crf"),
        (lambda x: layer.ctc(layer.fc(x, _TAGS), _tags(), _TAGS), "ctc"),
        (lambda x: layer.mixed(18, layer.context_projection(x, 3)), "context_projection"),
        (lambda x: layer.recurrent_group(lambda row: layer.fc(row, 2), x), "a step of recurrent_group"),
    ],
)
def test_a_single_row_where_a_sequence_belongs_is_refused_before_the_first_batch(
    declare: Callable[[LayerOutput], LayerOutput], called: str
) -> None:
    out = declare(_single())
    assert layer.parse_network(out).layers
    parameters = paddle.parameters.create(out)
    with pytest.raises(
        UsageError,
        match=rf"\(.*{called}.*\) needs a sequence.*; the layer was created at .*test_v2_lengths",
    ):
        paddle.inference.Inference(output_layer=out, parameters=parameters)


def test_concatenated_sequences_of_different_widths_are_refused_before_the_first_batch() -> None:
    out = layer.seq_concat(_words(), layer.fc(_words("others"), 4))
    assert layer.parse_network(out).layers
    with pytest.raises(UsageError, match=r"seq_concat: .*same size.*6.*4"):
        _infer(out, [([1], [2])])


def test_a_label_sequence_of_another_length_is_told_by_sample() -> None:
    cost = layer.classification_cost(layer.fc(_words(), _TAGS, activation.Softmax()), _tags(), name="cost")
    told = (
        "layer 'cost' .*'words' and 'tag', .*equal lengths: sample 1 has 3 items of 'words', but 2 of 'tag'"
    )
    with pytest.raises(UsageError, match=told):
        _infer(cost, [([1, 2], [0, 1]), ([1, 2, 3], [0, 1])])


def test_a_label_of_another_length_than_the_steps_of_a_group_is_told() -> None:
    out = layer.recurrent_group(lambda row: layer.fc(row, _TAGS, activation.Softmax()), _words())
    assert isinstance(out, LayerOutput)
    with pytest.raises(UsageError, match="sample 0 has 3 items of 'words', but 1 of 'tag'"):
        _infer(layer.cross_entropy_cost(out, _tags()), [([1, 2, 3], [0])])


@pytest.mark.parametrize("cost", [layer.nce, layer.hsigmoid])
def test_labels_of_many_classes_of_another_length_are_told(cost: Callable[..., LayerOutput]) -> None:
    with pytest.raises(UsageError, match="sample 0 has 2 items of 'words', but 1 of 'tag'"):
        _infer(cost(_words(), _tags()), [([1, 2], [0])])


def test_inputs_of_a_group_with_unequal_steps_are_told() -> None:
    out = layer.recurrent_group(lambda a, b: layer.addto([a, b]), [_words("a"), _words("b")])
    assert isinstance(out, LayerOutput)
    with pytest.raises(UsageError, match=r"'a' and 'b', .*sample 0 has 2 items of 'a', but 3 of 'b'"):
        _infer(out, [([1, 2], [1, 2, 3])])


def test_tags_of_a_crf_of_another_length_are_told() -> None:
    with pytest.raises(UsageError, match="sample 0 has 2 items of 'words', but 1 of 'tag'"):
        _infer(layer.crf(layer.fc(_words(), _TAGS), _tags()), [([1, 2], [0])])


@pytest.mark.parametrize("label_is_sequence", [False, True])
def test_a_sequence_beside_a_single_row_is_told_with_the_ways_out(label_is_sequence: bool) -> None:
    rows = _single() if label_is_sequence else _words("tags")
    cost = layer.cross_entropy_cost(
        layer.fc(rows, _TAGS, activation.Softmax()), _tags(label_is_sequence), name="cost"
    )
    row = [0.0] * 6 if label_is_sequence else [1, 2]
    told = "layer 'cost' combines .*row by row, but in sample 0 input '.*' has 2 rows .*'tags?'.*layer.pooling reduces"
    with pytest.raises(UsageError, match=told):
        _infer(cost, [(row, [0, 1] if label_is_sequence else 0)])


def test_sequences_of_one_row_go_with_single_rows() -> None:
    cost = layer.cross_entropy_cost(layer.fc(_single(), _TAGS, activation.Softmax()), _tags())
    assert _infer(cost, [([0.0] * 6, [1])]).shape == (1, 1)


def test_lengths_that_need_not_agree_are_let_be() -> None:
    """A decoder reads the source's sequence whole; a weight of crf is one a sequence; ctc's label is shorter."""
    source, target = _words("source"), _words("target")
    mean = layer.pooling(source, paddle.pooling.Avg())

    def step(whole: LayerOutput, row: LayerOutput) -> LayerOutput:
        state = layer.memory(name="state", size=6, boot_layer=mean)
        context = networks.simple_attention(whole, layer.fc(whole, 6), state)
        return layer.fc([context, row], 6, name="state")

    group = layer.recurrent_group(step, [layer.StaticInput(source, is_seq=True), target])
    assert isinstance(group, LayerOutput)
    together = layer.fc([group, layer.expand(mean, expand_as=target)], _TAGS)
    weight = layer.data("weight", data_type.dense_vector(1))
    tagged = layer.crf(together, _tags(), weight=weight)
    unplaced = layer.ctc(
        layer.fc(source, _WORDS + 1, activation.Softmax()),
        layer.data("few", data_type.integer_value_sequence(_WORDS)),
    )
    costs = layer.addto([tagged, unplaced, layer.pooling(layer.seq_concat(_score(source), _score(target)))])
    samples = [([1, 2, 3], [4, 5], [0.5], [0, 1], [6]), ([7, 8], [1], [1.0], [2], [3, 1])]
    assert np.isfinite(_infer(costs, samples)).all()


def _parameters(size: int) -> Any:
    with model.fresh():
        return paddle.parameters.create(layer.fc(_single(), size, name="out", bias_attr=False))


_USES: dict[str, Callable[[LayerOutput, Any], object]] = {
    "infer": lambda out, given: paddle.infer(output_layer=out, parameters=given, input=[([0.0] * 6,)]),
    "SGD": lambda out, given: paddle.trainer.SGD(layer.sum_cost(out), given, paddle.optimizer.Momentum()),
}


@pytest.mark.parametrize("use", _USES)
def test_parameters_of_another_layout_are_told_before_anything_runs(use: str) -> None:
    out, given = layer.fc(_single(), 4, name="out", bias_attr=False), _parameters(5)
    told = r"'_out.w0' has shape \(6, 5\) in the given parameters, but \(6, 4\) in this network"
    with pytest.raises(UsageError, match=told):
        _USES[use](out, given)


def test_parameters_of_the_same_numbers_in_another_shape_are_told() -> None:
    out = layer.fc(layer.data("turned", data_type.dense_vector(4)), 6, name="out", bias_attr=False)
    with pytest.raises(
        UsageError, match=r"'_out.w0' has shape \(6, 4\) in the given parameters, but \(4, 6\) in"
    ):
        paddle.infer(output_layer=out, parameters=_parameters(4), input=[([0.0] * 4,)])


def test_parameters_that_are_none_are_told() -> None:
    with pytest.raises(UsageTypeError, match=r"parameters must be the result of .*Parameters\.from_tar"):
        paddle.infer(output_layer=layer.fc(_single(), 4), parameters={"w": 1}, input=[([0.0] * 6,)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda x: layer.crf_decoding(x, size=3), "crf_decoding.* size 6.* expected 3"),
        (lambda x: layer.lambda_cost(x, _score(x)), "lambda_cost.* size 6.* expected 1"),
        (lambda x: layer.huber_regression_cost(_score(x), x), "huber_regression.* size 6.* expected 1"),
    ],
)
def test_inputs_of_another_size_are_declared_and_refused_with_the_first_batch(
    declare: Callable[[LayerOutput], LayerOutput], message: str
) -> None:
    out = declare(_words())
    assert layer.parse_network(out).layers
    with pytest.raises(UsageError, match=message):
        _infer(out, [([1, 2],)])
