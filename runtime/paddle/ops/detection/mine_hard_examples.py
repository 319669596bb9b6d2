# SPDX-License-Identifier: Apache-2.0
"""mine_hard_examples: the boxes without an object that cost most, so that they do not outnumber those with one."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError
from paddle.ops.base.lod import LoDArray, offsets_of
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.shapes import same

_INT32 = np.dtype("int32")


def _infer(
    cls_loss: Spec, loc_loss: Spec | None, matched: Spec, dist: Spec, *, attrs: dict[str, Any]
) -> tuple[Spec, Spec]:
    for spec in filter(None, (loc_loss, matched, dist)):
        same(cls_loss.shape, spec.shape, "losses, MatchIndices and MatchDist")
    kind = attrs["mining_type"]
    if kind == "max_negative":
        if not (attrs["neg_pos_ratio"] > 0 and 0 < attrs["neg_dist_threshold"] < 1):
            raise AttrError("max_negative needs neg_pos_ratio above 0 and neg_dist_threshold within (0, 1)")
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
    infer=_infer,
)
def mine_hard_examples(
    cls_loss: Array, loc_loss: Array | None, matched: Array, dist: Array, *, attrs: dict[str, Any]
) -> tuple[Any, Array]:
    """Return the chosen boxes without an object (n, 1) int32, a sequence for each image, and the matches.

    max_negative: of the boxes that match nothing and are below neg_dist_threshold those of the greatest loss, up to
    neg_pos_ratio for each matched one. hard_example: the sample_size boxes of the greatest sum of both losses;
    matches of the others become -1.

    Args:
        cls_loss: (N, P), as all others.
        matched: int32, -1 for none.
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
    below: Array = near < attrs["neg_dist_threshold"]
    return below
