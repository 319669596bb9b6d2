# SPDX-License-Identifier: Apache-2.0
"""A beam search keeps the best continuations; generate finds the likeliest sentences, which decoding puts together."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Program, Scope
from paddle.graph.errors import ExecutionError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

_END = 0
_WORDS, _END_WORD, _LONGEST = 3, 1, 3
# The chance of each word behind each word, one table a sample.
_CHANCES = np.random.default_rng(6).dirichlet(np.ones(_WORDS), (2, _WORDS))


def _column(values: list[Any], lengths: list[list[int]], dtype: str = "float64") -> LoDArray:
    return LoDArray(np.array(values, dtype)[:, None], offsets_of(lengths))


def _step(
    pre_ids: list[int], pre_scores: list[float], ids: Any, scores: Any, lengths: list[list[int]], **attrs: Any
) -> Any:
    inputs = {
        "pre_ids": _column(pre_ids, lengths, "int64"),
        "pre_scores": np.array(pre_scores)[:, None],
        "ids": np.array(ids),
        "scores": LoDArray(np.array(scores), offsets_of(lengths)),
    }
    return run_op("beam_search", inputs, {"beam_size": 2, "end_id": _END, **attrs})


def test_the_best_continuations_of_each_sentence_stay() -> None:
    ids, scores = [[4, 5], [6, 7], [8, 9], [3, 2]], [[0.5, 0.4], [0.6, 0.1], [0.9, 0.8], [0.7, 0.2]]
    got_ids, got_scores, parents = _step([1, 2, 1, 2], [0.1] * 4, ids, scores, [[1, 1], [2, 2]])
    assert got_ids.data[:, 0].tolist() == [4, 6, 8, 9]
    assert got_scores.data[:, 0].tolist() == [0.5, 0.6, 0.9, 0.8]
    assert got_ids.lengths() == [[2, 2], [1, 1, 2, 0]]
    assert (parents.dtype, parents.tolist()) == (np.int32, [0, 1, 2, 2])


def test_a_prefix_that_has_ended_stays_with_its_score() -> None:
    ids, scores = [[4, 5], [6, 7]], [[9.0, 9.0], [0.2, 0.1]]
    got_ids, got_scores, parents = _step([_END, 2], [0.5, 0.1], ids, scores, [[1], [2]])
    assert got_ids.data[:, 0].tolist() == [_END, 6]
    assert got_scores.data[:, 0].tolist() == [0.5, 0.2]
    assert parents.tolist() == [0, 1]


def test_a_sentence_whose_prefixes_have_all_ended_is_left_out() -> None:
    ids, scores = [[4, 5], [6, 7], [8, 9]], [[9.0, 9.0], [9.0, 9.0], [0.3, 0.2]]
    got_ids, _, _ = _step([_END, _END, 3], [0.5, 0.4, 0.1], ids, scores, [[1, 1], [2, 1]])
    assert got_ids.data[:, 0].tolist() == [8, 9]
    assert got_ids.lengths() == [[2, 1], [0, 0, 2]]


def test_chances_add_to_the_prefix_unless_they_are_added_up() -> None:
    _, scores, _ = _step([1], [-1.0], [[4, 5]], [[0.5, 0.25]], [[1], [1]], is_accumulated=False)
    np.testing.assert_allclose(scores.data[:, 0], -1 + np.log([0.5, 0.25]))


def test_scores_without_sentences_are_refused() -> None:
    inputs = {"pre_ids": np.ones((1, 1), int), "pre_scores": np.ones((1, 1)), "scores": np.ones((1, 2))}
    with pytest.raises(ExecutionError, match="level 0 is requested"):
        run_op("beam_search", inputs, {"beam_size": 2, "end_id": _END})


def test_decoding_follows_each_way_back_to_its_first_word() -> None:
    steps = [
        ([1, 1], [0.0, 0.0], [[1, 1], [1, 1]]),
        ([4, 5, 6], [0.5, 0.4, 0.9], [[1, 1], [2, 1]]),
        ([7, _END, _END], [0.6, 0.7, 0.8], [[2, 1], [1, 1, 1]]),
        ([_END, _END], [0.9, 0.7], [[2, 1], [1, 1, 0]]),
    ]
    program = Program()
    block, feed = program.global_block(), {}
    for kind, dtype in (("ids", "int64"), ("scores", "float64")):
        block.append_op("create_array", {}, {"Out": kind}, {"dtype": dtype})
        for number, step in enumerate(steps):
            name, index = f"{kind}{number}", f"{kind}_at{number}"
            block.create_var(name, (-1, 1), dtype, lod_level=2)
            feed[name] = _column(list(step[0 if kind == "ids" else 1]), step[2], dtype)
            block.append_op(
                "fill_constant", {}, {"Out": index}, {"shape": [1], "dtype": "int64", "value": float(number)}
            )
            block.append_op("write_to_array", {"X": name, "I": index, "Array": kind}, {"Out": kind})
    outputs = {"SentenceIds": "words", "SentenceScores": "values"}
    block.append_op(
        "beam_search_decode", {"Ids": "ids", "Scores": "scores"}, outputs, {"beam_size": 2, "end_id": _END}
    )
    words, values = Executor().run(program, feed, ["words", "values"])
    assert words.lengths() == [[2, 1], [4, 3, 3]]
    assert words.data[:, 0].tolist() == [1, 4, 7, _END, 1, 5, _END, 1, 6, _END]
    assert values.data[:, 0].tolist() == [0.0, 0.5, 0.6, 0.9, 0.0, 0.4, 0.7, 0.0, 0.9, 0.8]


def _generated(beam: int, results: int) -> tuple[Any, Any]:
    """A body whose only state is the word before: chances are a row of the sample's table."""
    program = Program()
    block = program.global_block()
    block.create_var("tables", (-1, _WORDS, _WORDS), "float64", stop_gradient=True)
    prob, ids = block.create_var("prob", ()), block.create_var("ids", (), "int64")
    inner = program.create_block()
    inner.create_var("tables", (-1, _WORDS, _WORDS), "float64")
    inner.create_var("word", (-1, 1), "int64")
    inner.append_op("one_hot", {"X": "word"}, {"Out": "hot"}, {"depth": _WORDS, "dtype": "float64"})
    inner.append_op("reshape", {"X": "hot"}, {"Out": "row"}, {"shape": (-1, 1, _WORDS)})
    inner.append_op("matmul", {"X": "row", "Y": "tables"}, {"Out": "picked"})
    inner.append_op("reshape", {"X": "picked"}, {"Out": "chances"}, {"shape": (-1, _WORDS)})
    program.rollback()
    attrs = {
        "sub_block": inner.idx,
        "word": "word",
        "prob": "chances",
        "bos_id": 0,
        "eos_id": _END_WORD,
    }
    attrs |= {"beam_size": beam, "max_length": _LONGEST, "num_results": results}
    block.append_op("generate", {"Statics": ["tables"]}, {"Prob": prob, "Ids": ids}, attrs)
    found = Executor().run(program, {"tables": _CHANCES}, [prob, ids], Scope())
    return found[0], found[1]


