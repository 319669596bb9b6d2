# SPDX-License-Identifier: Apache-2.0
"""The costs of labels without places and of tags, against sums over all ways."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(17)


def _all_alignments(chances: Any, labels: list[int], blank: int) -> float:
    """The chance of labels: the sum over all ways to write them with repetitions and blanks."""
    total = 0.0
    for way in product(range(chances.shape[1]), repeat=len(chances)):
        merged = [each for at, each in enumerate(way) if at == 0 or each != way[at - 1]]
        if [each for each in merged if each != blank] == labels:
            total += np.prod([chances[at, each] for at, each in enumerate(way)])
    return total


def test_the_cost_of_unplaced_labels_is_that_of_all_their_places() -> None:
    logits, labels = _RNG.standard_normal((16, 3)), [[1, 1], [], [2, 1], [1, 2, 1, 2], [2, 2, 2], [1, 2], [1]]
    lengths = [4, 2, 3, 1, 4, 2, 0]
    flat = np.array([each for some in labels for each in some])[:, None]
    found, loss = run_op(
        "warpctc",
        {
            "Logits": LoDArray(logits, offsets_of([lengths])),
            "Label": LoDArray(flat, offsets_of([[len(some) for some in labels]])),
        },
    )
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    ends = np.cumsum(lengths)
    for row, (end, some) in enumerate(zip(ends, labels, strict=True)):
        chance = _all_alignments(chances[end - lengths[row] : end], some, 0)
        assert loss[row, 0] == pytest.approx(-np.log(chance) if chance else 0)
    assert not found[9].any(), "four labels do not fit one step: nothing to learn from"
    assert not found[10:14].any(), "three equal labels need five steps"
    assert found[14:].any(axis=1).all()


def test_the_best_path_loses_repetitions_and_blanks() -> None:
    path = LoDArray(np.array([1, 1, 0, 1, 2, 0, 0, 3])[:, None], offsets_of([[5, 2, 1]]))
    (out,) = run_op("ctc_align", {"Input": path}, {"blank": 0})
    assert out.data[:, 0].tolist() == [1, 1, 2, 3]
    assert out.lengths() == [[3, 0, 1]]


def _score(emission: Any, transition: Any, tags: Any) -> float:
    steps = sum(transition[2 + a, b] for a, b in pairwise(tags))
    return float(
        transition[0, tags[0]] + transition[1, tags[-1]] + emission[range(len(tags)), tags].sum() + steps
    )


def _best(emission: Any, transition: Any) -> tuple[int, ...]:
    ways = product(range(3), repeat=len(emission))
    return max(ways, key=lambda tags: _score(emission, transition, tags))


def _lattice() -> tuple[LoDArray, Any, list[Any]]:
    emission = LoDArray(_RNG.standard_normal((6, 3)), offsets_of([[2, 0, 3, 1]]))
    rows = [emission.data[a:b] for a, b in pairwise(emission.lod[0])]
    return emission, _RNG.standard_normal((5, 3)), rows


def test_a_crf_costs_the_negative_log_of_the_labels_share() -> None:
    emission, transition, rows = _lattice()
    labels = _RNG.integers(0, 3, (6, 1))
    *_, cost = run_op("linear_chain_crf", {"Emission": emission, "Transition": transition, "Label": labels})
    offsets = emission.lod[0]
    for number, each in enumerate(rows):
        if not len(each):
            assert cost[number, 0] == 0
            continue
        own = _score(each, transition, labels[offsets[number] : offsets[number + 1], 0])
        every = [_score(each, transition, tags) for tags in product(range(3), repeat=len(each))]
        np.testing.assert_allclose(cost[number, 0], np.log(np.exp(every).sum()) - own)


def test_decoding_finds_the_best_of_all_ways() -> None:
    emission, transition, rows = _lattice()
    (path,) = run_op("crf_decoding", {"Emission": emission, "Transition": transition})
    best: list[int] = []
    for each in rows:
        if len(each):
            best += _best(each, transition)
    assert path.data[:, 0].tolist() == best
    label = path.data.copy()
    label[2] = (label[2] + 1) % 3
    (right,) = run_op("crf_decoding", {"Emission": emission, "Transition": transition, "Label": label})
    assert right.data[:, 0].tolist() == [1, 1, 0, 1, 1, 1]


def test_a_label_that_is_no_tag_is_refused() -> None:
    emission, transition, _ = _lattice()
    inputs = {"Emission": emission, "Transition": transition, "Label": np.full((6, 1), 3)}
    with pytest.raises(ExecutionError, match=r"not in \[0, 3\)"):
        run_op("linear_chain_crf", inputs)
