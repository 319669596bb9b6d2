# SPDX-License-Identifier: Apache-2.0
"""sequence_concat: sequence i of Out is sequence i of each input, one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, Offsets, ends_of, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, lengths, ranges
from paddle.ops.base.shapes import same


def _infer(x: list[Spec]) -> Spec:
    for spec in x[1:]:
        same(x[0].shape[1:], spec.shape[1:], "inputs, but for the rows,")
    return Spec((-1, *x[0].shape[1:]), x[0].dtype, max(x[0].lod_level, 1))


@operator("sequence_concat", "X+* -> Out+", infer=_infer)
def sequence_concat(x: list[Any]) -> LoDArray:
    """Join the inputs' sequences; all inputs have as many."""
    rows, offsets = _joined(x)
    stacked = array_module(x[0].data).concatenate([each.data for each in x])
    return LoDArray(stacked[at(rows, stacked)], (*x[0].lod[:-1], offsets))


@gradient("sequence_concat", "X+* Out@GRAD -> X@GRAD*")
def sequence_concat_grad(x: list[Any], dout: Array) -> list[Array]:
    """Give each input its rows' gradients back."""
    rows, _ = _joined(x)
    stacked = array_module(dout).empty_like(dout)
    stacked[at(rows, dout)] = dout
    ends = np.cumsum([len(each) for each in x])
    return [stacked[end - len(each) : end] for end, each in zip(ends, x, strict=True)]


def _joined(x: list[Any]) -> tuple[Offsets, Offsets]:
    """Return which rows of the stacked inputs make Out, and Out's offsets."""
    levels = [sequences(each, "X")[1] for each in x]
    if len({len(level) for level in levels}) != 1:
        raise InputError(
            f"inputs must have equally many sequences, got {[len(level) - 1 for level in levels]}"
        )
    bases = np.cumsum([0, *(len(each) for each in x[:-1])])
    starts = np.stack([level[:-1] + base for level, base in zip(levels, bases, strict=True)], axis=1)
    counts = np.stack([lengths(level) for level in levels], axis=1)
    return ranges(starts.reshape(-1), counts.reshape(-1)), ends_of(counts.sum(axis=1))
