# SPDX-License-Identifier: Apache-2.0
"""Comparisons and logic: equal, not_equal, less_than, ..., logical_and, or, xor, not; all put out bool."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, operator
from paddle.ops.math.elementwise import aligned, check_ranks

_BOOL = np.dtype("bool")


def _infer_compare(x: Spec, y: Spec, *, axis: int) -> Spec:
    check_ranks(x.shape, y.shape, axis)
    return x._replace(dtype=_BOOL)


def _infer_logical(x: Spec, y: Spec) -> Spec:
    check_ranks(x.shape, y.shape, -1)
    return x._replace(dtype=_BOOL)


def _infer_not(x: Spec) -> Spec:
    return x._replace(dtype=_BOOL)


def _comparing(name: str) -> Callable[..., Array]:
    def compare(x: Array, y: Array, *, axis: int) -> Array:
        return getattr(array_module(x), name)(x, aligned(x, y, axis))

    return compare


def _combining(name: str) -> Callable[..., Array]:
    def combine(x: Array, y: Array) -> Array:
        return getattr(array_module(x), name)(x, aligned(x, y, -1))

    return combine


for _type, _name in {
    "equal": "equal",
    "not_equal": "not_equal",
    "less_than": "less",
    "less_equal": "less_equal",
    "greater_than": "greater",
    "greater_equal": "greater_equal",
}.items():
    operator(_type, "X Y -> Out", attrs={"axis": -1, "force_cpu": True}, infer=_infer_compare)(
        _comparing(_name)
    )

for _type in ("logical_and", "logical_or", "logical_xor"):
    operator(_type, "X Y -> Out", infer=_infer_logical)(_combining(_type))


@operator("logical_not", "X -> Out", infer=_infer_not)
def logical_not(x: Array) -> Array:
    """Out = not X."""
    return array_module(x).logical_not(x)
