# SPDX-License-Identifier: Apache-2.0
"""beam_search_decode: the sentences that a beam search found, put together from its steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, ends_of, lod_of
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import owners
from paddle.ops.base.tensor_array import TensorArray

_INT64 = np.dtype("int64")


def _infer(ids: Spec, scores: Spec) -> tuple[Spec, Spec]:
    return Spec((-1, 1), _INT64, 2), Spec((-1, 1), scores.dtype, 2)


@operator(
    "beam_search_decode",
    "Ids+ Scores+ -> SentenceIds+ SentenceScores+",
    attrs={"beam_size": int, "end_id": int},
    infer=_infer,
)
def beam_search_decode(ids: TensorArray, scores: TensorArray, *, end_id: int) -> tuple[LoDArray, LoDArray]:
    """Return the ids and scores of all sentences, best first: source sentence -> hypotheses -> words.

    A source's hypotheses are what its beam holds at its last step; of several end_id one stays.
    """
    steps = [(_host(a), _host(b).data.reshape(-1)) for a, b in zip(ids.items, scores.items, strict=True)]
    if not steps:
        raise InputError("beam_search_decode: no step was written")
    sources = len(steps[0][0].lod[0]) - 1
    source, words, values, kept = _ways(steps, sources, end_id)
    final = np.array([values[column[0], way] for way, column in enumerate(map(np.flatnonzero, kept.T))])
    order = np.lexsort((-final, source)) if len(source) else np.zeros(0, _INT64)
    # Rows were collected from the last step to the first.
    chosen = kept[::-1, order].T
    lod = (ends_of(np.bincount(source, minlength=sources)), ends_of(chosen.sum(axis=1)))
    return (
        LoDArray(words[::-1, order].T[chosen][:, None], lod),
        LoDArray(values[::-1, order].T[chosen][:, None], lod),
    )


def _ways(
    steps: list[tuple[LoDArray, Array]], sources: int, end_id: int
) -> tuple[Array, Array, Array, Array]:
    """Follow all ways back at once.

    Returns:
        (source of each way, ids, scores, whether they count): the latter three (steps, ways), last step first.
    """
    at, source = np.zeros(0, _INT64), np.zeros(0, _INT64)
    started, has_words = np.zeros(sources, bool), np.zeros(0, bool)
    turns = []
    for ids, scores in reversed(steps):
        rows, prefix = ids.data.reshape(-1), owners(ids.lod[1])
        belongs = owners(ids.lod[0])[prefix]
        new = np.flatnonzero(~started[belongs])
        started[belongs] = True
        at, source = np.concatenate([at, new]), np.concatenate([source, belongs[new]])
        has_words = np.concatenate([has_words, np.zeros(len(new), bool)])
        counts = (rows[at] != end_id) | ~has_words
        has_words |= counts
        turns.append((rows[at], scores[at], counts))
        at = prefix[at]
    words, values, kept = (np.zeros((len(turns), len(source)), turns[0][part].dtype) for part in range(3))
    for turn, parts in enumerate(turns):
        for whole, part in zip((words, values, kept), parts, strict=True):
            whole[turn, : len(part)] = part
    return source, words, values, kept


def _host(value: Any) -> LoDArray:
    if len(lod_of(value)) != 2:
        raise InputError(
            "beam_search_decode: each step must have two levels of LoD, as beam_search gives them"
        )
    return LoDArray(to_host(value.data), value.lod)
