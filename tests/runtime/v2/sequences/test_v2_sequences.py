# SPDX-License-Identifier: Apache-2.0
"""Layers of sequences: their values by definition, and the book's nets that read sequences learn."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, attr, data_type, layer, networks, pooling
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology

_RNG = np.random.default_rng(3)
_ROWS = [_RNG.standard_normal((count, 3)).astype("float32") for count in (4, 1, 2)]
_SAMPLES = [(rows.tolist(),) for rows in _ROWS]
_WORDS = 12


def _rows() -> LayerOutput:
    return layer.data("rows", data_type.dense_vector_sequence(3))


def _inferred(out: LayerOutput, samples: Any = None, field: str = "value") -> Any:
    parameters = paddle.parameters.create(out)
    return paddle.infer(output_layer=out, parameters=parameters, input=samples or _SAMPLES, field=field)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, lambda rows: rows.max(axis=0)),
        (pooling.Avg(), lambda rows: rows.mean(axis=0)),
        (pooling.Sum(), lambda rows: rows.sum(axis=0)),
        (pooling.SquareRootN(), lambda rows: rows.sum(axis=0) / np.sqrt(len(rows))),
    ],
)
def test_pooling_gives_one_row_a_sequence(kind: Any, expected: Callable[[Any], Any]) -> None:
    found = _inferred(layer.pooling(_rows(), kind))
    np.testing.assert_allclose(found, [expected(rows) for rows in _ROWS], rtol=1e-5)


def test_the_ends_of_sequences() -> None:
    rows = _rows()
    both = layer.concat([layer.first_seq(rows), layer.last_seq(rows)])
    expected = [np.concatenate([rows[0], rows[-1]]) for rows in _ROWS]
    np.testing.assert_allclose(_inferred(both), expected, rtol=1e-6)


@pytest.mark.parametrize(("length", "start"), [(3, None), (4, None), (2, 1), (1, -2)])
def test_a_context_lays_neighbours_side_by_side(length: int, start: int | None) -> None:
    out = layer.mixed(3 * length, layer.context_projection(_rows(), length, start))
    first = -(length - 1) // 2 if start is None else start
    expected = []
    for rows in _ROWS:
        for at in range(len(rows)):
            places = range(at + first, at + first + length)
            parts = [rows[place] if 0 <= place < len(rows) else np.zeros(3) for place in places]
            expected.append(np.concatenate(parts))
    np.testing.assert_allclose(_inferred(out), expected, rtol=1e-6)


@pytest.mark.parametrize(("length", "start"), [(3, None), (4, None), (2, 1), (5, -3)])
def test_a_context_continues_with_learned_rows_before_and_behind(length: int, start: int | None) -> None:
    out = layer.mixed(3 * length, layer.context_projection(_rows(), length, start, True), name="context")
    first = -(length - 1) // 2 if start is None else start
    before, behind = max(0, -first), max(0, first + length - 1)
    parameters = paddle.parameters.create(out)
    assert not parameters["_context.w0"].any()
    learned = np.random.default_rng(2).normal(size=(before + behind, 3)).astype(np.float32)
    parameters["_context.w0"] = learned
    expected = []
    for rows in _ROWS:
        whole = np.concatenate([learned[:before], rows, learned[before:]])
        for at in range(len(rows)):
            expected.append(whole[at + first + before :][:length].ravel())
    found = paddle.infer(out, parameters, _SAMPLES)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_part_of_an_identity_projection_needs_its_offset() -> None:
    rows = _rows()
    np.testing.assert_allclose(
        _inferred(layer.mixed(input=layer.identity_projection(rows, 1))), np.concatenate(_ROWS)[:, 1:]
    )
    with pytest.raises(ValueError, match="3 columns; to select 2, give offset"):
        layer.identity_projection(rows, size=2)


def test_a_row_is_expanded_over_a_sequence_and_sequences_are_joined() -> None:
    rows = _rows()
    spread = layer.expand(layer.pooling(rows, pooling.Sum()), rows)
    joined = layer.seq_concat(rows, spread)
    expected = np.concatenate([[*rows, *[rows.sum(axis=0)] * len(rows)] for rows in _ROWS])
    np.testing.assert_allclose(_inferred(joined), expected, rtol=1e-5)
    narrow = layer.seq_reshape(joined, 1)
    assert _inferred(narrow).shape == (42, 1)


def test_weights_of_a_sequence_add_up_to_one() -> None:
    rows = _rows()
    weights = layer.fc(rows, 1, activation.SequenceSoftmax(), bias_attr=False)
    np.testing.assert_allclose(_inferred(layer.pooling(weights, pooling.Sum())), np.ones((3, 1)), rtol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [None, False])
def test_an_lstm_is_what_its_formula_says(reverse: bool, bias: Any) -> None:
    gates = layer.fc(_rows(), 8, activation.Linear(), name="gates")
    out = layer.lstmemory(gates, name="lstm", reverse=reverse, bias_attr=bias)
    parameters = paddle.parameters.create(out)
    for name in parameters.names():
        parameters.set(name, (_RNG.standard_normal(parameters.get_shape(name)) * 0.5).astype("float32"))
    found = paddle.infer(output_layer=out, parameters=parameters, input=_SAMPLES)
    w, b = parameters.get("_gates.w0"), parameters.get("_gates.wbias")
    recurrent = parameters.get("_lstm.w0").reshape(2, 8)
    learnt = np.zeros(14) if bias is False else parameters.get("_lstm.wbias").reshape(-1)
    expected = [_lstm(rows @ w + b, recurrent, learnt, reverse) for rows in _ROWS]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-4, atol=1e-5)


def _lstm(gates: Any, recurrent: Any, bias: Any, reverse: bool) -> Any:
    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    h, c, out = np.zeros(2), np.zeros(2), []
    for row in gates[::-1] if reverse else gates:
        a, i, f, o = np.split(row.reshape(-1) + h @ recurrent + bias[:8], 4)
        i, f = sigmoid(i + c * bias[8:10]), sigmoid(f + c * bias[10:12])
        c = np.tanh(a) * i + c * f
        h = sigmoid(o + c * bias[12:]) * np.tanh(c)
        out.append(h)
    return np.array(out[::-1] if reverse else out)


def _sentences(batches: int) -> Iterator[list[tuple[list[int], int]]]:
    """Sentences whose class is whether a small word comes more often than others."""
    rng = np.random.default_rng(1)
    for _ in range(batches):
        batch = []
        for _ in range(24):
            words = rng.integers(0, _WORDS, rng.integers(2, 9)).tolist()
            batch.append((words, int(sum(word < _WORDS // 2 for word in words) * 2 > len(words))))
        yield batch


def _embedded() -> LayerOutput:
    words = layer.data("words", data_type.integer_value_sequence(_WORDS))
    return layer.embedding(words, 8)


def _convolved() -> LayerOutput:
    return networks.sequence_conv_pool(_embedded(), context_len=3, hidden_size=8)


def _stacked() -> LayerOutput:
    """The book's stacked net: every second LSTM goes backwards, and all outputs are pooled."""
    gates = layer.fc(_embedded(), 16, activation.Linear())
    hidden = layer.lstmemory(gates, act=activation.Relu())
    for depth in (2, 3):
        gates = layer.fc([gates, hidden], 16, activation.Linear())
        hidden = layer.lstmemory(gates, reverse=depth % 2 == 0, act=activation.Relu())
    return layer.concat([layer.pooling(gates), layer.pooling(hidden)])


