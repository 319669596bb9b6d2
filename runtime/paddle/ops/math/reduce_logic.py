# SPDX-License-Identifier: Apache-2.0
"""reduce_all, reduce_any: whether all or some of the booleans along dimensions hold."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, operator
from paddle.ops.math.reduce import ATTRS, axes_of, reduced_shape


def _infer(x: Spec, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Spec:
    if x.dtype != np.bool_:
        raise ShapeError(f"expected booleans, got {x.dtype}: compare first")
    return Spec(reduced_shape(x.shape, dim, keep_dim, reduce_all), x.dtype)


@operator("reduce_all", "X -> Out", attrs=ATTRS, infer=_infer)
def reduce_all_(x: Array, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Array:
    """Out = whether all of X hold."""
    shape = reduced_shape(x.shape, dim, keep_dim, reduce_all)
    return x.all(axis=axes_of(x.ndim, dim, reduce_all)).reshape(shape)


@operator("reduce_any", "X -> Out", attrs=ATTRS, infer=_infer)
def reduce_any(x: Array, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Array:
    """Out = whether any of X holds."""
    shape = reduced_shape(x.shape, dim, keep_dim, reduce_all)
    return x.any(axis=axes_of(x.ndim, dim, reduce_all)).reshape(shape)
