# SPDX-License-Identifier: Apache-2.0
"""linear_chain_crf: the negative log-likelihood of each sequence's tags; crf_decoding: the most likely tags (Viterbi).

Transition is (tags + 2, tags): row 0 scores the first tag, row 1 the last one, and the other rows score transitions
between tags. All sequences are processed together, one step at a time, with rows in time order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import TimeSteps, at, require_within, scatter_sum

_INT64 = np.dtype("int64")


@operator(
    "linear_chain_crf",
    "Emission+ Transition Label -> Alpha~ EmissionExps~ TransitionExps~ LogLikelihood+",
    infer=(
        "Emission(N, T), Transition(T + 2, T) -> Emission(N, T, lod=0), Emission(N, T, lod=0), "
        "Transition, Emission(-1, 1, lod=0)"
    ),
)
def linear_chain_crf(
    emission: LoDArray, transition: Array, label: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the CRF cost (sequences, 1), ln of all paths' weight minus the labeled path's score, as the last output.

    Alpha is ln of the forward weights, in time order; the cost of an empty sequence is zero.
    """
    data, offsets = sequences(emission, "Emission")
    steps, xp = TimeSteps.of(offsets), array_module(data)
    ordered, tags = steps.by_time(data), steps.by_time(_tags(label, data))
    alpha = _forward_scores(ordered, transition, steps)
    ends = at(_last_rows(steps), data)
    total = _logsumexp(alpha[ends] + transition[1], 1)
    score = _scatter(ordered[xp.arange(len(tags)), tags] + _into(transition, tags, steps), steps)
    cost = xp.zeros((len(offsets) - 1, 1), data.dtype)
    cost[at(steps.order[: len(total)], data), 0] = total - score - transition[1][tags[ends]]
    return alpha, xp.exp(data), xp.exp(transition), cost


@gradient(
    "linear_chain_crf", "Emission+ Transition Label Alpha LogLikelihood@GRAD -> Emission@GRAD Transition@GRAD"
)
def linear_chain_crf_grad(
    emission: LoDArray, transition: Array, label: Array, alpha: Array, dcost: Array
) -> tuple[Array, Array]:
    """Return the gradients: expected minus labeled counts of tags and transitions, weighted by dCost."""
    data, offsets = sequences(emission, "Emission")
    steps, xp = TimeSteps.of(offsets), array_module(data)
    ordered, tags = steps.by_time(data), steps.by_time(_tags(label, data))
    beta = _backward_scores(ordered, transition, steps)
    ends = _last_rows(steps)
    owner = steps.order[_sequence(steps)]
    weight = dcost.reshape(-1)[at(owner, dcost)][:, None]
    total = _logsumexp(alpha[at(ends, alpha)] + transition[1], 1)[at(_sequence(steps), alpha)][:, None]
    taken = weight * xp.exp(alpha + beta - total)
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    dtransition = xp.zeros_like(transition)
    dtransition[0] = taken[:count].sum(axis=0)
    dtransition[1] = taken[at(ends, taken)].sum(axis=0)
    previous = _previous(steps)
    if len(previous):
        here = slice(count, None)
        way = (
            (ordered[here] + beta[here])[:, None, :] + alpha[at(previous, alpha)][:, :, None] + transition[2:]
        )
        dtransition[2:] = (weight[here, :, None] * xp.exp(way - total[here, :, None])).sum(axis=0)
    labeled = _counted(tags, weight[:, 0], steps, len(transition), transition.shape[1])
    taken[xp.arange(len(tags)), tags] -= weight[:, 0]
    return steps.by_sequence(taken), dtransition - labeled


def _tags(label: Array, emission: Array) -> Array:
    tags = label.reshape(-1)
    if len(tags) != len(emission):
        raise InputError(f"expected one label for each of {len(emission)} rows, got {len(tags)}")
    require_within(label, emission.shape[1], "Label")
    return tags


def _sequence(steps: TimeSteps) -> Any:
    """Return the sequence of each row in time order, numbered longest first."""
    return np.arange(steps.bounds[-1]) - np.repeat(steps.bounds[:-1], np.diff(steps.bounds))


def _previous(steps: TimeSteps) -> Any:
    """Return the predecessor of each row except those of the first step."""
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    number = _sequence(steps)[count:]
    return number + np.repeat(steps.bounds[:-2], np.diff(steps.bounds)[1:])


def _into(transition: Array, tags: Array, steps: TimeSteps) -> Array:
    """Return, for each row, the score of the transition to its label."""
    xp = array_module(transition)
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    return xp.concatenate(
        [transition[0][tags[:count]], transition[2:][tags[at(_previous(steps), tags)], tags[count:]]]
    )