def _attending() -> LayerOutput:
    both = networks.bidirectional_gru(_embedded(), 6, return_seq=True)
    state = layer.fc(layer.pooling(both, pooling.Avg()), 6)
    projected = layer.mixed(6, layer.full_matrix_projection(both))
    return networks.simple_attention(both, projected, state)


@pytest.mark.parametrize(
    "net", [_convolved, _stacked, _attending, lambda: networks.bidirectional_lstm(_embedded(), 6)]
)
def test_understanding_sentiment_is_learnt(net: Callable[[], LayerOutput]) -> None:
    predicted = layer.fc(net(), 2, activation.Softmax())
    label = layer.data("label", data_type.integer_value(2))
    cost = layer.classification_cost(predicted, label)
    optimizer = paddle.optimizer.Adam(learning_rate=2e-2)
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, optimizer)
    trainer.train(lambda: _sentences(30), num_passes=2)
    tested = trainer.test(lambda: _sentences(5))
    assert tested.metrics["classification_error_evaluator"] < 0.2
    stream = io.BytesIO()
    paddle.topology.Topology(predicted).serialize_for_inference(stream)
    again = paddle.inference.Inference(parameters, fileobj=io.BytesIO(stream.getvalue()))
    samples = [(words,) for words, _ in next(_sentences(1))]
    found = again.infer(samples)
    np.testing.assert_allclose(
        found, paddle.infer(output_layer=predicted, parameters=parameters, input=samples)
    )


