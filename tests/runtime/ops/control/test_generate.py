# SPDX-License-Identifier: Apache-2.0
"""generate finds the likeliest sentences: with a wide beam those that trying all of them finds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Program, Scope

_WORDS, _END, _LONGEST = 3, 1, 3
# The chance of each word behind each word, one table a sample.
_CHANCES = np.random.default_rng(6).dirichlet(np.ones(_WORDS), (2, _WORDS))


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
    attrs = {"sub_block": inner.idx, "word": "word", "prob": "chances", "bos_id": 0, "eos_id": _END}
    attrs |= {"beam_size": beam, "max_length": _LONGEST, "num_results": results}
    block.append_op("generate", {"Statics": ["tables"]}, {"Prob": prob, "Ids": ids}, attrs)
    found = Executor().run(program, {"tables": _CHANCES}, [prob, ids], Scope())
    return found[0], found[1]


def _all_sentences(chances: Any) -> list[tuple[float, list[int]]]:
    found = {}
    for words in product(range(_WORDS), repeat=_LONGEST):
        ended = words[: words.index(_END) + 1] if _END in words else words
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
        while len(sentence) < _LONGEST and last != _END:
            word = int(chances[last].argmax())
            total += np.log(chances[last, word])
            sentence.append(word)
            last = word
        assert prob[sample, 0] == pytest.approx(total, rel=1e-5)
        words += sentence
    assert ids.tolist() == words
