# SPDX-License-Identifier: Apache-2.0
"""crf_decoding: the best tags of each sequence (Viterbi), or where they equal the labels."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import at
from paddle.ops.base.time_steps import TimeSteps
from paddle.ops.loss.crf_lattice import last_rows

_INT64 = np.dtype("int64")


def _infer(emission: Spec, transition: Spec, label: Spec | None) -> Spec:
    return Spec((emission.shape[0], 1), _INT64, max(emission.lod_level, 1))


@operator("crf_decoding", "Emission+ Transition Label? -> ViterbiPath+", infer=_infer)
def crf_decoding(emission: LoDArray, transition: Array, label: Array | None) -> LoDArray:
    """Return (rows, 1) int64 tags; with Label 1 where the tag is the label and 0 elsewhere."""
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
    """Return the tags in order of time, found from the last row of each sequence to its first."""
    path = array_module(best).zeros(len(best), _INT64)
    ends = at(last_rows(steps), path)
    path[ends] = (best[ends] + transition[1]).argmax(axis=1)
    listed = list(steps)
    for rows, after in zip(listed[-2::-1], listed[:0:-1], strict=True):
        count = after.stop - after.start
        tags = came_from[after][array_module(path).arange(count), path[after]]
        path[rows.start : rows.start + count] = tags
    return path
