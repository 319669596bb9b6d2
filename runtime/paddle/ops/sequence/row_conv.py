# SPDX-License-Identifier: Apache-2.0
"""row_conv: each row mixed with those that follow it in its sequence, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.lod import LoDArray, Offsets, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, lengths, positions
from paddle.ops.base.shapes import same


def _infer(x: Spec, filters: Spec) -> Spec:
    same(x.shape[1:], filters.shape[1:], "X and Filter, but for the rows,")
    return x


@operator("row_conv", "X+ Filter -> Out+", infer=_infer)
def row_conv(x: Any, filters: Array) -> LoDArray:
    """Out[t] = sum over j of Filter[j] X[t + j], as far as the sequence goes."""
    data, offsets = sequences(x, "X")
    out = array_module(data).zeros_like(data)
    for ahead, (here, there) in enumerate(_pairs(offsets, len(filters), data)):
        out[here] += filters[ahead] * data[there]
    return LoDArray(out, x.lod)


@gradient("row_conv", "X+ Filter Out@GRAD -> X@GRAD Filter@GRAD")
def row_conv_grad(x: Any, filters: Array, dout: Array) -> tuple[Array, Array]:
    """dX[t + j] = sum of Filter[j] dOut[t]; dFilter[j] = sum of X[t + j] dOut[t]."""
    data, offsets = sequences(x, "X")
    xp = array_module(data)
    dx, dfilters = xp.zeros_like(data), xp.zeros_like(filters)
    for ahead, (here, there) in enumerate(_pairs(offsets, len(filters), data)):
        dx[there] += filters[ahead] * dout[here]
        dfilters[ahead] = (data[there] * dout[here]).sum(axis=0)
    return dx, dfilters


def _pairs(offsets: Offsets, width: int, like: Array) -> list[tuple[Array, Array]]:
    """Return for each j which rows have one j rows further on in their sequence, and which that is."""
    left = np.repeat(lengths(offsets), lengths(offsets)) - positions(offsets)
    rows = [np.flatnonzero(left > ahead) for ahead in range(width)]
    return [(at(here, like), at(here + ahead, like)) for ahead, here in enumerate(rows)]
