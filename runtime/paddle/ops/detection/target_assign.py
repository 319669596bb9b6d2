# SPDX-License-Identifier: Apache-2.0
"""target_assign: what each suggested box has to predict, by the object that it was matched to."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import sequences
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import owners

_FLOAT32 = np.dtype("float32")


def _infer(x: Spec, matched: Spec, negative: Spec | None) -> tuple[Spec, Spec]:
    if len(x.shape) != 3 or len(matched.shape) != 2:
        raise ShapeError(
            f"expected X (rows, P, K) and MatchIndices (N, P), got {x.shape} and {matched.shape}"
        )
    return Spec((*matched.shape, x.shape[2]), x.dtype), Spec((*matched.shape, 1), _FLOAT32)


@operator(
    "target_assign",
    "X+ MatchIndices NegIndices?+ -> Out OutWeight",
    attrs={"mismatch_value": 0},
    infer=_infer,
)
def target_assign(x: Any, matched: Array, negative: Any, *, mismatch_value: int) -> tuple[Array, Array]:
    """Return (N, P, K) targets and their weights (N, P, 1) float32.

    Args:
        x: (rows, P or 1, K), the objects of each image as a sequence.
        matched: (N, P) int32 the object of each box, counted in its image; -1: none, so that the target is
            mismatch_value and the weight 0.
        negative: (n, 1) boxes of each image, a sequence each, that get mismatch_value and weight 1.

    Raises:
        InputError: a box is matched to an object that its image lacks.
    """
    data, offsets = sequences(x, "X")
    values, indices = to_host(data), to_host(matched)
    if len(offsets) - 1 != len(indices):
        raise InputError(
            f"X has the objects of {len(offsets) - 1} images, MatchIndices has {len(indices)} rows"
        )
    images, places = np.nonzero(indices > -1)
    rows = offsets[images] + indices[images, places]
    if (rows >= offsets[images + 1]).any():
        raise InputError(f"MatchIndices names object {indices.max()}, an image of X has fewer")
    out = np.full((*indices.shape, values.shape[2]), mismatch_value, values.dtype)
    weight = np.zeros((*indices.shape, 1), _FLOAT32)
    out[images, places] = values[rows, places % values.shape[1]]
    weight[images, places] = 1
    if negative is not None:
        chosen, starts = sequences(negative, "NegIndices")
        at = owners(starts), to_host(chosen).reshape(-1)
        out[at], weight[at] = mismatch_value, 1
    return from_host(out, data), from_host(weight, data)