def _tagged(batches: int) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Words whose tag says whether they are larger than the word before."""
    rng = np.random.default_rng(2)
    for _ in range(batches):
        batch = []
        for _ in range(16):
            words = rng.integers(0, _WORDS, rng.integers(1, 8)).tolist()
            tags = [int(at > 0 and words[at - 1] < word) + (word > 8) for at, word in enumerate(words)]
            batch.append((words, tags))
        yield batch


def test_labelling_roles_is_learnt_with_a_crf() -> None:
    """The book's chapter in small: a forward and a backward LSTM, scores, a CRF, and its decoding as evaluator."""
    embedded = _embedded()
    hidden = [
        networks.simple_lstm(embedded, 8, reverse=reverse, act=activation.Relu()) for reverse in (False, True)
    ]
    scores = layer.mixed(3, [layer.full_matrix_projection(each) for each in hidden])
    tags = layer.data("tags", data_type.integer_value_sequence(3))
    crf = layer.crf(scores, tags, size=3, param_attr=paddle.attr.Param(name="crfw", initial_std=0.1))
    wrong = layer.crf_decoding(scores, 3, label=tags, param_attr=paddle.attr.Param(name="crfw"))
    paddle.evaluator.sum(input=wrong, name="wrong")
    decoded = layer.crf_decoding(scores, 3, param_attr=paddle.attr.Param(name="crfw"))
    parameters = paddle.parameters.create(crf)
    trainer = paddle.trainer.SGD(
        crf, parameters, paddle.optimizer.Adam(learning_rate=2e-2), extra_layers=wrong
    )
    before = trainer.test(lambda: _tagged(4))
    trainer.train(lambda: _tagged(30), num_passes=3)
    after = trainer.test(lambda: _tagged(4))
    assert after.cost < before.cost / 3
    assert after.metrics["wrong"] < 0.15 < before.metrics["wrong"]
    samples = [(words,) for words, _ in next(_tagged(1))]
    found = paddle.infer(output_layer=decoded, parameters=parameters, input=samples, field="id")
    assert len(found) == sum(len(words) for (words,) in samples)


def test_decoded_tags_without_a_label_are_an_extra_layer_that_an_evaluator_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scores = layer.fc(_embedded(), 3, act=activation.Linear())
    tags = layer.data("tags", data_type.integer_value_sequence(3))
    shared = paddle.attr.Param(name="crfw")
    crf = layer.crf(scores, tags, param_attr=shared)
    decoded = layer.crf_decoding(scores, 3, param_attr=shared)
    paddle.evaluator.chunk(input=decoded, label=tags, name="chunks", chunk_scheme="IOB", num_chunk_types=1)
    trainer = paddle.trainer.SGD(
        crf,
        paddle.parameters.create(crf),
        paddle.optimizer.Adam(learning_rate=5e-2),
        extra_layers=decoded,
    )
    trainer.train(lambda: _tagged(30), num_passes=3)
    assert trainer.test(lambda: _tagged(4)).metrics["chunks.F1-score"] > 0.5
    assert "is a cost" not in caplog.text


def _spoken(batches: int) -> Iterator[list[tuple[list[list[float]], list[int]]]]:
    rng = np.random.default_rng(4)
    for _ in range(batches):
        batch = []
        for _ in range(8):
            labels = rng.integers(0, 2, 2).tolist()
            rows = np.repeat(np.eye(3)[[labels[0], 2, labels[1], 2]], rng.integers(1, 3, 4), axis=0)
            batch.append(((rows + rng.normal(0, 0.1, rows.shape)).tolist(), labels))
        yield batch


