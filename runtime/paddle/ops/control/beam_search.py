# SPDX-License-Identifier: Apache-2.0
"""beam_search, one step of a beam search over sentences, and beam_search_decode, which assembles whole sentences.

The selection of a step has two levels of LoD: sentence -> prefixes of the previous step -> their continuations. A
prefix that has reached end_id is carried over unchanged: its only continuation is end_id with the same score.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, Offsets, TensorArray, ends_of, lod_of, plain
from paddle.ops.base.registry import operator
from paddle.ops.base.segments import owners, positions

_INT64, _INT32 = np.dtype("int64"), np.dtype("int32")


@operator(
    "beam_search",
    "pre_ids+ pre_scores ids? scores+ -> selected_ids+ selected_scores+ parent_idx~",
    attrs={"level": 0, "beam_size": int, "end_id": int, "is_accumulated": True},
    infer="-> int64(-1, 1, lod=2), scores(-1, 1, lod=2), int32(-1)",
)
def beam_search(
    pre_ids: Any,
    pre_scores: Array,
    ids: Array | None,
    scores: Any,
    *,
    level: int,
    beam_size: int,
    end_id: int,
    is_accumulated: bool,
) -> tuple[LoDArray, LoDArray, Array]:
    """Perform one step of beam search; return the best (id, score) pairs per sentence, by prefix, and their prefixes.

    Args:
        pre_ids: (prefixes, 1) last ids.
        pre_scores: (prefixes, 1) scores of the prefixes.
        ids: (prefixes, k) candidates; None means 0 to k - 1.
        scores: (prefixes, k) scores of the candidates: of the whole prefix if is_accumulated, otherwise the
            candidate's probability alone.
        level: the level of the scores' LoD that assigns prefixes to sentences.
        beam_size: the number of continuations to retain per sentence.
    """
    last, before = to_host(plain(pre_ids)).reshape(-1), to_host(pre_scores).reshape(-1)
    values = to_host(plain(scores)).reshape(len(last), -1)
    if not is_accumulated:
        values = before[:, None] + np.log(values)
    known = np.broadcast_to(np.arange(values.shape[1]), values.shape) if ids is None else to_host(ids)
    sentences = _sentences(lod_of(scores) or lod_of(pre_ids), level, len(last))
    ended = last == end_id
    prefix, id_, score = _candidates(known.reshape(values.shape), values, ended, before, end_id)
    sentence = owners(sentences)[prefix]
    best = np.lexsort((np.arange(len(prefix)), -score, sentence))
    counts = np.bincount(sentence, minlength=len(sentences) - 1)
    best = best[positions(ends_of(counts)) < beam_size]
    best = best[_remain(last, ended, sentences, sentence[best], id_[best], prefix[best], end_id)]
    kept = best[np.lexsort((-score[best], prefix[best]))]
    per_prefix = ends_of(np.bincount(prefix[kept], minlength=len(last)))
    lod = (sentences, per_prefix)
    chosen = id_[kept].astype(_INT64)[:, None], score[kept].astype(values.dtype)[:, None]
    return LoDArray(chosen[0], lod), LoDArray(chosen[1], lod), prefix[kept].astype(_INT32)


def _candidates(
    ids: Array, scores: Array, ended: Array, before: Array, end_id: int
) -> tuple[Array, Array, Array]:
    """Return prefix, id and score of all candidates; an ended prefix has one candidate, itself."""
    open_ = np.flatnonzero(~ended)
    done = np.flatnonzero(ended)
    prefix = np.concatenate([np.repeat(open_, ids.shape[1]), done])
    id_ = np.concatenate([ids[open_].reshape(-1), np.full(len(done), end_id)])
    return prefix, id_, np.concatenate([scores[open_].reshape(-1), before[done]])


def _remain(
    last: Array, ended: Array, sentences: Offsets, sentence: Array, ids: Array, prefix: Array, end_id: int
) -> Array:
    """Return a mask of the continuations to retain: none for a sentence whose best prefixes have all ended."""
    live = ~(ended[prefix] & (ids == end_id))
    goes_on = np.bincount(sentence, weights=live, minlength=len(sentences) - 1) > 0
    return goes_on[sentence]


def _sentences(lod: tuple[Offsets, ...], level: int, prefixes: int) -> Offsets:
    """Return the offsets of sentences, counted in prefixes."""
    if len(lod) <= level:
        raise InputError(f"beam_search: scores have {len(lod)} levels of LoD, but level {level} is requested")
    found = lod[level]
    for deeper in lod[level + 1 :]:
        found = deeper[found]
    if found[-1] != prefixes:
        raise InputError(f"beam_search: the LoD has {found[-1]} prefixes, but pre_ids has {prefixes}")
    return found


@operator(
    "beam_search_decode",
    "Ids+ Scores+ -> SentenceIds+ SentenceScores+",
    attrs={"beam_size": int, "end_id": int},
    infer="-> int64(-1, 1, lod=2), Scores(-1, 1, lod=2)",
)
def beam_search_decode(ids: TensorArray, scores: TensorArray, *, end_id: int) -> tuple[LoDArray, LoDArray]:
    """Return the ids and scores of all sentences, best first: source sentence -> hypotheses -> words.

    The hypotheses of a source are its beam after its last step; repeated end_ids are merged into one.
    """
    steps = [(_host(a), _host(b).data.reshape(-1)) for a, b in zip(ids.items, scores.items, strict=True)]
    if not steps:
        raise InputError(
            "beam_search_decode: the arrays are empty; write the ids and scores of at least one step"
        )
    sources = len(steps[0][0].lod[0]) - 1
    source, words, values, kept = _backtraced(steps, sources, end_id)
    final = np.array([values[column[0], way] for way, column in enumerate(map(np.flatnonzero, kept.T))])
    order = np.lexsort((-final, source)) if len(source) else np.zeros(0, _INT64)
    # Rows were collected from the last step to the first.
    chosen = kept[::-1, order].T
    lod = (ends_of(np.bincount(source, minlength=sources)), ends_of(chosen.sum(axis=1)))
    return (
        LoDArray(words[::-1, order].T[chosen][:, None], lod),
        LoDArray(values[::-1, order].T[chosen][:, None], lod),
    )


def _backtraced(
    steps: list[tuple[LoDArray, Array]], sources: int, end_id: int
) -> tuple[Array, Array, Array, Array]:
    """Trace all paths back in parallel.

    Returns:
        (source of each path, ids, scores, whether they count): the latter three (steps, paths), last step first.
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
            "beam_search_decode: each step must have two levels of LoD, as beam_search returns them"
        )
    return LoDArray(to_host(value.data), value.lod)
