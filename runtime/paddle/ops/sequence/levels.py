# SPDX-License-Identifier: Apache-2.0
"""sequence_join and sequence_windows: remove or add one level of sequences; the rows do not change."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.attributes import Limit
from paddle.ops.base.entries import joined
from paddle.ops.base.lod import LoDArray, ends_of, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import lengths, owners, positions


@operator("sequence_join", "X+ -> Out+", infer="X(...) -> X(..., lod=1)")
def sequence_join(x: Any) -> LoDArray:
    """Remove a level: return the outermost sequences of X, each with all of its rows."""
    data, _ = sequences(x, "X")
    return LoDArray(data, (joined(x.lod),))


@operator(
    "sequence_windows",
    "X+ -> Out+",
    attrs={"stride": Limit(int, least=1), "from_end": False},
    infer="X(...) -> X(..., lod=X + 1)",
)
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
