# SPDX-License-Identifier: Apache-2.0
"""Operators that match candidate boxes to the objects of an image.

bipartite_match finds the matches. target_assign gives each candidate box the targets of its object.
mine_hard_examples selects the unmatched boxes with the highest loss (hard negative mining).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import AttrError, InputError
from paddle.ops.base.lod import LoDArray, offsets_of, plain, sequences
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import owners
from paddle.ops.base.shapes import same
from paddle.ops.detection.boxes import host, images_of

_INT32, _FLOAT32 = np.dtype("int32"), np.dtype("float32")
_LEAST = 1e-6  # a row and a column with a smaller value are never paired


def _infer(distances: Spec) -> tuple[Spec, Spec]:
    shape = (-1 if distances.lod_level else 1, distances.shape[1])
    return Spec(shape, _INT32), Spec(shape, distances.dtype)


@operator(
    "bipartite_match",
    "DistMat+ -> ColToRowMatchIndices ColToRowMatchDist",
    attrs={"match_type": one_of("bipartite", "per_prediction")},
    infer=_infer,
)
def bipartite_match(distances: Any, *, match_type: str, dist_threshold: float = 0.5) -> tuple[Array, Array]:
    """Match rows to columns; return the row of each column, (images, M) int32, -1 if unmatched, and the pairs' values.

    Args:
        distances: (rows, M), one sequence per image; without LoD there is one image. Larger means closer.
        match_type: bipartite: each row gets one column at most; per_prediction: in addition, each unmatched column gets
            its best row, if the value is at least dist_threshold.
    """
    values = host(distances)
    offsets = images_of(distances, len(values))
    indices = np.full((len(offsets) - 1, values.shape[1]), -1, _INT32)
    found = np.zeros(indices.shape, values.dtype)
    for number, (start, end) in enumerate(itertools.pairwise(offsets)):
        match(values[start:end], indices[number], found[number])
        if match_type == "per_prediction":
            match_rest(values[start:end], indices[number], found[number], dist_threshold)
    return from_host(indices, plain(distances)), from_host(found, plain(distances))


def match(values: Array, indices: Array, found: Array) -> None:
    """Match the pair with the largest value, then repeat with the remaining rows and columns, in place."""
    # Columns first: among equal values, the first column wins, and within it the first row.
    rest = values.T.copy()
    for _ in range(min(values.shape)):
        column, row = np.unravel_index(rest.argmax(), rest.shape)
        if not rest[column, row] >= _LEAST:
            break
        indices[column], found[column] = row, values[row, column]
        rest[column] = rest[:, row] = -1


def match_rest(values: Array, indices: Array, found: Array, threshold: float) -> None:
    """Match each unmatched column to its best row, if the value is at least the threshold, in place."""
    if len(values):
        rows = values.argmax(axis=0)
        best = values[rows, np.arange(len(rows))]
        chosen = (indices == -1) & (best >= max(threshold, _LEAST))
        indices[chosen], found[chosen] = rows[chosen], best[chosen]


@operator(
    "target_assign",
    "X+ MatchIndices NegIndices?+ -> Out OutWeight",
    infer="X(_, _, K), MatchIndices(N, P) -> X(N, P, K, lod=0), float32(N, P, 1)",
)
def target_assign(x: Any, matched: Array, negative: Any, *, mismatch_value: int = 0) -> tuple[Array, Array]:
    """Assign targets to candidate boxes; return the targets (N, P, K) and their weights (N, P, 1) float32.

    Args:
        x: (rows, P or 1, K), the objects of each image as a sequence.
        matched: (N, P) int32, the object of each box, numbered within its image; -1 means no object, so that the target
            is mismatch_value and the weight 0.
        negative: (n, 1) boxes that get mismatch_value and weight 1, one sequence per image.

    Raises:
        InputError: a box is matched to an object that its image does not have.
    """
    data, offsets = sequences(x, "X")
    values, indices = to_host(data), to_host(matched)
    if len(offsets) - 1 != len(indices):
        raise InputError(
            f"X has the objects of {len(offsets) - 1} images, but MatchIndices has {len(indices)} rows"
        )
    images, places = np.nonzero(indices > -1)
    rows = offsets[images] + indices[images, places]
    if (rows >= offsets[images + 1]).any():
        raise InputError(
            f"MatchIndices refers to object {indices.max()}, but an image of X has fewer objects"
        )
    out = np.full((*indices.shape, values.shape[2]), mismatch_value, values.dtype)
    weight = np.zeros((*indices.shape, 1), _FLOAT32)
    out[images, places] = values[rows, places % values.shape[1]]
    weight[images, places] = 1
    if negative is not None:
        chosen, starts = sequences(negative, "NegIndices")
        at = owners(starts), to_host(chosen).reshape(-1)
        out[at], weight[at] = mismatch_value, 1
    return from_host(out, data), from_host(weight, data)


def _infer_mined(
    cls_loss: Spec, loc_loss: Spec | None, matched: Spec, dist: Spec, *, attrs: dict[str, Any]
) -> tuple[Spec, Spec]:
    for spec in filter(None, (loc_loss, matched, dist)):
        same(cls_loss.shape, spec.shape, "losses, MatchIndices and MatchDist")
    kind = attrs["mining_type"]
    if kind == "max_negative":
        if not (attrs["neg_pos_ratio"] > 0 and 0 < attrs["neg_dist_threshold"] < 1):
            raise AttrError(
                "max_negative needs neg_pos_ratio above 0 and neg_dist_threshold between 0 and 1, "
                f"got {attrs['neg_pos_ratio']} and {attrs['neg_dist_threshold']}"
            )
    elif kind != "hard_example":
        raise AttrError(f"mining_type: expected 'max_negative' or 'hard_example', got {kind!r}")
    elif attrs["sample_size"] <= 0:
        raise AttrError(f"hard_example needs sample_size above 0, got {attrs['sample_size']}")
    return Spec((-1, 1), _INT32, 1), matched


@operator(
    "mine_hard_examples",
    "ClsLoss LocLoss? MatchIndices MatchDist -> NegIndices+ UpdatedMatchIndices",
    attrs={
        "neg_pos_ratio": 1.0,
        "neg_dist_threshold": 0.5,
        "sample_size": 0,
        "mining_type": "max_negative",
    },
    infer=_infer_mined,
)
def mine_hard_examples(
    cls_loss: Array, loc_loss: Array | None, matched: Array, dist: Array, *, attrs: dict[str, Any]
) -> tuple[Any, Array]:
    """Select negatives by hard example mining; return the boxes (n, 1) int32, one sequence per image, and the matches.

    max_negative: among unmatched boxes below neg_dist_threshold, those with the largest loss, up to neg_pos_ratio per
    matched box. hard_example: the sample_size boxes with the largest sum of both losses; the matches of all other boxes
    become -1.

    Args:
        cls_loss: (N, P), as are all other inputs.
        matched: int32, -1 for unmatched boxes.
    """
    indices, near, loss = to_host(matched), to_host(dist), to_host(cls_loss)
    is_hard = attrs["mining_type"] == "hard_example"
    if is_hard and loc_loss is not None:
        loss = loss + to_host(loc_loss)
    updated = indices.copy()
    chosen = []
    for number, row in enumerate(indices):
        free = row == -1
        eligible = np.arange(len(row)) if is_hard else np.flatnonzero(free & _below(near[number], attrs))
        limit = attrs["sample_size"] if is_hard else int((~free).sum() * attrs["neg_pos_ratio"])
        order = np.argsort(-loss[number, eligible], kind="stable")[:limit]
        picked = np.zeros(len(row), bool)
        picked[eligible[order]] = True
        updated[number, (row > -1) & ~picked & is_hard] = -1
        chosen.append(np.flatnonzero(picked & ~(row > -1)))
    rows = np.concatenate([np.zeros(0, int), *chosen]).astype(_INT32)[:, None]
    lod = offsets_of([[len(each) for each in chosen]])
    return LoDArray(from_host(rows, cls_loss), lod), from_host(updated, cls_loss)


def _below(near: Array, attrs: dict[str, Any]) -> Array:
    return near < attrs["neg_dist_threshold"]
