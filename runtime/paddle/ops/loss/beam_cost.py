# SPDX-License-Identifier: Apache-2.0
"""cross_entropy_over_beam: the globally normalized cost of a beam search, over all paths that it followed.

Each expansion scores candidates and retains some of them, and each retained candidate has a row of candidates in the
next expansion. A path has one candidate per expansion, and its score is the sum of theirs. The cost is -ln of the
correct path's share in a softmax over all paths. If the correct candidate is not retained, the sample's search ends
with this expansion, and the correct path is added. Source: Andor et al., "Globally Normalized Transition-Based Neural
Networks", 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import Offsets, ends_of, lod_of, plain
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import scatter_sum, segment_max, segment_sum, spread
from paddle_node.contract.classes import NamedTuple


class Paths(NamedTuple):
    """The beam search paths of all samples.

    Attributes:
        offsets: (samples + 1,) offsets of the samples' paths.
        right: (samples,) row numbers of the correct paths.
        rows: expansion -> (row of Scores, path), one for each path that reached it.
    """

    offsets: Offsets
    right: Offsets
    rows: list[tuple[Offsets, Offsets]]


@operator("cross_entropy_over_beam", "Scores+* Kept* Right* -> Out", infer="-> Scores(-1, 1, lod=0)")
def cross_entropy_over_beam(scores: list[Any], kept: list[Array], right: list[Array]) -> Array:
    """Return the cost of each beam search (samples, 1): ln Σ e^score over its paths, minus the correct path's score.

    `Scores` of the first expansion are sequences, and those of later ones sequences of sequences, with one number per
    row; `Kept` (sequences of the last level, k) holds positions in them, -1 for none; `Right` (samples, 1) is a
    position in the sequence that the correct path has reached.

    Raises:
        InputError: levels or numbers of sequences do not match each other.
    """
    paths = _paths(scores, kept, right)
    total = _totals(scores, paths)
    shifted = total - spread(segment_max(total, paths.offsets, 0), paths.offsets)
    sums = segment_sum(np.exp(shifted), paths.offsets)
    cost = np.log(sums) - shifted[paths.right]
    return from_host(cost.astype(scores[0].dtype).reshape(-1, 1), plain(scores[0]))


@gradient("cross_entropy_over_beam", "Scores+* Kept* Right* Out@GRAD -> Scores@GRAD*")
def cross_entropy_over_beam_grad(
    scores: list[Any], kept: list[Array], right: list[Array], dout: Array
) -> list[Array]:
    """Return dScores: for each row, dOut times the sum of the shares of its paths (minus 1 if correct)."""
    paths = _paths(scores, kept, right)
    total = _totals(scores, paths)
    share = np.exp(total - spread(segment_max(total, paths.offsets, 0), paths.offsets))
    share /= spread(segment_sum(share, paths.offsets), paths.offsets)
    share[paths.right] -= 1
    share *= spread(to_host(dout).reshape(-1).astype(np.float64), paths.offsets)
    found = []
    for each, (rows, path) in zip(scores, paths.rows, strict=True):
        summed = scatter_sum(share[path], rows, len(each)).astype(each.dtype)
        found.append(from_host(summed.reshape(each.shape), plain(each)))
    return found


def _totals(scores: Sequence[Any], paths: Paths) -> Array:
    total = np.zeros(int(paths.offsets[-1]))
    for each, (rows, path) in zip(scores, paths.rows, strict=True):
        total[path] += to_host(plain(each)).reshape(-1)[rows]
    return total


def _paths(scores: Sequence[Any], kept: Sequence[Array], right: Sequence[Array]) -> Paths:
    tables = [to_host(each).astype(np.int64) for each in kept]
    golds = [to_host(each).reshape(-1).astype(np.int64) for each in right]
    _check(scores, tables, golds)
    samples = len(golds[0])
    found: list[list[list[int]]] = []  # sample -> path -> rows
    rights = []
    for sample in range(samples):
        trails, at = _of_sample(scores, tables, [int(gold[sample]) for gold in golds], sample)
        found.append(trails)
        rights.append(at)
    offsets = ends_of([len(trails) for trails in found])
    flat = [trail for trails in found for trail in trails]
    rows = []
    for step in range(len(scores)):
        path = np.array([number for number, trail in enumerate(flat) if len(trail) > step], np.int64)
        rows.append((np.array([flat[number][step] for number in path.tolist()], np.int64), path))
    return Paths(offsets, offsets[:-1] + np.array(rights, np.int64), rows)


def _of_sample(
    scores: Sequence[Any], tables: Sequence[Offsets], golds: Sequence[int], sample: int
) -> tuple[list[list[int]], int]:
    """Return the rows of each path, and the number of the correct path."""
    trails: list[list[int]] = [[]]
    at = 0  # the correct path's position among the trails
    for expansion, (each, table, gold) in enumerate(zip(scores, tables, golds, strict=True)):
        lod = lod_of(each)
        base = int(lod[0][sample]) if expansion else sample
        if expansion and int(lod[0][sample + 1]) - base != len(trails):
            raise InputError(
                f"sample {sample} selected {len(trails)} candidates in expansion {expansion - 1}, but "
                f"has {int(lod[0][sample + 1]) - base} sub-sequences of scores in expansion "
                f"{expansion}"
            )
        grown, places, here = [], [], trails[at]
        for number, trail in enumerate(trails):
            start, end = (int(value) for value in lod[-1][base + number : base + number + 2])
            chosen = [place for place in table[base + number].tolist() if place != -1]
            wrong = [
                place
                for place in [*chosen, *([gold] if number == at else [])]
                if not 0 <= place < end - start
            ]
            if wrong:
                raise InputError(
                    f"sample {sample}, expansion {expansion}: candidate {wrong[0]} is out of range for a "
                    f"sequence of {end - start} scores"
                )
            if number == at:
                here = [*trail, start + gold]
            grown += [[*trail, start + place] for place in chosen]
            places += [number == at and place == gold for place in chosen]
        if True not in places:
            return [*grown, here], len(grown)
        trails, at = grown, places.index(True)
    return trails, at


def _check(scores: Sequence[Any], tables: Sequence[Offsets], golds: Sequence[Offsets]) -> None:
    samples = len(golds[0])
    for number, (each, table, gold) in enumerate(zip(scores, tables, golds, strict=True)):
        levels, lod = 2 if number else 1, lod_of(each)
        if len(lod) != levels:
            raise InputError(
                f"scores of expansion {number} must have {levels} level(s) of sequences, got {len(lod)}"
            )
        if len(lod[0]) - 1 != samples or len(gold) != samples or len(table) != len(lod[-1]) - 1:
            raise InputError(
                f"expansion {number}: expected scores of {samples} samples and {len(table)} sequences (one per row of "
                f"selected candidates) and {samples} gold candidates, got {len(lod[0]) - 1}, {len(lod[-1]) - 1} and "
                f"{len(gold)}"
            )
        if plain(each).size != len(each):
            raise InputError(f"scores of expansion {number} must have one number per row, got {each.shape}")
