# SPDX-License-Identifier: Apache-2.0
"""linear_chain_crf: the negative log likelihood of the tags of each sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, scatter_sum
from paddle.ops.base.shapes import agree
from paddle.ops.base.time_steps import TimeSteps
from paddle.ops.loss.crf_lattice import backward_scores, forward_scores, last_rows, logsumexp


def _infer(emission: Spec, transition: Spec, label: Spec) -> tuple[Spec, Spec, Spec, Spec]:
    tags = transition.shape[1]
    if transition.shape[0] != tags + 2 or len(emission.shape) != 2 or not agree(emission.shape[1], tags):
        raise ShapeError(
            f"expected Emission (rows, tags) and Transition (tags + 2, tags), got {emission.shape} and "
            f"{transition.shape}"
        )
    plain = emission._replace(lod_level=0)
    return plain, plain, transition, plain._replace(shape=(-1, 1))


@operator(
    "linear_chain_crf",
    "Emission+ Transition Label -> Alpha~ EmissionExps~ TransitionExps~ LogLikelihood+",
    infer=_infer,
)
def linear_chain_crf(
    emission: LoDArray, transition: Array, label: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the cost (sequences, 1) last: ln of the weight of all ways less the score of the labelled one.

    Alpha is ln of the forward weights, in order of time; a sequence without rows costs nothing.
    """
    data, offsets = sequences(emission, "Emission")
    steps, xp = TimeSteps.of(offsets), array_module(data)
    ordered, tags = steps.by_time(data), steps.by_time(_tags(label, data))
    alpha = forward_scores(ordered, transition, steps)
    ends = at(last_rows(steps), data)
    total = logsumexp(alpha[ends] + transition[1], 1)
    score = _scatter(ordered[xp.arange(len(tags)), tags] + _into(transition, tags, steps), steps)
    cost = xp.zeros((len(offsets) - 1, 1), data.dtype)
    cost[at(steps.order[: len(total)], data), 0] = total - score - transition[1][tags[ends]]
    return alpha, xp.exp(data), xp.exp(transition), cost


@gradient(
    "linear_chain_crf",
    "Emission+ Transition Label Alpha LogLikelihood@GRAD -> Emission@GRAD Transition@GRAD",
)
def linear_chain_crf_grad(
    emission: LoDArray, transition: Array, label: Array, alpha: Array, dcost: Array
) -> tuple[Array, Array]:
    """The expected number of times that a tag or a step from tag to tag is taken, less that of the labels."""
    data, offsets = sequences(emission, "Emission")
    steps, xp = TimeSteps.of(offsets), array_module(data)
    ordered, tags = steps.by_time(data), steps.by_time(_tags(label, data))
    beta = backward_scores(ordered, transition, steps)
    ends = last_rows(steps)
    owner = steps.order[_sequence(steps)]
    weight = dcost.reshape(-1)[at(owner, dcost)][:, None]
    total = logsumexp(alpha[at(ends, alpha)] + transition[1], 1)[at(_sequence(steps), alpha)][:, None]
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
    labelled = _counted(tags, weight[:, 0], steps, len(transition), transition.shape[1])
    taken[xp.arange(len(tags)), tags] -= weight[:, 0]
    return steps.by_sequence(taken), dtransition - labelled


def _tags(label: Array, emission: Array) -> Array:
    tags = label.reshape(-1)
    if len(tags) != len(emission):
        raise InputError(f"expected a label for each of {len(emission)} rows, got {len(tags)}")
    if len(tags) and (int(tags.min()) < 0 or int(tags.max()) >= emission.shape[1]):
        raise InputError(
            f"labels from {int(tags.min())} to {int(tags.max())} are not in [0, {emission.shape[1]})"
        )
    return tags


def _sequence(steps: TimeSteps) -> Any:
    """Return for each row in order of time which sequence it is of, counted longest first."""
    return np.arange(steps.bounds[-1]) - np.repeat(steps.bounds[:-1], np.diff(steps.bounds))


def _previous(steps: TimeSteps) -> Any:
    """Return for each row but those of the first step the row before it."""
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    number = _sequence(steps)[count:]
    return number + np.repeat(steps.bounds[:-2], np.diff(steps.bounds)[1:])


def _into(transition: Array, tags: Array, steps: TimeSteps) -> Array:
    """Return for each row the score of the step that leads to its label."""
    xp = array_module(transition)
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    return xp.concatenate(
        [transition[0][tags[:count]], transition[2:][tags[at(_previous(steps), tags)], tags[count:]]]
    )


def _scatter(values: Array, steps: TimeSteps) -> Array:
    """Return the sum of each sequence's values, longest first, for those that have rows."""
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    return scatter_sum(values, at(_sequence(steps), values), count)


def _counted(tags: Array, weight: Array, steps: TimeSteps, rows: int, width: int) -> Array:
    """Return how often the labels take each entry of Transition, weighed."""
    xp = array_module(tags)
    count = int(steps.bounds[1]) if len(steps.bounds) > 1 else 0
    ends = at(last_rows(steps), tags)
    inner = tags[at(_previous(steps), tags)]
    row = xp.concatenate([xp.zeros(count, np.int64), xp.ones(count, np.int64), inner + 2])
    column = xp.concatenate([tags[:count], tags[ends], tags[count:]])
    parts = xp.concatenate([weight[:count], weight[ends], weight[count:]])
    return scatter_sum(parts, row * width + column, rows * width).reshape(rows, width)
