# SPDX-License-Identifier: Apache-2.0
"""sequence_pad, sequence_unpad and sequence_mask: sequences as one array padded to equal lengths, and the inverse.

add_position_encoding: adds sines and cosines of a row's position in its sequence (Vaswani et al., 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, ends_of, lod_of, plain, sequences, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, lengths, owners, positions

_INT64 = np.dtype("int64")


@operator(
    "sequence_pad",
    "X+ PadValue -> Out Length",
    infer="X(_, ...) -> X(-1, padded_length, ..., lod=0), int64(-1, 1)",
)
def sequence_pad(x: Any, pad_value: Array, *, padded_length: int = -1) -> tuple[Array, Array]:
    """Pad sequences to one length: return (n, length, ...), with PadValue at the ends, and the lengths (n, 1) int64.

    The length is that of the longest sequence if padded_length is -1.
    """
    data, offsets = sequences(x, "X")
    counts = lengths(offsets)
    longest = int(counts.max(initial=0))
    if 0 <= padded_length < longest:
        raise InputError(f"padded_length {padded_length} is less than {longest}, the longest sequence")
    xp = array_module(data)
    box = xp.empty(
        (len(counts), longest if padded_length < 0 else padded_length, *data.shape[1:]), data.dtype
    )
    box[...] = pad_value if pad_value.size > 1 else pad_value.reshape(())
    box[at(owners(offsets), data), at(positions(offsets), data)] = data
    return box, from_host(counts[:, None], data)


@gradient("sequence_pad", "X+ Out@GRAD -> X@GRAD")
def sequence_pad_grad(x: Any, dout: Array) -> Array:
    """Return dX: the rows of dOut without the padding."""
    _, offsets = sequences(x, "X")
    return dout[at(owners(offsets), dout), at(positions(offsets), dout)]


def _infer_unpad(x: Spec, length: Spec) -> Spec:
    return Spec((-1, *(x.shape[2:] or (1,))), x.dtype, 1)


@operator("sequence_unpad", "X Length -> Out+", infer=_infer_unpad)
def sequence_unpad(x: Array, length: Array) -> LoDArray:
    """Remove padding: return the first Length[i] steps of each X[i], with one level of LoD.

    Scalar steps become (n, 1).
    """
    offsets = _offsets(x, length)
    rows = x[at(owners(offsets), x), at(positions(offsets), x)]
    return LoDArray(rows.reshape(len(rows), *(x.shape[2:] or (1,))), (offsets,))


@gradient("sequence_unpad", "X Length Out@GRAD -> X@GRAD")
def sequence_unpad_grad(x: Array, length: Array, dout: Array) -> Array:
    """Return dX: dOut in the padded array, with zeros in the padding."""
    offsets = _offsets(x, length)
    dx: Array = array_module(x).zeros_like(x)
    dx[at(owners(offsets), x), at(positions(offsets), x)] = dout.reshape(-1, *x.shape[2:])
    return dx


def _infer_mask(x: Spec, maxlen_tensor: Spec | None, *, maxlen: int, out_dtype: VarType) -> Spec:
    return Spec((*x.shape, maxlen if maxlen > 0 else -1), out_dtype.numpy)


@operator("sequence_mask", "X MaxLenTensor? -> Y", infer=_infer_mask, shares_lod=False)
def sequence_mask(
    x: Array, maxlen_tensor: Array | None, *, maxlen: int = -1, out_dtype: VarType = VarType.INT64
) -> Array:
    """Return a mask Y (..., maxlen): 1 where j < X[...], else 0. If maxlen is -1, it is the maximum of X."""
    xp = array_module(x)
    if maxlen_tensor is not None:
        maxlen = int(maxlen_tensor.reshape(-1)[0])
    width = maxlen if maxlen >= 0 else int(x.max()) if x.size else 0
    return (xp.arange(width) < x[..., None]).astype(out_dtype.numpy)


def _offsets(x: Array, length: Array) -> Any:
    counts = to_host(length).reshape(-1).astype(_INT64)
    if len(counts) != len(x) or (counts < 0).any() or counts.max(initial=0) > x.shape[1]:
        raise InputError(
            f"expected {len(x)} lengths from 0 to {x.shape[1]} for X {x.shape}, got {counts.tolist()}"
        )
    return ends_of(counts)


def _infer(x: Spec) -> Spec:
    if len(x.shape) != (2 if x.lod_level else 3) or x.shape[-1] % 2:
        raise ShapeError(
            f"expected X (N, length, D) or sequences (rows, D) with even D, got {x.shape} of "
            f"lod_level {x.lod_level}"
        )
    return x


@operator("add_position_encoding", "X+ -> Out+", infer=_infer)
def add_position_encoding(x: Any, *, alpha: float = 1.0, beta: float = 1.0) -> Any:
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