def _scatter(values: Array, steps: TimeSteps) -> Array:
    """Return the sum of each sequence's values, longest first, for the nonempty sequences."""
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    return scatter_sum(values, at(_sequence(steps), values), count)


def _counted(tags: Array, weight: Array, steps: TimeSteps, rows: int, width: int) -> Array:
    """Return the weighted number of times that the labels use each entry of Transition."""
    xp = array_module(tags)
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    ends = at(_last_rows(steps), tags)
    inner = tags[at(_previous(steps), tags)]
    row = xp.concatenate([xp.zeros(count, np.int64), xp.ones(count, np.int64), inner + 2])
    column = xp.concatenate([tags[:count], tags[ends], tags[count:]])
    parts = xp.concatenate([weight[:count], weight[ends], weight[count:]])
    return scatter_sum(parts, row * width + column, rows * width).reshape(rows, width)


@operator(
    "crf_decoding",
    "Emission+ Transition Label? -> ViterbiPath+",
    infer="Emission(N, _) -> int64(N, 1, lod=max(Emission, 1))",
)
def crf_decoding(emission: LoDArray, transition: Array, label: Array | None) -> LoDArray:
    """Return the most likely tags (rows, 1) int64; with Label, 1 where the tag equals the label and 0 elsewhere."""
    data, offsets = sequences(emission, "Emission")
    xp, steps = array_module(data), TimeSteps.of(offsets)
    ordered = steps.by_time(data)
    came_from, best = xp.zeros(ordered.shape, _INT64), xp.empty_like(ordered)
    before = None
    for rows in steps:
        if before is None:
            before = best[rows] = ordered[rows] + transition[0]
            continue
        ways = before[: rows.stop - rows.start, :, None] + transition[2:]
        came_from[rows] = ways.argmax(axis=1)
        before = best[rows] = ordered[rows] + ways.max(axis=1)
    path = steps.by_sequence(_followed(best, came_from, transition, steps))[:, None]
    return LoDArray(path if label is None else (path == label.reshape(-1, 1)).astype(_INT64), emission.lod)


def _followed(best: Array, came_from: Array, transition: Array, steps: TimeSteps) -> Array:
    """Return the tags in time order, traced from the last row of each sequence to its first."""
    path = array_module(best).zeros(len(best), _INT64)
    ends = at(_last_rows(steps), path)
    path[ends] = (best[ends] + transition[1]).argmax(axis=1)
    listed = list(steps)
    for rows, after in zip(listed[-2::-1], listed[:0:-1], strict=True):
        count = after.stop - after.start
        tags = came_from[after][array_module(path).arange(count), path[after]]
        path[rows.start : rows.start + count] = tags
    return path


def _logsumexp(x: Array, axis: int) -> Array:
    """Return ln of the sum of e^x along an axis."""
    xp = array_module(x)
    top = x.max(axis=axis, keepdims=True)
    return xp.log(xp.exp(x - top).sum(axis=axis)) + top.squeeze(axis)


def _last_rows(steps: TimeSteps) -> Array:
    """Return the last row, in time order, of each nonempty sequence, longest first."""
    counts = np.diff(steps.bounds)
    filled = int(counts[0]) if len(counts) else 0
    last = np.searchsorted(-counts, -np.arange(1, filled + 1), side="right") - 1
    return steps.bounds[last] + np.arange(filled)


def _forward_scores(emission: Array, transition: Array, steps: TimeSteps) -> Array:
    """Return the logarithm (rows, tags) of the total weight of all paths that end in a tag at a row."""
    alpha = array_module(emission).empty_like(emission)
    before = None
    for rows in steps:
        count = rows.stop - rows.start
        into = transition[0] if before is None else _logsumexp(before[:count, :, None] + transition[2:], 1)
        before = alpha[rows] = emission[rows] + into
    return alpha


def _backward_scores(emission: Array, transition: Array, steps: TimeSteps) -> Array:
    """Return the logarithm (rows, tags) of the weight of all paths after a row and its tag."""
    beta = array_module(emission).empty_like(emission)
    beta[at(_last_rows(steps), beta)] = transition[1]
    listed = list(steps)
    for rows, after in zip(listed[-2::-1], listed[:0:-1], strict=True):
        count = after.stop - after.start
        onward = (emission[after] + beta[after])[:, None, :] + transition[2:]
        beta[rows.start : rows.start + count] = _logsumexp(onward, 2)
    return beta
