# SPDX-License-Identifier: Apache-2.0
"""The lattice of a linear chain CRF over many sequences, one step of all at once; rows in order of time.

Transition is (tags + 2, tags): row 0 scores the first tag, row 1 the last one, the others tag to tag.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.segments import at
from paddle.ops.base.time_steps import TimeSteps


def logsumexp(x: Array, axis: int) -> Array:
    """Return ln of the sum of e^x along an axis."""
    xp = array_module(x)
    top = x.max(axis=axis, keepdims=True)
    return xp.log(xp.exp(x - top).sum(axis=axis)) + top.squeeze(axis)


def last_rows(steps: TimeSteps) -> Array:
    """Return for each sequence that has rows, longest first, its last row in order of time."""
    counts = np.diff(steps.bounds)
    filled = int(counts[0]) if len(counts) else 0
    last = np.searchsorted(-counts, -np.arange(1, filled + 1), side="right") - 1
    return steps.bounds[last] + np.arange(filled)


def forward_scores(emission: Array, transition: Array, steps: TimeSteps) -> Array:
    """Return (rows, tags) ln of the weight of all ways that end in a tag at a row."""
    alpha = array_module(emission).empty_like(emission)
    before = None
    for rows in steps:
        count = rows.stop - rows.start
        into = transition[0] if before is None else logsumexp(before[:count, :, None] + transition[2:], 1)
        before = alpha[rows] = emission[rows] + into
    return alpha


def backward_scores(emission: Array, transition: Array, steps: TimeSteps) -> Array:
    """Return (rows, tags) ln of the weight of all ways from a tag at a row to the end, without that row's emission."""
    beta = array_module(emission).empty_like(emission)
    beta[at(last_rows(steps), beta)] = transition[1]
    listed = list(steps)
    for rows, after in zip(listed[-2::-1], listed[:0:-1], strict=True):
        count = after.stop - after.start
        onward = (emission[after] + beta[after])[:, None, :] + transition[2:]
        beta[rows.start : rows.start + count] = logsumexp(onward, 2)
    return beta
