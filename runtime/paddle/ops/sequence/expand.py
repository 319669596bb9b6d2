# SPDX-License-Identifier: Apache-2.0
"""sequence_expand and sequence_expand_as: sequences or rows of X, each repeated as often as Y says."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.errors import AttrError, InputError
from paddle.ops.base.lod import Lod, Offsets, ends_of, lod_of, plain, sequences, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, lengths, ranges, scatter_sum


def _infer(x: Spec, y: Spec) -> Spec:
    return Spec((-1, *x.shape[1:]), x.dtype, max(x.lod_level, y.lod_level, 1))


@operator("sequence_expand", "X+ Y+ -> Out+", attrs={"ref_level": -1}, infer=_infer)
def sequence_expand(x: Any, y: Any, *, ref_level: int) -> Any:
    """Repeat sequence i of X as often as entry i of Y's level `ref_level` is long; row i unless X has one level.

    Out has one level with an entry for each repetition; where rows are repeated, Out has Y's levels down to ref_level.
    """
    data = plain(x)
    rows, lod = _expansion(x, y, ref_level)
    return with_lod(data[at(rows, data)], lod)


@gradient("sequence_expand", "X+ Y+ Out@GRAD -> X@GRAD")
def sequence_expand_grad(x: Any, y: Any, dout: Array, *, ref_level: int) -> Array:
    """dX = sum over the repetitions."""
    rows, _ = _expansion(x, y, ref_level)
    return scatter_sum(dout, at(rows, dout), len(plain(x)))


@operator("sequence_expand_as", "X Y+ -> Out+", infer=_infer)
def sequence_expand_as(x: Array, y: Any) -> Any:
    """Repeat row i of X as often as sequence i of Y is long; Out has Y's LoD."""
    rows = _repeated(len(x), sequences(y, "Y")[1])
    return with_lod(x[at(rows, x)], lod_of(y))


@gradient("sequence_expand_as", "X Y+ Out@GRAD -> X@GRAD")
def sequence_expand_as_grad(x: Array, y: Any, dout: Array) -> Array:
    """dX = sum over the repetitions."""
    return scatter_sum(dout, at(_repeated(len(x), sequences(y, "Y")[1]), dout), len(x))


def _expansion(x: Any, y: Any, ref_level: int) -> tuple[Offsets, Lod]:
    """Return which rows of X make Out, and its LoD."""
    levels = lod_of(y)
    if not levels or not -1 <= ref_level < len(levels):
        raise AttrError(f"ref_level {ref_level} is not a level of Y, whose LoD has {len(levels)}")
    reference = levels[ref_level]
    # Two levels come along from the ids of a beam search, whose states are repeated row by row.
    if len(lod_of(x)) != 1:
        used = len(levels) if ref_level == -1 else ref_level + 1
        return _repeated(len(x), reference), levels[:used]
    offsets = lod_of(x)[0]
    chosen = _repeated(len(offsets) - 1, reference)
    counts = lengths(offsets)[chosen]
    return ranges(offsets[chosen], counts), (ends_of(counts),)


def _repeated(count: int, reference: Offsets) -> Offsets:
    if len(reference) - 1 != count:
        raise InputError(f"X has {count} entries to repeat, Y's level has {len(reference) - 1}")
    return np.repeat(np.arange(count), lengths(reference))
