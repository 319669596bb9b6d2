# SPDX-License-Identifier: Apache-2.0
"""is_empty, isfinite, isinf, isnan and shape: what is to be known of a value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, operator

_BOOL, _INT32 = np.dtype("bool"), np.dtype("int32")


def _infer_one(x: Spec) -> Spec:
    return Spec((1,), _BOOL)


@operator("is_empty", "X -> Out", infer=_infer_one, shares_lod=False)
def is_empty(x: Array) -> Array:
    """Return whether X has no elements, (1,) bool."""
    return np.array([x.size == 0])


def _asking(name: str, every: bool) -> Callable[[Array], Array]:
    def ask(x: Array) -> Array:
        found = getattr(array_module(x), name)(x)
        answer: Array = (found.all() if every else found.any()).reshape(1)
        return answer

    return ask


# isfinite asks whether all are, the others whether any is.
for _type in ("isfinite", "isinf", "isnan"):
    operator(_type, "X -> Out", infer=_infer_one, shares_lod=False)(_asking(_type, _type == "isfinite"))


def _infer_shape(x: Spec) -> Spec:
    return Spec((len(x.shape),), _INT32)


@operator("shape", "Input -> Out", infer=_infer_shape, shares_lod=False)
def shape(x: Array) -> Array:
    """Return the sizes of X, int32."""
    sizes: Array = array_module(x).asarray(np.array(x.shape, _INT32))
    return sizes
