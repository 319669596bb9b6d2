# SPDX-License-Identifier: Apache-2.0
"""sequence_reshape and lod_reset: the same numbers as other rows, the same rows as other sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, to_host
from paddle.ops.base.errors import AttrError, InputError
from paddle.ops.base.lod import LoDArray, lod_of, plain, sequences
from paddle.ops.base.registry import Spec, gradient, operator


def _infer_reshape(x: Spec, *, new_dim: int) -> Spec:
    if new_dim < 1:
        raise AttrError(f"new_dim: expected more than 0, got {new_dim}")
    return Spec((-1, new_dim), x.dtype, max(x.lod_level, 1))


@operator("sequence_reshape", "X+ -> Out+", attrs={"new_dim": int}, infer=_infer_reshape)
def sequence_reshape(x: Any, *, new_dim: int) -> LoDArray:
    """Rows of new_dim numbers; each sequence keeps its numbers and so gets more or fewer rows.

    Raises:
        InputError: the numbers of a sequence are no whole number of rows.
    """
    data, offsets = sequences(x, "X")
    moved = offsets * data.shape[1]
    if (moved % new_dim).any():
        raise InputError(f"sequences of rows of {data.shape[1]} numbers are not all whole rows of {new_dim}")
    return LoDArray(data.reshape(-1, new_dim), (*x.lod[:-1], moved // new_dim))


@gradient("sequence_reshape", "X Out@GRAD -> X@GRAD")
def sequence_reshape_grad(x: Array, dout: Array) -> Array:
    """The gradients as X's rows."""
    return dout.reshape(x.shape)


def _infer_reset(x: Spec, y: Spec | None) -> Spec:
    return x._replace(lod_level=max(y.lod_level if y else 1, 1))


@operator("lod_reset", "X+ Y+? -> Out+", attrs={"target_lod": ()}, infer=_infer_reset)
def lod_reset(x: Any, y: Any, *, target_lod: tuple[int, ...]) -> LoDArray:
    """X with the LoD of Y, with Y's numbers as offsets if it has no LoD, or with the offsets target_lod."""
    data = plain(x)
    if y is None:
        if not target_lod:
            raise AttrError("lod_reset needs Y or target_lod")
        return LoDArray(data, (np.asarray(target_lod, np.int64),))
    return LoDArray(data, lod_of(y) or (to_host(y).reshape(-1).astype(np.int64),))


@gradient("lod_reset", "Out@GRAD -> X@GRAD")
def lod_reset_grad(dout: Array) -> Array:
    """dX = dOut."""
    return dout
