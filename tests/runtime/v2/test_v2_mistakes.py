# SPDX-License-Identifier: Apache-2.0
"""Mistakes that only a run can notice: messages have the correction, and the line that created the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import paddle.v2 as paddle
from paddle.errors import PaddleError
from paddle.v2 import activation, data_type, layer, networks
from paddle.v2.layer.output import LayerOutput

_WORDS, _TAGS = 9, 3
_Sample = tuple[Any, ...]


def _words() -> LayerOutput:
    return layer.data("words", data_type.integer_value_sequence(_WORDS))


def _tag() -> LayerOutput:
    return layer.data("tag", data_type.integer_value(_TAGS))


def _scores(rows: LayerOutput) -> LayerOutput:
    return layer.fc(rows, _TAGS, activation.Softmax(), name="scores")


def _tagged(rows: LayerOutput) -> LayerOutput:
    return layer.classification_cost(_scores(rows), _tag())


def _vectors() -> LayerOutput:
    return layer.embedding(_words(), 4)


def _train(cost: LayerOutput, sample: _Sample) -> None:
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(learning_rate=0.1))

    def reader() -> Iterator[list[_Sample]]:
        yield [sample, sample]

    trainer.train(reader, num_passes=1)


@pytest.mark.parametrize(
    ("declare", "sample", "says"),
    [
        (
            lambda: _tagged(networks.simple_lstm(_vectors(), 4)),
            ([1, 2], 0),
            r"in sample 0 input 'scores' has 2 rows \(the sequence of data layer 'words'\) and input 'tag' has 1 row\. "
            r"layer\.last_seq or layer\.pooling reduces",
        ),
        (
            lambda: layer.square_error_cost(
                layer.fc(_vectors(), 1, name="one"), layer.data("y", data_type.dense_vector(1))
            ),
            ([1, 2, 3], [0.5]),
            "input 'one' has 3 rows .* input 'y' has 1 row",
        ),
        (
            lambda: layer.sum_cost(layer.addto([_vectors(), layer.embedding(_tag(), 4, name="row")])),
            ([1, 2], 1),
            "input '__embedding_0__' has 2 rows .* input 'row' has 1 row",
        ),
        (lambda: _tagged(_words()), ([1], 0), r"'words' is integer_value_sequence.*: put layer\.embedding"),
        (
            lambda: layer.sum_cost(layer.fc(_tag(), 2)),
            (0,),
            r"'tag' is integer_value\(3\): put layer\.embedding",
        ),
        (
            lambda: _tagged(layer.data("x", data_type.dense_vector(2))),
            ([0.0, 1.0], 2.0),
            r"one integer in \[0, 3\), got 2\.0; yield int\(label\)",
        ),
        (
            lambda: _tagged(layer.last_seq(_vectors())),
            ([1, 2.0], 0),
            r"'words'.* got 2\.0; yield int\(label\)",
        ),
        (lambda: _tagged(layer.last_seq(_vectors())), ([1, 2], _TAGS), "the largest number plus 1"),
        (
            lambda: _tagged(layer.data("x", data_type.dense_vector(2))),
            ([1.0], 0),
            "expected 2 numbers per sample",
        ),
    ],
)
def test_the_correction_and_the_line_are_named(
    declare: Callable[[], LayerOutput], sample: _Sample, says: str
) -> None:
    with pytest.raises(PaddleError, match=rf"{says}.*; the layer was created at .*test_v2_mistakes\.py:\d+"):
        _train(declare(), sample)


def _pooled_rows(*others: LayerOutput) -> LayerOutput:
    rows = layer.embedding(layer.data("title", data_type.integer_value(9)), 4)
    return layer.last_seq(layer.addto([rows, *others], bias_attr=False))


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (
            _pooled_rows,
            r"data layer 'title' \(.*test_v2_mistakes\.py:\d+\) as integer_value_sequence\(9\); the",
        ),
        (
            lambda: _pooled_rows(layer.fc(layer.data("user", data_type.dense_vector(2)), 4)),
            "the data layers below it as sequences, such as",
        ),
        (
            lambda: layer.img_conv(layer.data("x", data_type.dense_vector(784)), 5, 8),
            r"give num_channels, .*'x' is not an image; 784 = 1 x 28 x 28: num_channels=1 \(.*\?$",
        ),
        (lambda: layer.img_conv(layer.data("x", data_type.dense_vector(7)), 5, 8), "is not an image$"),
    ],
)
def test_a_declaration_is_corrected(declare: Callable[[], LayerOutput], says: str) -> None:
    with pytest.raises(PaddleError, match=says):
        _train(layer.sum_cost(declare()), (0, [0.0, 0.0]))


@pytest.mark.parametrize(
    ("schedule", "decays", "says"),
    [
        ("exponential", (0.5, 50), r"got 'exponential'; .*decay_b, use 'exp' .* or 'discexp' \("),
        ("exponential_decay", (0.5, 50), "'exponential_decay' needs learning_rate_args; .*use 'exp'"),
        ("polynomial", (0.5, 50), "use 'poly' .* or 'caffe_poly' "),
        ("step", (0.5, 50), "'discexp'"),
        ("cosine", (0, 0), r"did you mean 'cosine_decay'\?$"),
        ("manual_steps", (0, 0), r"did you mean 'manual' or 'pass_manual'\?$"),
        ("warm", (0, 0), "linear_lr_warmup"),
        ("", (0, 0), "got ''$"),
    ],
)
def test_schedules_with_the_given_arguments_are_suggested(
    schedule: str, decays: tuple[float, float], says: str
) -> None:
    a, b = decays
    with pytest.raises(PaddleError, match=f"learning rate schedule: .*{says}"):
        paddle.optimizer.Momentum(
            learning_rate=0.1,
            learning_rate_schedule=schedule,
            learning_rate_decay_a=a,
            learning_rate_decay_b=b,
        )


def test_a_schedule_of_updates_may_come_with_decays_that_it_ignores() -> None:
    paddle.optimizer.Momentum(
        learning_rate=0.1,
        learning_rate_schedule="exponential_decay",
        learning_rate_args="decay_steps:10,decay_rate:0.5",
        learning_rate_decay_a=0.5,
    )
