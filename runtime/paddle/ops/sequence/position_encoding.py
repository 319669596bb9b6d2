# SPDX-License-Identifier: Apache-2.0
"""add_position_encoding: adds sines and cosines of a row's position in its sequence (Vaswani et al., 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray, lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import positions


def _infer(x: Spec) -> Spec:
    if len(x.shape) != (2 if x.lod_level else 3) or x.shape[-1] % 2:
        raise ShapeError(
            f"expected X (N, length, D) or sequences (rows, D) with even D, got {x.shape} of "
            f"lod_level {x.lod_level}"
        )
    return x


@operator("add_position_encoding", "X+ -> Out+", attrs={"alpha": 1.0, "beta": 1.0}, infer=_infer)
def add_position_encoding(x: Any, *, alpha: float, beta: float) -> Any:
    """Return Out = alpha X + beta P, with P[p, k] = sin(p/10000^(k/(D/2 - 1))) for k < D/2, then the cosines.

    X is (N, length, D), or sequences (rows, D).
    """
    data = plain(x)
    places = positions(x.lod[-1]) if isinstance(x, LoDArray) else np.arange(data.shape[1])
    half = data.shape[-1] // 2
    powers = np.arange(half) / (half - 1) if half > 1 else np.ones(half)
    angles = places[:, None] / 10000.0**powers
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(data.dtype)
    out = data * data.dtype.type(alpha) + from_host(table, data) * data.dtype.type(beta)
    return with_lod(out, lod_of(x))


@gradient("add_position_encoding", "Out@GRAD -> X@GRAD")
def add_position_encoding_grad(dout: Array, *, alpha: float) -> Array:
    """Return dX = alpha dOut."""
    return dout * dout.dtype.type(alpha)
