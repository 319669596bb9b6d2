# SPDX-License-Identifier: Apache-2.0
"""Programs over texts as lists of sentences: they train, are saved and loaded, and infer."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, attr, data_type, layer, model, networks
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.sequences.nested_cases import group

WORDS, SIZE = 12, 8
GOOD = 3  # a text is of class 1 if the word is in two of its sentences
_TO_SENTENCE, _TO_TEXT = layer.AggregateLevel.TO_SEQUENCE, layer.AggregateLevel.TO_NO_SEQUENCE
_RNG = np.random.default_rng(4)


def _texts(count: int) -> list[tuple[list[list[int]], int]]:
    found = []
    for number in range(count):
        sentences = [
            _RNG.integers(4, WORDS, _RNG.integers(1, 5)).tolist() for _ in range(_RNG.integers(2, 5))
        ]
        label = number % 2
        for sentence in sentences[: 2 * label]:
            sentence.insert(0, GOOD)
        found.append((sentences, label))
    return found


TEXTS = _texts(32)


def _embedded() -> LayerOutput:
    words = layer.data("word", data_type.integer_value_sub_sequence(WORDS))
    return layer.embedding(words, SIZE)


def of_windows(hidden: int = 8) -> LayerOutput:
    """A row a sentence from two widths of windows, the mean of them, classes."""

    def sentence(rows: LayerOutput, size: int) -> LayerOutput:
        short = networks.sequence_conv_pool(rows, context_len=3, hidden_size=size)
        long = networks.sequence_conv_pool(rows, context_len=4, hidden_size=size)
        named = attr.Param(name="_sentence.w")
        return layer.fc(
            [short, long], size, param_attr=[named, named], bias_attr=attr.Param(name="_sentence.b")
        )

    vectors = group(sentence, [layer.SubsequenceInput(_embedded()), hidden])
    text = layer.pooling(vectors, paddle.pooling.Avg(), agg_level=_TO_TEXT)
    return layer.mixed(2, [layer.full_matrix_projection(text)], act=activation.Softmax())


def of_words() -> LayerOutput:
    """A group through the words of each sentence, from what the sentence before left; a group through sentences."""

    def sentence(rows: LayerOutput) -> LayerOutput:
        text = layer.memory(name="text", size=SIZE)

        def word(row: LayerOutput) -> LayerOutput:
            before = layer.memory(name="state", size=SIZE, boot_layer=text)
            return layer.fc([row, before], SIZE, activation.Tanh(), name="state")

        states = group(word, rows)
        return layer.last_seq(states, name="text")

    return layer.fc(layer.pooling(group(sentence, _embedded())), 2, activation.Softmax())


def of_vectors() -> LayerOutput:
    """An LSTM through the words of each sentence, one through the vectors of sentences."""
    vectors = group(lambda rows: layer.last_seq(networks.simple_lstm(rows, SIZE)), _embedded())
    text = layer.pooling(networks.simple_lstm(vectors, SIZE), paddle.pooling.Max())
    return layer.fc(text, 2, activation.Softmax())


def of_attention() -> LayerOutput:
    """Words weighed within their sentence, sentences within their text."""

    def weighed(rows: LayerOutput, name: str) -> LayerOutput:
        hidden = layer.fc(rows, SIZE, activation.Tanh(), param_attr=attr.Param(name=f"_{name}.h"))
        weight = layer.fc(hidden, 1, activation.SequenceSoftmax(), bias_attr=False)
        return layer.pooling(layer.scaling(rows, weight), paddle.pooling.Sum())

    vectors = group(lambda rows: weighed(rows, "words"), _embedded())
    return layer.fc(weighed(vectors, "sentences"), 2, activation.Softmax())


_CLASSIFIERS: dict[str, Callable[[], LayerOutput]] = {
    "windows": of_windows,
    "words": of_words,
    "vectors": of_vectors,
    "attention": of_attention,
}


@pytest.mark.parametrize("name", _CLASSIFIERS)
def test_texts_are_classified_by_their_sentences(name: str, tmp_path: Path) -> None:
    chances = _CLASSIFIERS[name]()
    cost = layer.classification_cost(chances, layer.data("label", data_type.integer_value(2)))
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(
        learning_rate=0.05,
        regularization=paddle.optimizer.L2Regularization(rate=1e-4),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5),
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)
    path, errors = tmp_path / "model.tar.gz", []

    def seen(event: Any) -> None:
        if isinstance(event, paddle.event.EndPass):
            errors.append(event.metrics["classification_error_evaluator"])
            with gzip.open(path, "w") as file:
                trainer.save_parameter_to_tar(file)  # type: ignore[arg-type]

    def reader() -> Iterator[Any]:
        yield from TEXTS

    batches = paddle.batch(paddle.reader.shuffle(reader, buf_size=64), batch_size=16)
    trainer.train(batches, num_passes=15, event_handler=seen, feeding={"word": 0, "label": 1})
    assert trainer.test(batches).metrics["classification_error_evaluator"] < 0.1
    with model.fresh(), gzip.open(path) as file:
        loaded = paddle.parameters.Parameters.from_tar(file)  # type: ignore[arg-type]
        machine = paddle.inference.Inference(output_layer=_CLASSIFIERS[name](), parameters=loaded)
        found = machine.infer(input=[(text,) for text, _ in TEXTS], field="value")
    assert (found.argmax(axis=1) == [label for _, label in TEXTS]).mean() > 0.9


def _reader(width: int) -> tuple[list[LayerOutput], LayerOutput]:
    """An answer is looked for in documents: a sentence, its first word, its last; beams of all three, and the cost."""
    static = attr.Param(name="GloveVectors", is_static=True)
    question = layer.data("question", data_type.integer_value_sequence(WORDS))
    documents = layer.data("documents", data_type.integer_value_sub_sequence(WORDS))
    same = layer.data("same_as_question", data_type.dense_vector_sub_sequence(1))
    golds = [layer.data(name, data_type.integer_value(100)) for name in ("sen_idx", "start_idx", "end_idx")]
    asked = layer.last_seq(networks.simple_gru(layer.embedding(question, SIZE, param_attr=static), SIZE))
    expanded = layer.expand(asked, documents, expand_level=layer.ExpandLevel.FROM_NO_SEQUENCE)
    rows = layer.concat([layer.embedding(documents, SIZE, param_attr=static), expanded, same])

    def both_ways(rows: LayerOutput, prefix: str, reverse: bool) -> LayerOutput:
        end = layer.first_seq if reverse else layer.last_seq

        def sentence(rows: LayerOutput, reverse: bool, prefix: str, asked: LayerOutput) -> LayerOutput:
            before = layer.memory(name=f"{prefix}_outer", size=SIZE)

            def word(row: LayerOutput) -> LayerOutput:
                state = layer.memory(name=f"{prefix}_inner", size=SIZE, boot_layer=before)
                return layer.fc([row, state], SIZE, activation.Tanh(), name=f"{prefix}_inner")

            states = group(word, rows, reverse=reverse)
            left = end(states, name=f"{prefix}_outer")
            seen = networks.simple_attention(asked, layer.fc(asked, SIZE), left)
            return layer.addto([states, layer.expand(seen, states)])

        statics = layer.StaticInput(layer.embedding(question, SIZE, param_attr=static), is_seq=True)
        return group(sentence, [layer.SubsequenceInput(rows), reverse, prefix, statics], reverse=reverse)

    read = layer.concat([both_ways(rows, f"read{int(back)}", back) for back in (False, True)])

    def scored(rows: LayerOutput) -> LayerOutput:
        return layer.fc(rows, 1, activation.Linear(), bias_attr=False)

    of_sentences = scored(layer.last_seq(read, agg_level=_TO_SENTENCE))
    best = layer.kmax_seq_score(of_sentences, beam_size=width)
    kept = layer.sub_nested_seq(input=read, selected_indices=best)
    of_starts = scored(kept)
    starts = layer.kmax_seq_score(of_starts, beam_size=width)
    rest = layer.seq_slice(input=kept, starts=starts, ends=None)
    of_ends = scored(networks.simple_gru(rest, SIZE))
    ends = layer.kmax_seq_score(of_ends, beam_size=width)
    beams = [(of_sentences, best), (of_starts, starts), (of_ends, ends)]
    cost = layer.cross_entropy_over_beam(
        input=[
            layer.BeamInput(candidate_scores=scores, selected_candidates=chosen, gold=gold)
            for (scores, chosen), gold in zip(beams, golds, strict=True)
        ]
    )
    return [layer for beam in beams for layer in beam], cost


def test_a_reader_finds_answers_by_a_beam_over_sentences_first_and_last_words() -> None:
    outs, cost = _reader(3)
    samples = []
    for text, _ in TEXTS[:12]:
        sentence = int(_RNG.integers(len(text)))
        first = int(_RNG.integers(len(text[sentence])))
        last = int(_RNG.integers(first, len(text[sentence])))
        # what is asked for stands in the answer alone, and is marked where it begins
        same = [[[0.0] for _ in words] for words in text]
        same[sentence][first] = [1.0]
        samples.append(([GOOD, 1], text, same, sentence, first, last - first))
    parameters = paddle.parameters.create(cost)
    parameters["GloveVectors"] = _RNG.standard_normal((WORDS, SIZE)).astype(np.float32)
    schedule: dict[str, Any] = {"learning_rate_decay_a": 0.5, "learning_rate_decay_b": len(samples) * 20.0}
    optimizer = paddle.optimizer.Adam(
        learning_rate=0.02, learning_rate_schedule="discexp", gradient_clipping_threshold=20, **schedule
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)
    costs: list[float] = []

    def seen(event: Any) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            assert event.pass_id >= 0
        elif isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)

    trainer.train(lambda: iter([samples]), num_passes=40, event_handler=seen)
    assert costs[-1] < 0.2 * costs[0]
    saved = io.BytesIO()
    parameters.to_tar(saved)
    saved.seek(0)
    loaded = paddle.parameters.Parameters.from_tar(saved)
    found = paddle.inference.Inference(output_layer=outs, parameters=loaded).infer(
        input=[sample[:3] for sample in samples], field="value", flatten_result=False
    )
    best = found[1]
    assert best.shape == (len(samples), 3)
    assert (best[:, 0] == [sample[3] for sample in samples]).mean() > 0.8
    # as many candidates as there are sentences: the places behind them are -1
    assert ((best != -1).sum(axis=1) == [min(3, len(sample[1])) for sample in samples]).all()
