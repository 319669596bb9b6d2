# SPDX-License-Identifier: Apache-2.0
"""beam_search: the best continuations of each sentence, one step.

What it selects have two levels of LoD: sentence -> prefixes of the step before -> their continuations.
A prefix that has come to end_id stays as it is, with end_id and its score alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, Offsets, ends_of, lod_of, plain
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import owners, positions

_INT64 = np.dtype("int64")


def _infer_search(pre_ids: Spec, pre_scores: Spec, ids: Spec | None, scores: Spec) -> tuple[Spec, Spec, Spec]:
    return Spec((-1, 1), _INT64, 2), Spec((-1, 1), scores.dtype, 2), Spec((-1,), _INT64)


@operator(
    "beam_search",
    "pre_ids+ pre_scores ids? scores+ -> selected_ids+ selected_scores+ parent_idx~",
    attrs={"level": 0, "beam_size": int, "end_id": int, "is_accumulated": True},
    infer=_infer_search,
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
    """Return for each sentence the beam_size best (id, score), grouped by the prefix they continue, and that prefix.

    Args:
        pre_ids: (prefixes, 1) last ids.
        pre_scores: (prefixes, 1) their scores.
        ids: (prefixes, k) candidates; None: 0 to k - 1.
        scores: (prefixes, k) of the candidates: of the whole prefix, or, unless is_accumulated, their chance alone.
        level: of the scores' LoD that says which prefixes belong to a sentence.
        beam_size: how many continuations a sentence keeps.
        end_id: which ends a sentence.
        is_accumulated: see scores.
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
    best = best[_goes_on(last, ended, sentences, sentence[best], id_[best], prefix[best], end_id)]
    kept = best[np.lexsort((-score[best], prefix[best]))]
    per_prefix = ends_of(np.bincount(prefix[kept], minlength=len(last)))
    lod = (sentences, per_prefix)
    chosen = id_[kept].astype(_INT64)[:, None], score[kept].astype(values.dtype)[:, None]
    return LoDArray(chosen[0], lod), LoDArray(chosen[1], lod), prefix[kept].astype(_INT64)


def _candidates(
    ids: Array, scores: Array, ended: Array, before: Array, end_id: int
) -> tuple[Array, Array, Array]:
    """Return prefix, id and score of all candidates; a prefix that has ended has one, itself."""
    open_ = np.flatnonzero(~ended)
    done = np.flatnonzero(ended)
    prefix = np.concatenate([np.repeat(open_, ids.shape[1]), done])
    id_ = np.concatenate([ids[open_].reshape(-1), np.full(len(done), end_id)])
    return prefix, id_, np.concatenate([scores[open_].reshape(-1), before[done]])


def _goes_on(
    last: Array, ended: Array, sentences: Offsets, sentence: Array, ids: Array, prefix: Array, end_id: int
) -> Array:
    """Return which continuations stay: none of a sentence whose best are all prefixes that had ended before."""
    live = ~(ended[prefix] & (ids == end_id))
    goes_on = np.bincount(sentence, weights=live, minlength=len(sentences) - 1) > 0
    stays: Array = goes_on[sentence]
    return stays


def _sentences(lod: tuple[Offsets, ...], level: int, prefixes: int) -> Offsets:
    """Return the offsets of sentences over prefixes."""
    if len(lod) <= level:
        raise InputError(
            f"beam_search: scores have {len(lod)} levels of LoD, level {level} says the sentences"
        )
    found = lod[level]
    for deeper in lod[level + 1 :]:
        found = deeper[found]
    if found[-1] != prefixes:
        raise InputError(f"beam_search: the LoD says {found[-1]} prefixes, pre_ids has {prefixes}")
    return found
