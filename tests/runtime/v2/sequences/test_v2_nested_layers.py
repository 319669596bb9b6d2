# SPDX-License-Identifier: Apache-2.0
"""Layers over sequences of sequences beside plain numpy; what they refuse, and what they say of levels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, attr, data_type, layer, networks
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.sequences.nested_cases import (
    ARRAYS,
    SAMPLES,
    SIZE,
    Array,
    check_gradients,
    expected,
    found,
    nested,
)

_LEVEL, _FROM, _POOL = layer.AggregateLevel, layer.ExpandLevel, paddle.pooling
_SENTENCES, _WORDS = _LEVEL.TO_SEQUENCE, _LEVEL.TO_NO_SEQUENCE
_ONE = attr.Param(initial_mean=1.0, initial_std=0.0)
_VOCABULARY = 9
_TEXTS: list[tuple[list[list[int]]]] = [([[1, 2], [3], [4, 5, 6]],), ([[7]],), ([[8, 1], [2, 2]],)]


def _sums(rows: Array) -> Array:
    return np.asarray(rows.sum(axis=0))


_POOLS: dict[str, tuple[Callable[[LayerOutput, str], LayerOutput], Callable[[Array], Any]]] = {
    "max": (lambda x, level: layer.pooling(x, agg_level=level), lambda rows: rows.max(axis=0)),
    "mean": (lambda x, level: layer.pooling(x, _POOL.Avg(), agg_level=level), lambda rows: rows.mean(axis=0)),
    "sum": (lambda x, level: layer.pooling(x, _POOL.Sum(), agg_level=level), _sums),
    "root": (
        lambda x, level: layer.pooling(x, _POOL.SquareRootN(), agg_level=level),
        lambda rows: _sums(rows) / np.sqrt(len(rows)),
    ),
    "last": (lambda x, level: layer.last_seq(x, agg_level=level), lambda rows: rows[-1]),
    "first": (lambda x, level: layer.first_seq(x, agg_level=level), lambda rows: rows[0]),
}


@pytest.mark.parametrize("name", _POOLS)
def test_pooling_makes_a_row_of_each_sample_or_of_each_sub_sequence(name: str) -> None:
    pool, of_rows = _POOLS[name]
    rows = nested()
    np.testing.assert_allclose(
        found(pool(rows, _SENTENCES)), expected(lambda parts: [of_rows(part) for part in parts]), rtol=1e-5
    )
    np.testing.assert_allclose(
        found(pool(rows, _WORDS)), expected(lambda parts: [of_rows(np.concatenate(parts))]), rtol=1e-5
    )


def test_rows_of_sub_sequences_are_a_sequence_again() -> None:
    sentences = layer.pooling(nested(), _POOL.Sum(), agg_level=_SENTENCES)
    np.testing.assert_allclose(
        found(layer.last_seq(sentences)), expected(lambda parts: [_sums(parts[-1])]), rtol=1e-5
    )


@pytest.mark.parametrize("stride", [1, 2, 3, 9])
def test_stride_pools_pieces_of_so_many_rows(stride: int) -> None:
    flat = [np.concatenate(sample) for sample in ARRAYS]
    rows = layer.data("rows", data_type.dense_vector_sequence(SIZE))

    def pieces(x: Array, from_end: bool) -> list[Array]:
        odd = len(x) % stride if from_end else 0
        cuts = [0, *range(odd or stride, len(x), stride), len(x)]
        return [x[start:end] for start, end in itertools.pairwise(cuts)]

    layers: dict[bool, tuple[LayerOutput, Callable[[Array], Array]]] = {
        False: (layer.last_seq(rows, stride=stride), lambda piece: piece[-1]),
        True: (layer.first_seq(rows, stride=stride), lambda piece: piece[0]),
    }
    for from_end, (out, of_piece) in layers.items():
        right = np.concatenate([[of_piece(piece) for piece in pieces(x, from_end)] for x in flat])
        np.testing.assert_allclose(found(out, flat), right, rtol=1e-5)
    summed = layer.pooling(rows, _POOL.Sum(), stride=stride)
    totals = found(layer.pooling(summed, _POOL.Sum()), flat)
    np.testing.assert_allclose(totals, [_sums(x) for x in flat], rtol=1e-5)


def test_expand_repeats_rows_of_samples_and_of_sub_sequences() -> None:
    rows = nested()
    of_samples = layer.expand(layer.last_seq(rows), rows)
    np.testing.assert_allclose(
        found(of_samples), expected(lambda parts: [parts[-1][-1] for part in parts for _ in part]), rtol=1e-6
    )
    lasts = layer.last_seq(rows, agg_level=_SENTENCES)
    of_sentences = layer.expand(lasts, rows, expand_level=_FROM.FROM_SEQUENCE)
    np.testing.assert_allclose(
        found(of_sentences), expected(lambda parts: [part[-1] for part in parts for _ in part]), rtol=1e-6
    )
    again = layer.first_seq(of_samples, agg_level=_SENTENCES)  # both levels are there
    np.testing.assert_allclose(
        found(again), expected(lambda parts: [parts[-1][-1] for _ in parts]), rtol=1e-6
    )


def test_a_sequence_goes_with_the_sub_sequences_of_another_layer() -> None:
    rows, others = nested(), layer.data("others", data_type.dense_vector_sequence(1))
    column = [[[float(place)] for place, _ in enumerate(sample)] for sample in SAMPLES]
    out = layer.expand(others, rows, expand_level=_FROM.FROM_SEQUENCE)
    right = np.concatenate(
        [np.repeat(np.arange(len(sample)), [len(part) for part in sample]) for sample in SAMPLES]
    )
    np.testing.assert_array_equal(found(out, SAMPLES, column).ravel(), right)


def test_recurrent_layers_and_windows_go_through_a_sample_as_one_sequence() -> None:
    flat = [np.concatenate(sample) for sample in ARRAYS]

    def outs(rows: LayerOutput, kind: str) -> list[LayerOutput]:
        wide = layer.mixed(4 * SIZE, [layer.full_matrix_projection(rows, param_attr=attr.Param(name="w"))])
        gates = layer.mixed(3 * SIZE, [layer.full_matrix_projection(rows, param_attr=attr.Param(name="g"))])
        named = attr.Param(name=f"recurrent.{kind}")
        return [
            layer.lstmemory(wide, param_attr=attr.Param(name="lstm"), bias_attr=False),
            layer.grumemory(gates, param_attr=attr.Param(name="gru"), bias_attr=False),
            layer.recurrent(rows, param_attr=attr.Param(name="plain"), bias_attr=False),
            layer.mixed(3 * SIZE, [layer.context_projection(rows, 3)], name=named.name),
            layer.row_conv(rows, 2, param_attr=attr.Param(name="conv")),
        ]

    both = [outs(nested(), "nested"), outs(layer.data("flat", data_type.dense_vector_sequence(SIZE)), "flat")]
    parameters = paddle.parameters.create([each for side in both for each in side])
    for whole, plain in zip(*both, strict=True):
        right = found(plain, flat, parameters=parameters)
        np.testing.assert_allclose(found(whole, parameters=parameters), right, rtol=1e-5)
        ends = layer.last_seq(whole, agg_level=_SENTENCES)  # the levels are there behind it
        places = np.cumsum([len(part) for sample in SAMPLES for part in sample]) - 1
        np.testing.assert_allclose(found(ends, parameters=parameters), right[places], rtol=1e-5)


def test_a_softmax_over_a_sequence_is_one_over_the_whole_sample() -> None:
    scores = layer.fc(nested(size=1), 1, activation.SequenceSoftmax(), param_attr=_ONE, bias_attr=False)
    column = [[part[:, :1].tolist() for part in sample] for sample in ARRAYS]
    flat = [np.exp(np.concatenate(sample)[:, 0]) for sample in ARRAYS]
    right = np.concatenate([each / each.sum() for each in flat])
    np.testing.assert_allclose(found(scores, column).ravel(), right, rtol=1e-5)


def test_joined_and_reshaped_sequences_have_the_rows_of_whole_samples() -> None:
    rows = nested()
    twice = layer.seq_concat(rows, layer.slope_intercept(rows, slope=2.0))
    np.testing.assert_allclose(
        found(twice),
        expected(lambda parts: np.concatenate([*parts, *(2 * part for part in parts)])),
        rtol=1e-6,
    )
    narrow = layer.pooling(layer.seq_reshape(rows, 1), _POOL.Sum())
    right = [np.concatenate(sample).sum() for sample in ARRAYS]
    np.testing.assert_allclose(found(narrow).ravel(), right, rtol=1e-4)


def test_a_part_of_a_nested_sample_is_cut_from_its_rows() -> None:
    ints = data_type.integer_value(10)
    out = layer.sub_seq(nested(), layer.data("at", ints), layer.data("size", ints))
    at, size = [1, 0, 3], [3, 1, 2]
    flat = [np.concatenate(sample) for sample in ARRAYS]
    right = np.concatenate([x[a : a + n] for x, a, n in zip(flat, at, size, strict=True)])
    np.testing.assert_allclose(found(out, SAMPLES, at, size), right, rtol=1e-6)


def test_the_best_rows_of_each_sub_sequence_are_named_by_place() -> None:
    scores = nested(size=1)
    column = [[[[2.0], [5.0], [1.0]], [[3.0]]], [[[1.0], [1.0]]]]
    best = found(layer.kmax_seq_score(scores, beam_size=2), column)
    np.testing.assert_array_equal(best, [[1, 0], [0, -1], [0, 1]])
    flat = layer.data("flat", data_type.dense_vector_sequence(1))
    np.testing.assert_array_equal(
        found(layer.kmax_seq_score(flat, beam_size=3), [[[0.5], [2.0]], [[1.0]]]), [[1, 0, -1], [0, -1, -1]]
    )


def test_sub_sequences_are_chosen_by_place_in_the_order_asked_for() -> None:
    rows, chosen = nested(), layer.data("chosen", data_type.dense_vector(2))
    places = [[1, 0], [0, -1], [2, 2]]
    out = layer.sub_nested_seq(rows, chosen)
    right = np.concatenate(
        [sample[place] for sample, row in zip(ARRAYS, places, strict=True) for place in row if place != -1]
    )
    np.testing.assert_allclose(found(out, SAMPLES, places), right, rtol=1e-6)
    sums = layer.pooling(out, _POOL.Sum(), agg_level=_SENTENCES)
    assert len(found(sums, SAMPLES, places)) == 5


def test_pieces_are_cut_between_places_that_both_belong_to_them() -> None:
    flat = layer.data("flat", data_type.dense_vector_sequence(1))
    starts = layer.data("starts", data_type.dense_vector(2))
    ends = layer.data("ends", data_type.dense_vector(2))
    rows = [[[float(place)] for place in range(count)] for count in (4, 3)]
    first, last = [[0, 2], [1, -1]], [[1, 3], [1, -1]]
    both = layer.seq_slice(flat, starts, ends)
    assert found(both, rows, first, last).ravel().tolist() == [0, 1, 2, 3, 1]
    assert found(layer.last_seq(both), rows, first, last).ravel().tolist() == [
        1,
        3,
        1,
    ]  # each piece is a sequence
    from_start = layer.seq_slice(flat, starts, None)
    assert found(from_start, rows, first).ravel().tolist() == [0, 1, 2, 3, 2, 3, 1, 2]
    to_end = layer.seq_slice(flat, None, ends)
    assert found(to_end, rows, last).ravel().tolist() == [0, 1, 0, 1, 2, 3, 0, 1]


def test_pieces_of_sub_sequences_stay_in_their_sample() -> None:
    rows = nested(size=1)
    column = [[[[1.0], [2.0], [3.0]], [[4.0]]], [[[5.0], [6.0]]]]
    starts = layer.kmax_seq_score(rows, beam_size=2)
    pieces = layer.seq_slice(rows, starts, None)
    assert found(pieces, column).ravel().tolist() == [3, 2, 3, 4, 6, 5, 6]
    assert found(layer.pooling(pieces, _POOL.Sum()), column).ravel().tolist() == [12, 17]
    by_piece = layer.pooling(pieces, _POOL.Sum(), agg_level=_SENTENCES)
    assert found(by_piece, column).ravel().tolist() == [3, 5, 4, 6, 11]


def test_the_end_of_sentences_is_seen_in_ids() -> None:
    words = layer.data("words", data_type.integer_value_sub_sequence(_VOCABULARY))
    ends = found(layer.eos(words, eos_id=2), [text for (text,) in _TEXTS], field="id")
    flat = [word for (text,) in _TEXTS for part in text for word in part]
    assert ends.ravel().tolist() == [int(word == 2) for word in flat]


def _scores() -> LayerOutput:
    """One number a word that is not trained, so that what is chosen stays."""
    again = layer.data("again", data_type.integer_value_sub_sequence(_VOCABULARY))
    return layer.embedding(again, 1, param_attr=attr.Param(is_static=True))


_THROUGH: dict[str, Callable[[LayerOutput], LayerOutput]] = {
    "pooling": lambda x: layer.pooling(x, _POOL.Avg(), agg_level=_SENTENCES),
    "last": lambda x: layer.last_seq(x, agg_level=_SENTENCES),
    "expand": lambda x: layer.expand(layer.first_seq(x), x),
    "expand of a sequence": lambda x: layer.expand(
        layer.last_seq(x, agg_level=_SENTENCES), x, expand_level=_FROM.FROM_SEQUENCE
    ),
    "stride": lambda x: layer.pooling(layer.seq_reshape(x, 4), _POOL.SquareRootN(), stride=2),
    "seq_concat": lambda x: layer.seq_concat(x, layer.fc(x, 4)),
    "seq_slice": lambda x: layer.seq_slice(x, layer.kmax_seq_score(_scores(), beam_size=2), None),
    "sub_nested_seq": lambda x: layer.sub_nested_seq(
        x, layer.kmax_seq_score(layer.last_seq(_scores(), agg_level=_SENTENCES), beam_size=2)
    ),
    "windows": lambda x: networks.sequence_conv_pool(x, 3, 4),
    "lstmemory": lambda x: networks.simple_lstm(x, 4),
    "softmax": lambda x: layer.scaling(x, layer.fc(x, 1, activation.SequenceSoftmax())),
}


@pytest.mark.parametrize("name", _THROUGH)
def test_gradients_go_through_both_levels(name: str) -> None:
    words = layer.data("words", data_type.integer_value_sub_sequence(_VOCABULARY))
    through = _THROUGH[name](layer.embedding(words, 4))
    pooled = layer.pooling(through, _POOL.Sum()) if name != "windows" else through
    cost = layer.sum_cost(layer.fc(pooled, 1, activation.Tanh()))
    check_gradients(cost, [(text, text) for (text,) in _TEXTS])


def _flat_rows() -> LayerOutput:
    return layer.data("flat", data_type.dense_vector_sequence(SIZE))


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (lambda: layer.pooling(_flat_rows(), agg_level=_SENTENCES), "'flat' has only one level of sequences"),
        (
            lambda: layer.sub_nested_seq(_flat_rows(), layer.data("c", data_type.dense_vector(1))),
            "operates on sub-sequences, but its input 'flat' has only one level",
        ),
        (lambda: layer.pooling(_flat_rows(), stride=2, agg_level=_SENTENCES), "with agg_level TO_NO"),
        (lambda: layer.last_seq(_flat_rows(), stride=0), "stride must be -1 or a number of rows"),
        (lambda: layer.pooling(_flat_rows(), agg_level="word"), "a member of AggregateLevel"),
        (lambda: layer.seq_slice(_flat_rows(), None, None), "give starts, ends, or both"),
        (lambda: layer.kmax_seq_score(_flat_rows()), "has size 3.* expected 1"),
    ],
)
def test_what_needs_another_level_says_so(declared: Callable[[], LayerOutput], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        found(declared(), [[[0.0] * SIZE]], [[0]])


def test_stride_wants_one_level() -> None:
    with pytest.raises(UsageError, match="stride needs sequences, but 'rows' has sequences of sequences"):
        found(layer.pooling(nested(), stride=2))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ([[[1, 2]], 3], "expected a list of lists .*, got 3 in sample 1"),
        ([[[1, 2], 4]], "expected a list .*, got 4 in item 1 of sample 0"),
        ([[[]], []], "all sequences of a batch are empty"),
        ([[[1, 99]]], "99 is not in"),
    ],
)
def test_samples_that_lack_a_level_are_refused(column: list[Any], text: str) -> None:
    words = layer.data("words", data_type.integer_value_sub_sequence(_VOCABULARY))
    with pytest.raises(UsageError, match=text):
        found(layer.pooling(layer.embedding(words, 2)), column)


def test_an_empty_sub_sequence_is_one() -> None:
    words = layer.data("words", data_type.dense_vector_sub_sequence(1))
    sums = layer.pooling(words, _POOL.Sum(), agg_level=_SENTENCES)
    assert found(sums, [[[[1.0]], [], [[2.0], [3.0]]], []]).ravel().tolist() == [1, 0, 5]


_KINDS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "dense": (data_type.dense_vector_sub_sequence(4), lambda word: np.eye(4)[word]),
    "integer": (data_type.integer_value_sub_sequence(4), lambda word: word),
    "binary": (data_type.sparse_binary_vector_sub_sequence(4), lambda word: [word]),
    "float": (data_type.sparse_float_vector_sub_sequence(4), lambda word: [(word, 1.0)]),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_every_type_of_sub_sequences_comes_through_reader_and_feeder(kind: str) -> None:
    declared, written = _KINDS[kind]
    texts = [[[1, 2], [3]], [[0], [0, 3], [2]]]

    def reader() -> Any:
        yield from (([[written(word) for word in part] for part in text],) for text in texts)

    rows = layer.data("rows", declared)
    table = attr.Param(name="table", initial_std=1.0)
    wide = (
        layer.embedding(rows, 2, param_attr=table)
        if kind == "integer"
        else layer.fc(rows, 2, activation.Linear(), param_attr=table, bias_attr=False)
    )
    out = layer.pooling(wide, _POOL.Sum(), agg_level=_SENTENCES)
    parameters = paddle.parameters.create(out)
    (batch,) = paddle.batch(paddle.reader.buffered(reader, 2), 2)()
    found_rows = paddle.infer(out, parameters, batch)
    right = [parameters["table"][part].sum(axis=0) for text in texts for part in text]
    np.testing.assert_allclose(found_rows, right, rtol=1e-5)