@pytest.mark.parametrize("kind", ["ctc", "warp_ctc"])
def test_labels_without_places_are_learnt(kind: str) -> None:
    rows, labels = _rows(), layer.data("labels", data_type.integer_value_sequence(2))
    if kind == "ctc":
        cost = layer.ctc(layer.fc(rows, 3, activation.Softmax()), labels, size=3)
    else:
        cost = layer.warp_ctc(layer.fc(rows, 3, activation.Linear()), labels, size=3, blank=2)
    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create(cost), paddle.optimizer.Adam(learning_rate=0.05)
    )
    before = trainer.test(lambda: _spoken(2)).cost
    trainer.train(lambda: _spoken(40), num_passes=1)
    assert trainer.test(lambda: _spoken(2)).cost < before / 3


@pytest.mark.parametrize("kind", ["nce", "hsigmoid"])
def test_many_classes_are_learnt_without_a_softmax(kind: str) -> None:
    x, label = layer.data("x", data_type.dense_vector(6)), layer.data("label", data_type.integer_value(6))
    hidden = layer.fc(x, 12)
    cost = (
        layer.nce([hidden, x], label, num_neg_samples=4) if kind == "nce" else layer.hsigmoid(hidden, label)
    )
    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create(cost), paddle.optimizer.Adam(learning_rate=0.03)
    )
    batch = [(np.eye(6)[at % 6].tolist(), at % 6) for at in range(24)]
    before = trainer.test(lambda: iter([batch])).cost
    trainer.train(lambda: iter([batch] * 60), num_passes=1)
    assert trainer.test(lambda: iter([batch])).cost < before / 2


def test_sparse_rows_of_sequences_are_fed() -> None:
    rows = layer.data("rows", data_type.sparse_binary_vector_sequence(5))
    out = layer.pooling(layer.fc(rows, 2, activation.Linear(), name="fc", bias_attr=False), pooling.Sum())
    parameters = paddle.parameters.create(out)
    samples = [([[0, 1], [4]],), ([[1]],)]
    found = paddle.infer(output_layer=out, parameters=parameters, input=samples)
    weight = parameters.get("_fc.w0")
    np.testing.assert_allclose(found, [weight[[0, 1, 4]].sum(axis=0), weight[1]], rtol=1e-5)


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([(3,)], "expected a list .*, got 3 in sample 0"),
        ([([],)], "all sequences of a batch are empty"),
        ([([[1, 2]],)], "rows.*3.*2"),
    ],
)
def test_samples_that_are_no_sequences_are_refused(samples: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        _inferred(layer.pooling(_rows()), samples)


def test_an_lstm_of_another_width_than_its_input_is_told() -> None:
    with pytest.raises(UsageError, match="expected 4 times"):
        layer.lstmemory(layer.fc(layer.data("wide", data_type.dense_vector_sequence(3)), 6))


def test_taking_the_wrong_end_of_a_reversed_sequence_is_warned_of() -> None:
    hidden = layer.lstmemory(layer.fc(_rows(), 8), reverse=True)
    with pytest.warns(UserWarning, match="last_seq of .* returns"):
        layer.last_seq(hidden)


def test_each_direction_and_the_result_have_their_own_arguments() -> None:
    out = networks.bidirectional_lstm(
        _embedded(),
        6,
        "both",
        fwd_mat_param_attr=attr.Param(name="to_gates"),
        fwd_bias_param_attr=False,
        bwd_inner_param_attr=attr.Param(name="over_time"),
        bwd_act=activation.Relu(),
        last_seq_attr=attr.Extra(drop_rate=0.5),
        concat_act=activation.Tanh(),
    )
    names = set(paddle.parameters.create(out).names())
    assert {"to_gates", "over_time", "_both_fw.w0", "_both_bw.wbias"} < names
    assert "_both_fw.wbias" not in names
    directions = [Topology(out).get_layer(f"both_{way}").config for way in ("fw", "bw")]
    assert [each.attrs["act"] for each in directions] == ["tanh", "relu"]
    assert [parent.config.extras.drop_rate for parent in out.parents] == [0.5, 0.0]
    assert (out.config.activation, out.size) == ("tanh", 12)


def test_a_bidirectional_gru_takes_the_arguments_of_both() -> None:
    out = networks.bidirectional_gru(
        _embedded(),
        6,
        "both",
        True,
        fwd_gru_param_attr=attr.Param(name="f"),
        bwd_mixed_bias_attr=attr.Param(name="b"),
    )
    assert {"f", "b"} < set(paddle.parameters.create(out).names())
