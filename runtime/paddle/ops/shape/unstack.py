# SPDX-License-Identifier: Apache-2.0
"""unstack: the parts of a value along an axis, without that axis."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import axis_of


def _infer(x: Spec, *, axis: int, num: int) -> list[Spec]:
    at = axis_of(axis, len(x.shape))
    size = num or x.shape[at]
    if size < 0 or x.shape[at] not in (-1, size):
        raise AttrError(f"num: expected {x.shape[at]}, the size of axis {axis} of X {x.shape}, got {num}")
    return [x._replace(shape=(*x.shape[:at], *x.shape[at + 1 :]), lod_level=0)] * size


@operator("unstack", "X -> Y*", attrs={"axis": 0, "num": 0}, infer=_infer, shares_lod=False)
def unstack(x: Array, *, axis: int) -> list[Array]:
    """Return views of X."""
    return list(array_module(x).moveaxis(x, axis, 0))


@gradient("unstack", "Y@GRAD* -> X@GRAD")
def unstack_grad(dy: list[Array], *, axis: int) -> Array:
    """Put the parts' gradients together again."""
    stacked: Array = array_module(dy[0]).stack(dy, axis)
    return stacked
