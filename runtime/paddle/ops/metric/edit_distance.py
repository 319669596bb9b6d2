# SPDX-License-Identifier: Apache-2.0
"""edit_distance: the Levenshtein distance between pairs of sequences (insertions, deletions, substitutions)."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import sequences
from paddle.ops.base.registry import operator
from paddle.ops.base.segments import lengths, owners, positions

_INT64, _FLOAT32 = np.dtype("int64"), np.dtype("float32")


@operator("edit_distance", "Hyps+ Refs+ -> Out SequenceNum", infer="-> float32(-1, 1), int64(1)")
def edit_distance(hyps: Any, refs: Any, *, normalized: bool = False) -> tuple[Array, Array]:
    """Return the edit distance of each pair, (pairs, 1) float32, and the number of pairs.

    `normalized` divides by Refs' length.

    Raises:
        InputError: the numbers of hypotheses and references differ, or a reference is empty and normalized is set.
    """
    left, hyp_offsets = sequences(hyps, "Hyps")
    right, ref_offsets = sequences(refs, "Refs")
    if len(hyp_offsets) != len(ref_offsets):
        raise InputError(f"Hyps has {len(hyp_offsets) - 1} sequences, but Refs has {len(ref_offsets) - 1}")
    m, n = lengths(hyp_offsets), lengths(ref_offsets)
    if normalized and (n == 0).any():
        raise InputError(
            f"sequence {int((n == 0).argmax())} of Refs is empty, so a distance divided by its length is undefined: "
            "use normalized=False"
        )
    distance = _distances(_box(left, hyp_offsets, -1), _box(right, ref_offsets, -2), m, n)
    out = distance / n if normalized else distance
    return out.astype(_FLOAT32)[:, None], np.array([len(m)], _INT64)


def _distances(left: Array, right: Array, m: Array, n: Array) -> Array:
    """Return the distances of all pairs, computed together row by row of their tables."""
    pairs, columns = len(m), np.arange(right.shape[1] + 1)
    row = np.broadcast_to(columns, (pairs, len(columns))).copy()
    found = np.where(m == 0, n, 0)
    for step in range(left.shape[1]):
        change = row[:, :-1] + (left[:, step, None] != right)
        cost = np.concatenate([row[:, :1] + 1, np.minimum(row[:, 1:] + 1, change)], axis=1)
        # Each insertion adds 1 per column: take the running minimum of the costs minus the column numbers.
        row = np.minimum.accumulate(cost - columns, axis=1) + columns
        found = np.where(m == step + 1, row[np.arange(pairs), n], found)
    return found


def _box(data: Array, offsets: Array, fill: int) -> Array:
    box = np.full((len(offsets) - 1, int(lengths(offsets).max(initial=0))), fill, _INT64)
    box[owners(offsets), positions(offsets)] = to_host(data).reshape(-1)
    return box
