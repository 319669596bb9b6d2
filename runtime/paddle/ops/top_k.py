# SPDX-License-Identifier: Apache-2.0
"""top_k, arg_max and arg_min: where the greatest values of the last axis are; of equal ones the first."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.errors import AttrError
from paddle.ops.registry import Spec, operator
from paddle.ops.shapes import axis_of

_INT64 = np.dtype("int64")


def _infer_top_k(x: Spec, *, k: int) -> tuple[Spec, Spec]:
    if not x.shape or k < 1 or 0 <= x.shape[-1] < k:
        raise AttrError(f"k: expected 1 to {x.shape[-1:] or 0}, the last size of X, got {k}")
    out = x._replace(shape=(*x.shape[:-1], k))
    return out, out._replace(dtype=_INT64)


@operator("top_k", "X -> Out Indices", attrs={"k": 1}, infer=_infer_top_k)
def top_k(x: Array, *, k: int) -> tuple[Array, Array]:
    """Return the k greatest values of each row, descending, and their int64 places."""
    indices = _first(x) if k == 1 and x.size else (-x).argsort(axis=-1, kind="stable")[..., :k]
    return array_module(x).take_along_axis(x, indices, axis=-1), indices.astype(_INT64, copy=False)


def _infer_arg(x: Spec, *, axis: int) -> Spec:
    at = axis_of(axis, len(x.shape))
    return Spec((x.shape[:at] + x.shape[at + 1 :]) or (1,), _INT64)


@operator("arg_max", "X -> Out", attrs={"axis": -1}, infer=_infer_arg)
def arg_max(x: Array, *, axis: int) -> Array:
    """Return where the greatest value along the axis is."""
    return x.argmax(axis=axis).reshape((x.shape[: axis % x.ndim] + x.shape[axis % x.ndim + 1 :]) or (1,))


@operator("arg_min", "X -> Out", attrs={"axis": -1}, infer=_infer_arg)
def arg_min(x: Array, *, axis: int) -> Array:
    """Return where the smallest value along the axis is."""
    return (-x).argmax(axis=axis).reshape((x.shape[: axis % x.ndim] + x.shape[axis % x.ndim + 1 :]) or (1,))


def _first(x: Array) -> Array:
    return x.argmax(axis=-1)[..., None]
