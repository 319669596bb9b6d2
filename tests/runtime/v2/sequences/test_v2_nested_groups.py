# SPDX-License-Identifier: Apache-2.0
"""Groups that step through sub-sequences, groups in them, and memories that are sequences: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, attr, data_type, layer, model, networks
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.sequences.nested_cases import (
    SAMPLES,
    SIZE,
    Array,
    check_gradients,
    expected,
    found,
    group,
    groups,
    nested,
)

_SENTENCES, _FROM = layer.AggregateLevel.TO_SEQUENCE, layer.ExpandLevel
_VOCABULARY, _WIDTH = 9, 4
_TEXTS = [[[1, 2], [3], [4, 5, 6]], [[7]], [[8, 1], [2, 2]]]
_LABELS = [[1, 0, 2], [2], [0, 1]]


def _words(name: str = "words") -> LayerOutput:
    return layer.data(name, data_type.integer_value_sub_sequence(_VOCABULARY))


def _running(sub: LayerOutput, name: str = "total") -> LayerOutput:
    before = layer.memory(name=name, size=SIZE)
    return layer.addto([layer.pooling(sub, paddle.pooling.Sum()), before], name=name)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_step_sees_a_sub_sequence_and_makes_a_row(reverse: bool) -> None:
    totals = group(_running, layer.SubsequenceInput(nested()), reverse=reverse)
    turn = slice(None, None, -1 if reverse else 1)
    np.testing.assert_allclose(
        found(totals),
        expected(lambda parts: np.cumsum([part.sum(axis=0) for part in parts[turn]], axis=0)[turn]),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_step_that_makes_a_sequence_gives_both_levels_back(reverse: bool) -> None:
    rows = nested()

    def step(sub: LayerOutput) -> list[LayerOutput]:
        doubled = layer.slope_intercept(sub, slope=2.0)
        return [layer.expand(layer.last_seq(sub), sub), doubled, layer.first_seq(sub)]

    ends, doubled, firsts = groups(step, rows, reverse=reverse)
    np.testing.assert_allclose(
        found(ends), expected(lambda parts: [part[-1] for part in parts for _ in part]), rtol=1e-6
    )
    np.testing.assert_allclose(
        found(layer.addto([doubled, rows])), expected(lambda x: 3 * np.concatenate(x)), rtol=1e-5
    )
    sums = layer.pooling(ends, paddle.pooling.Sum(), agg_level=_SENTENCES)
    np.testing.assert_allclose(
        found(sums), expected(lambda parts: [len(part) * part[-1] for part in parts]), rtol=1e-5
    )
    np.testing.assert_allclose(found(firsts), expected(lambda parts: [part[0] for part in parts]))


def _flat_and_nested(reverse: bool) -> tuple[LayerOutput, LayerOutput]:
    """The states of one recurrence over joined sequences, and over words of sentences from the sentence before."""
    names = {"x": attr.Param(name="x"), "h": attr.Param(name="h"), "b": attr.Param(name="b")}

    def step_of(name: str, boot: LayerOutput | None) -> Callable[[LayerOutput], LayerOutput]:
        def step(row: LayerOutput) -> LayerOutput:
            before = layer.memory(name=name, size=_WIDTH, boot_layer=boot)
            return layer.fc(
                [row, before],
                _WIDTH,
                activation.Tanh(),
                name,
                [names["x"], names["h"]],
                names["b"],
            )

        return step

    def sentence(sub: LayerOutput) -> LayerOutput:
        before = layer.memory(name="document", size=_WIDTH)
        states = group(step_of("inner", before), sub, reverse=reverse, name="inside")
        end = layer.first_seq if reverse else layer.last_seq
        end(states, name="document")
        return states

    table = attr.Param(name="table")
    flat = layer.embedding(
        layer.data("flat", data_type.integer_value_sequence(_VOCABULARY)), _WIDTH, param_attr=table
    )
    whole = group(step_of("plain", None), flat, reverse=reverse)
    deep = group(sentence, layer.embedding(_words(), _WIDTH, param_attr=table), reverse=reverse)
    return whole, deep


@pytest.mark.parametrize("reverse", [False, True])
def test_groups_in_a_group_equal_one_group_over_the_joined_sequences(reverse: bool) -> None:
    outs = _flat_and_nested(reverse)
    parameters = paddle.parameters.create(list(outs))
    columns = [[word for part in text for word in part] for text in _TEXTS], _TEXTS
    sides = [
        paddle.infer(out, parameters, list(zip(*columns, strict=True)), feeding={"flat": 0, "words": 1})
        for out in outs
    ]
    np.testing.assert_allclose(sides[1], sides[0], rtol=1e-5, atol=1e-6)


def test_training_a_group_in_a_group_equals_training_the_group_over_joined_sequences() -> None:
    weights = []
    for chosen in (0, 1):
        with model.fresh():
            out = _flat_and_nested(False)[chosen]
            end = layer.fc(layer.last_seq(out), 1, activation.Linear(), param_attr=attr.Param(name="out"))
            cost = layer.square_error_cost(end, layer.data("target", data_type.dense_vector(1)))
            parameters = paddle.parameters.create(cost)
            trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(learning_rate=0.1))
            batch = [([w for part in text for w in part], text, [len(text)]) for text in _TEXTS]
            feeding = {"flat": 0, "words": 1, "target": 2}
            trainer.train(lambda: iter([batch] * 3), feeding=feeding)  # noqa: B023 - called at once
            weights.append({name: parameters[name].copy() for name in ("x", "h", "b", "table", "out")})
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, rtol=1e-4, atol=1e-6)


def test_an_inner_group_goes_through_words_beside_rows_of_sentences() -> None:
    """A sequence with an item a sentence, a row a sample, and a static sequence beside sub-sequences."""
    rows = nested()
    marks = layer.data("marks", data_type.dense_vector_sequence(1))

    def sentence(sub: LayerOutput, mark: LayerOutput, all_marks: LayerOutput) -> LayerOutput:
        total = layer.pooling(all_marks, paddle.pooling.Sum())

        def word(row: LayerOutput, mark: LayerOutput, total: LayerOutput) -> LayerOutput:
            before = layer.memory(name="scaled", size=SIZE)
            return layer.addto([layer.scaling(layer.scaling(row, mark), total), before], name="scaled")

        return group(word, [sub, layer.StaticInput(mark), layer.StaticInput(total)])

    out = group(sentence, [rows, marks, layer.StaticInput(marks, is_seq=True)])
    column = [[[float(1 + place)] for place, _ in enumerate(sample)] for sample in SAMPLES]

    def right(parts: list[Array]) -> list[Array]:
        total = sum(range(1, 1 + len(parts)))
        return [row for at, part in enumerate(parts) for row in total * (1 + at) * np.cumsum(part, axis=0)]

    np.testing.assert_allclose(found(out, SAMPLES, column), expected(right), rtol=1e-4, atol=1e-5)


def test_two_texts_of_as_many_sentences_may_have_sentences_of_other_lengths() -> None:
    def sentence(one: LayerOutput, other: LayerOutput) -> list[LayerOutput]:
        return [layer.expand(layer.last_seq(other), one), layer.slope_intercept(other, slope=-1.0)]

    first, second = groups(sentence, [nested(), nested("others")])
    others = [[part[:1] for part in sample] for sample in SAMPLES]
    ends = expected(lambda parts: [part[0] for part in parts for _ in part])
    np.testing.assert_allclose(found(first, SAMPLES, others), ends, rtol=1e-6)
    np.testing.assert_allclose(
        found(second, SAMPLES, others), expected(lambda parts: [-part[0] for part in parts]), rtol=1e-6
    )


def test_other_numbers_of_sentences_are_refused() -> None:
    out = group(lambda one, other: layer.last_seq(one), [nested(), nested("others")])
    with pytest.raises(
        Exception, match=r"the same number of items .*\[2, 1, 3\] sub-sequences, another has \[1, 1, 1\]"
    ):
        found(out, SAMPLES, [sample[:1] for sample in SAMPLES])


def test_a_memory_may_be_a_sequence_that_changes_its_length() -> None:
    rows = nested()

    def step(sub: LayerOutput) -> LayerOutput:
        start = layer.first_seq(sub)
        before = layer.memory(name="grown", size=SIZE, is_seq=True, boot_layer=booted)
        layer.seq_concat(before, sub, name="grown")
        return layer.addto([layer.pooling(before, paddle.pooling.Sum()), start])

    booted = layer.data("booted", data_type.dense_vector_sequence(SIZE))
    out = group(step, rows)
    column = [[sample[0][0]] * 2 for sample in SAMPLES]

    def right(parts: list[Array]) -> list[Array]:
        seen = 2 * parts[0][0]
        made = []
        for part in parts:
            made.append(seen + part[0])
            seen = seen + part.sum(axis=0)
        return made

    order = {"rows": 0, "booted": 1}
    parameters = paddle.parameters.create(out)
    samples = list(zip(SAMPLES, column, strict=True))
    got = paddle.infer(out, parameters, samples, feeding=order)
    np.testing.assert_allclose(got, expected(right), rtol=1e-4, atol=1e-5)


def test_costs_and_classes_of_each_sentence_are_counted() -> None:
    def sentence(sub: LayerOutput, label: LayerOutput) -> LayerOutput:
        chances = layer.fc(layer.pooling(sub), 3, activation.Softmax())
        return layer.classification_cost(chances, label)

    rows = layer.embedding(_words(), _WIDTH)
    cost = group(sentence, [rows, layer.data("labels", data_type.integer_value_sequence(3))])
    check_gradients(cost, list(zip(_TEXTS, _LABELS, strict=True)))
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=0.1))
    errors: list[float] = []

    def seen(event: Any) -> None:
        if isinstance(event, paddle.event.EndPass):
            errors.append(min(event.metrics.values()))

    batch = list(zip(_TEXTS, _LABELS, strict=True))
    trainer.train(lambda: iter([batch]), num_passes=25, event_handler=seen)
    assert errors[0] > 0.3
    assert errors[-1] == 0


def _attending(rows: LayerOutput) -> LayerOutput:
    def sentence(sub: LayerOutput, whole: LayerOutput) -> LayerOutput:
        before = layer.memory(name="state", size=_WIDTH)
        seen = networks.simple_attention(whole, layer.fc(whole, _WIDTH), before)
        return layer.fc([layer.last_seq(sub), seen, before], _WIDTH, activation.Tanh(), name="state")

    return group(sentence, [rows, layer.StaticInput(rows, is_seq=True)])


def _twice(rows: LayerOutput) -> LayerOutput:
    def sentence(sub: LayerOutput) -> LayerOutput:
        before = layer.memory(name="document", size=_WIDTH, boot_bias=attr.Param(name="boot"))

        def word(row: LayerOutput) -> LayerOutput:
            state = layer.memory(name="state", size=_WIDTH, boot_layer=before)
            return layer.gru_step(layer.fc(row, 3 * _WIDTH), state, name="state")

        states = group(word, sub, reverse=True)
        layer.first_seq(states, name="document")
        return states

    return group(sentence, rows)


def _growing(rows: LayerOutput) -> LayerOutput:
    boot = layer.last_seq(rows, agg_level=_SENTENCES)

    def sentence(sub: LayerOutput) -> LayerOutput:
        before = layer.memory(name="grown", size=_WIDTH, is_seq=True, boot_layer=boot)
        grown = layer.seq_concat(before, layer.fc(sub, _WIDTH, activation.Tanh()), name="grown")
        return layer.pooling(grown, paddle.pooling.Avg())

    return group(sentence, rows)


_GROUPS: dict[str, Callable[[LayerOutput], LayerOutput]] = {
    "sentences": lambda rows: group(
        lambda sub: networks.sequence_conv_pool(sub, 3, _WIDTH, pool_type=paddle.pooling.Avg()),
        rows,
        reverse=True,
    ),
    "words in sentences": _twice,
    "attention to a nested text": _attending,
    "lstm of each sentence": lambda rows: group(
        lambda sub: networks.bidirectional_lstm(sub, _WIDTH, return_seq=True), rows
    ),
    "sentences beside expanded rows": lambda rows: group(
        lambda sub, rest: layer.pooling(layer.addto([sub, rest]), paddle.pooling.Sum()),
        [rows, layer.expand(layer.fc(layer.first_seq(rows), _WIDTH), rows)],
    ),
    "a memory that grows": _growing,
}


@pytest.mark.parametrize("name", _GROUPS)
def test_gradients_through_nested_groups_agree_with_differences_of_the_cost(name: str) -> None:
    out = _GROUPS[name](layer.embedding(_words(), _WIDTH))
    cost = layer.sum_cost(layer.fc(layer.pooling(out, paddle.pooling.Sum()), 1, activation.Tanh()))
    check_gradients(cost, [(text,) for text in _TEXTS])


def test_a_beam_search_sees_whole_texts_of_sentences() -> None:
    """Each word is the next sentence's first one, whose place a memory counts."""
    rows = layer.embedding(_words(), _VOCABULARY, param_attr=attr.Param(name="table"))

    def step(text: LayerOutput, word: LayerOutput) -> LayerOutput:
        place = layer.memory(name="place", size=1)
        layer.slope_intercept(place, slope=1.0, intercept=1.0, name="place")
        sentences = layer.first_seq(text, agg_level=_SENTENCES)
        numbers = layer.recurrent_group(counted, sentences)
        off = layer.addto([numbers, layer.slope_intercept(layer.expand(place, sentences), slope=-1.0)])
        weight = layer.fc(
            layer.mixed(1, [layer.dotmul_operator(off, off)]),
            1,
            activation.SequenceSoftmax(),
            param_attr=attr.Param(initial_mean=-50.0, initial_std=0.0),
            bias_attr=False,
        )
        first = layer.pooling(layer.scaling(sentences, weight), paddle.pooling.Sum())
        return layer.fc([first, word], _VOCABULARY, activation.Softmax(), param_attr=weights, bias_attr=False)

    def counted(row: LayerOutput) -> LayerOutput:
        before = layer.memory(name="counted", size=1, boot_layer=None)
        out = layer.slope_intercept(before, slope=1.0, intercept=1.0, name="counted")
        return layer.slope_intercept(out, slope=1.0, intercept=-1.0)

    weights = [attr.Param(name="scale"), attr.Param(name="word", initial_mean=0.0, initial_std=0.0)]
    generated = layer.GeneratedInput(_VOCABULARY, "table", _VOCABULARY)
    out = layer.beam_search(
        step,
        [layer.StaticInput(rows, is_seq=True), generated],
        0,
        8,
        2,
        max_length=2,
        num_results_per_sample=1,
    )
    parameters = paddle.parameters.create(out)
    parameters["table"] = np.eye(_VOCABULARY, dtype=np.float32)
    parameters["scale"] = 20 * np.eye(_VOCABULARY, dtype=np.float32)
    texts = [[[1, 2], [3], [4, 5, 6]], [[7], [6, 1]], [[5, 1], [2, 2]]]
    words = found(out, texts, parameters=parameters, field="id")
    assert words.ravel().tolist() == [1, 3, 7, 6, 5, 2]


@pytest.mark.parametrize("kind", ["sparse_binary_vector", "sparse_float_vector"])
def test_a_group_steps_through_sparse_rows(kind: str) -> None:
    written = (lambda word: [word]) if kind == "sparse_binary_vector" else (lambda word: [(word, 1.0)])
    names = attr.Param(name="w")

    def wide(rows: LayerOutput) -> LayerOutput:
        return layer.fc(rows, 2, activation.Linear(), param_attr=names, bias_attr=False)

    def sentence(sub: LayerOutput) -> LayerOutput:
        return layer.pooling(group(lambda row: wide(row), sub), paddle.pooling.Sum())

    out = group(sentence, layer.data("rows", getattr(data_type, f"{kind}_sub_sequence")(_VOCABULARY)))
    parameters = paddle.parameters.create(out)
    column = [[[written(word) for word in part] for part in text] for text in _TEXTS]
    right = [parameters["w"][part].sum(axis=0) for text in _TEXTS for part in text]
    np.testing.assert_allclose(found(out, column, parameters=parameters), right, rtol=1e-5)
