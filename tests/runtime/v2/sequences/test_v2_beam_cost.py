# SPDX-License-Identifier: Apache-2.0
"""cross_entropy_over_beam beside a search that is written out, and its gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, data_type, layer
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.sequences.nested_cases import check_gradients, found

# (scores of the first expansion, of the second by kept candidate, places kept in both, right ones)
_SEARCHES: dict[str, tuple[list[float], list[list[float]], list[int], list[list[int]], tuple[int, int]]] = {
    "kept to the end": ([0.5, 2.0, 1.0], [[0.1, 0.3], [1.0, -1.0, 0.2]], [1, 2], [[1, 0], [0, 2]], (2, 0)),
    "lost in the first": ([0.5, 2.0, 1.0], [[0.1, 0.3], [1.0, -1.0, 0.2]], [1, 2], [[1, 0], [0, 2]], (0, 1)),
    "lost in the second": ([0.5, 2.0, 1.0], [[0.1, 0.3], [1.0, -1.0, 0.2]], [1, 2], [[1, 0], [0, 2]], (2, 1)),
    "short": ([3.0], [[1.0]], [0, -1], [[0, -1]], (0, 0)),
}


def _by_hand(search: tuple[Any, ...]) -> float:
    first, second, kept, kept_next, (right, right_next) = search
    paths: list[float]
    kept = [place for place in kept if place != -1]
    if right not in kept:
        paths = [first[place] for place in kept]
        at, paths = len(paths), [*paths, first[right]]
    else:
        paths, at = [], -1
        for row, place in enumerate(kept):
            for place_next in kept_next[row]:
                if place_next != -1:
                    if (place, place_next) == (right, right_next):
                        at = len(paths)
                    paths.append(first[place] + second[row][place_next])
        if at < 0:
            at, paths = len(paths), [*paths, first[right] + second[kept.index(right)][right_next]]
    return math.log(sum(map(math.exp, paths))) - paths[at]


def _beams(first: LayerOutput, second: LayerOutput, width: int = 2) -> list[layer.BeamInput]:
    places = data_type.dense_vector(width), data_type.dense_vector_sequence(width)
    kept = [layer.data(f"kept{number}", kind) for number, kind in enumerate(places)]
    right = [layer.data(f"right{number}", data_type.integer_value(9)) for number in range(2)]
    return [
        layer.BeamInput(candidate_scores=scores, selected_candidates=chosen, gold=gold)
        for scores, chosen, gold in zip((first, second), kept, right, strict=True)
    ]


def test_the_cost_is_that_of_the_right_path_among_all() -> None:
    first = layer.data("first", data_type.dense_vector_sequence(1))
    second = layer.data("second", data_type.dense_vector_sub_sequence(1))
    cost = layer.cross_entropy_over_beam(_beams(first, second))
    columns = zip(
        *(
            ([[each] for each in a], [[[each] for each in row] for row in b], kept, after, *right)
            for a, b, kept, after, right in _SEARCHES.values()
        ),
        strict=True,
    )
    np.testing.assert_allclose(
        found(cost, *columns).ravel(), [_by_hand(each) for each in _SEARCHES.values()], rtol=1e-5, atol=1e-6
    )


def test_one_expansion_is_a_softmax_over_what_was_kept() -> None:
    first = layer.data("first", data_type.dense_vector_sequence(1))
    kept = layer.kmax_seq_score(first, beam_size=2)
    right = layer.data("right", data_type.integer_value(9))
    cost = layer.cross_entropy_over_beam(layer.BeamInput(first, kept, right))
    scores = np.array([1.0, 4.0, 2.0])
    both = found(cost, [scores[:, None]] * 2, [2, 0]).ravel()
    right_costs = [math.log(np.exp(scores[1:]).sum()) - 2.0, math.log(np.exp(scores).sum()) - 1.0]
    np.testing.assert_allclose(both, right_costs, rtol=1e-5)


def test_gradients_go_to_the_scores_of_every_expansion_that_counts() -> None:
    words = layer.data("words", data_type.integer_value_sequence(9))
    texts = layer.data("texts", data_type.integer_value_sub_sequence(9))
    first, second = (layer.fc(layer.embedding(each, 3), 1, activation.Tanh()) for each in (words, texts))
    cost = layer.cross_entropy_over_beam(_beams(first, second))
    samples = [
        ([1, 2, 3], [[4, 5], [6, 7, 8]], kept, after, *right)
        for _, _, kept, after, right in list(_SEARCHES.values())[:3]
    ]
    check_gradients(cost, [*samples, ([4], [[1]], [0, -1], [[0, -1]], 0, 0)])


def test_a_search_over_sentences_and_words_learns_the_right_path() -> None:
    """Sentences are scored, the best are read word by word, and the cost is that of both choices together."""
    documents = layer.data("documents", data_type.integer_value_sub_sequence(9))
    rows = layer.embedding(documents, 8)
    sentences = layer.pooling(rows, paddle.pooling.Sum(), agg_level=layer.AggregateLevel.TO_SEQUENCE)
    of_sentence = layer.fc(sentences, 1, activation.Linear())
    best = layer.kmax_seq_score(of_sentence, beam_size=2)
    words = layer.fc(layer.sub_nested_seq(rows, best), 1, activation.Linear())
    best_words = layer.kmax_seq_score(words, beam_size=2)
    golds = [layer.data(name, data_type.integer_value(9)) for name in ("sentence", "word")]
    cost = layer.cross_entropy_over_beam(
        [layer.BeamInput(of_sentence, best, golds[0]), layer.BeamInput(words, best_words, golds[1])]
    )
    parameters = paddle.parameters.create(cost)
    # the answer is word 8, which is in one sentence of each document
    samples = [([[1, 2], [3, 8], [4]], 1, 1), ([[5, 8, 6], [7]], 0, 1), ([[2], [1, 3], [6, 4, 8]], 2, 2)]
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=0.05))
    costs: list[float] = []

    def seen(event: Any) -> None:
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)

    trainer.train(lambda: iter([samples]), num_passes=30, event_handler=seen)
    assert costs[-1] < 0.1 * costs[0]
    chosen = paddle.infer([best, best_words], parameters, [sample[:1] for sample in samples])
    assert chosen[:3, 0].tolist() == [1, 0, 2]


def test_beams_that_do_not_fit_are_refused() -> None:
    first = layer.data("first", data_type.dense_vector_sequence(1))
    wide = layer.data("wide", data_type.dense_vector_sequence(2))
    right = layer.data("right", data_type.integer_value(9))
    with pytest.raises(UsageError, match=r"has size 2.* expected 1"):
        layer.BeamInput(wide, first, right)
    with pytest.raises(UsageError, match="gold 'wide' must be a data layer of integers"):
        layer.BeamInput(first, first, wide)
    with pytest.raises(UsageTypeError, match="expected BeamInputs"):
        layer.cross_entropy_over_beam([first])  # type: ignore[list-item]
    cost = layer.cross_entropy_over_beam(layer.BeamInput(first, layer.kmax_seq_score(first), right))
    with pytest.raises(
        Exception, match="sample 0, expansion 0: candidate 5 is out of range for a sequence of 1"
    ):
        found(cost, [[[1.0]]], [5])
