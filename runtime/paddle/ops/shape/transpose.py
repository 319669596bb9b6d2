# SPDX-License-Identifier: Apache-2.0
"""transpose, transpose2: the dimensions in another order, as views."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError
from paddle.ops.base.registry import Spec, gradient, operator


def _infer(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    if sorted(axis) != list(range(len(x.shape))):
        raise AttrError(f"axis {axis} is not an order of the dimensions of {x.shape}")
    return x._replace(shape=tuple(x.shape[at] for at in axis))


def _infer2(x: Spec, *, axis: tuple[int, ...]) -> tuple[Spec, Spec]:
    return _infer(x, axis=axis), Spec((0, *x.shape), x.dtype)


@operator("transpose", "X -> Out", attrs={"axis": tuple}, infer=_infer)
def transpose(x: Array, *, axis: tuple[int, ...]) -> Array:
    """Return X with dimension i taken from axis[i]."""
    return x.transpose(axis)


@operator("transpose2", "X -> Out XShape~", attrs={"axis": tuple}, infer=_infer2)
def transpose2(x: Array, *, axis: tuple[int, ...]) -> tuple[Array, Array]:
    """Return what `transpose` does, and an empty array (0, *X.shape)."""
    return x.transpose(axis), array_module(x).empty((0, *x.shape), x.dtype)


@gradient("transpose", "Out@GRAD -> X@GRAD")
@gradient("transpose2", "Out@GRAD -> X@GRAD")
def transpose_grad(dout: Array, *, axis: tuple[int, ...]) -> Array:
    """dX = dOut in the first order again."""
    back = [0] * len(axis)
    for at, source in enumerate(axis):
        back[source] = at
    return dout.transpose(back)