def _all_sentences(chances: Any) -> list[tuple[float, list[int]]]:
    found = {}
    for words in product(range(_WORDS), repeat=_LONGEST):
        ended = words[: words.index(_END_WORD) + 1] if _END_WORD in words else words
        steps = zip((0, *ended[:-1]), ended, strict=True)
        found[ended] = sum(np.log(chances[before, word]) for before, word in steps)
    return sorted(((score, list(words)) for words, score in found.items()), reverse=True)


@pytest.mark.parametrize("results", [1, 3])
def test_a_wide_beam_finds_what_trying_all_finds(results: int) -> None:
    prob, ids = _generated(_WORDS**_LONGEST, results)
    expected, words = [], []
    for chances in _CHANCES:
        best = _all_sentences(chances)[:results]
        expected.append([score for score, _ in best])
        for _, sentence in best:
            words += sentence if results == 1 else [len(sentence), *sentence, -1]
    np.testing.assert_allclose(prob, expected, rtol=1e-5)
    assert ids.tolist() == words


def test_a_beam_of_one_takes_the_likeliest_word_each_time() -> None:
    prob, ids = _generated(1, 1)
    words: list[int] = []
    for sample, chances in enumerate(_CHANCES):
        last, total = 0, 0.0
        sentence: list[int] = []
        while len(sentence) < _LONGEST and last != _END_WORD:
            word = int(chances[last].argmax())
            total += np.log(chances[last, word])
            sentence.append(word)
            last = word
        assert prob[sample, 0] == pytest.approx(total, rel=1e-5)
        words += sentence
    assert ids.tolist() == words
