# SPDX-License-Identifier: Apache-2.0
"""sequence_join, sequence_windows: remove or add one level of sequences; the rows do not change."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.entries import joined
from paddle.ops.base.errors import AttrError
from paddle.ops.base.lod import LoDArray, ends_of, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import lengths, owners, positions


def _infer_join(x: Spec) -> Spec:
    return x._replace(lod_level=1)


@operator("sequence_join", "X+ -> Out+", infer=_infer_join)
def sequence_join(x: Any) -> LoDArray:
    """Return the outermost sequences of X, each with all rows that it contains."""
    data, _ = sequences(x, "X")
    return LoDArray(data, (joined(x.lod),))


def _infer_windows(x: Spec, *, stride: int) -> Spec:
    if stride < 1:
        raise AttrError(f"stride: expected more than 0, got {stride}")
    return x._replace(lod_level=x.lod_level + 1)


@operator("sequence_windows", "X+ -> Out+", attrs={"stride": int, "from_end": False}, infer=_infer_windows)
def sequence_windows(x: Any, *, stride: int, from_end: bool) -> LoDArray:
    """Split sequences of X into sequences of `stride` rows; the last, or the first if from_end, may be shorter."""
    data, offsets = sequences(x, "X")
    counts = lengths(offsets)
    windows = -(-counts // stride)
    outer = ends_of(windows)
    sizes = np.full(int(outer[-1]), stride, np.int64)
    place = positions(outer)
    odd = place == (0 if from_end else (windows - 1)[owners(outer)])
    sizes[odd] = (counts - (windows - 1) * stride)[owners(outer)][odd]
    return LoDArray(data, (*x.lod[:-1], outer, ends_of(sizes)))


@gradient("sequence_join", "Out@GRAD -> X@GRAD")
def sequence_join_grad(dout: Array) -> Array:
    """Return dX = dOut."""
    return dout


@gradient("sequence_windows", "Out@GRAD -> X@GRAD")
def sequence_windows_grad(dout: Array) -> Array:
    """Return dX = dOut."""
    return dout
