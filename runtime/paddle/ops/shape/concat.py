# SPDX-License-Identifier: Apache-2.0
"""concat, split, stack and unstack: join arrays along an axis, and split them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import linear
from paddle.ops.base.shapes import axis_of, keeps_rows, same


def _infer_concat(x: list[Spec], *, axis: int) -> Spec:
    at = axis_of(axis, len(x[0].shape))
    shape = list(x[0].shape)
    for spec in x[1:]:
        if len(spec.shape) != len(shape):
            raise ShapeError(f"inputs must have the same rank, got {x[0].shape} and {spec.shape}")
        joined = -1 if -1 in (shape[at], spec.shape[at]) else shape[at] + spec.shape[at]
        rest = [*spec.shape[:at], shape[at], *spec.shape[at + 1 :]]
        shape = list(same(shape, rest, f"inputs, except along axis {axis},"))
        shape[at] = joined
    return x[0]._replace(shape=tuple(shape), lod_level=max(spec.lod_level for spec in x))


@operator("concat", "X* -> Out", infer=_infer_concat, fresh=True)
def concat(x: list[Array], *, axis: int = 0) -> Array:
    """Concatenate the inputs along an axis."""
    return array_module(x[0]).concatenate(x, axis)


@gradient("concat", "X* Out@GRAD -> X@GRAD*")
def concat_grad(x: list[Array], dout: Array, *, axis: int) -> list[Array]:
    """Return the gradients of the inputs, as views of dOut."""
    return _cut(dout, [each.shape[axis] for each in x], axis)


def _infer_split(x: Spec, *, sections: tuple[int, ...], num: int, axis: int) -> list[Spec]:
    at = axis_of(axis, len(x.shape))
    sizes = _sizes(x.shape[at], sections, num)
    return [x._replace(shape=(*x.shape[:at], size, *x.shape[at + 1 :])) for size in sizes]


@operator("split", "X -> Out*", infer=_infer_split)
def split(x: Array, *, sections: tuple[int, ...] = (), num: int = 0, axis: int = 0) -> list[Array]:
    """Split X along an axis into `num` equal parts, or into parts of the given sizes; return them as views."""
    return _cut(x, _sizes(x.shape[axis], sections, num), axis)


@gradient("split", "Out@GRAD* -> X@GRAD")
def split_grad(dout: list[Array], *, axis: int) -> Array:
    """Return dX: the gradients of the parts, concatenated along the axis."""
    return concat(dout, axis=axis)


def _infer_stack(x: list[Spec], *, axis: int) -> Spec:
    shape = x[0].shape
    for spec in x[1:]:
        shape = same(shape, spec.shape, "inputs of a stack")
    at = axis_of(axis, len(shape) + 1)
    return Spec((*shape[:at], len(x), *shape[at:]), x[0].dtype)


@operator("stack", "X* -> Y", infer=_infer_stack, shares_lod=keeps_rows("axis", added=1))
def stack(x: list[Array], *, axis: int = 0) -> Array:
    """Stack the inputs along a new axis."""
    return array_module(x[0]).stack(x, axis)


@gradient("stack", "Y@GRAD -> X@GRAD*")
def stack_grad(dout: Array, *, axis: int) -> list[Array]:
    """Return the gradients of the inputs, as views of dOut."""
    moved = array_module(dout).moveaxis(dout, axis, 0)
    return [moved[index] for index in range(len(moved))]


def _sizes(total: int, sections: tuple[int, ...], num: int) -> tuple[int, ...]:
    if sections:
        if total >= 0 and sum(sections) != total:
            raise AttrError(f"sections {sections} add up to {sum(sections)}, but the axis has size {total}")
        return sections
    if num <= 0 or (total >= 0 and total % num):
        raise AttrError(
            f"an axis of size {total} cannot be split into {num} equal parts: set num to a divisor of {total}, or "
            "set sections"
        )
    return (total // num if total >= 0 else -1,) * num


def _cut(x: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    before = (slice(None),) * (axis % x.ndim)
    ends = accumulate(sizes)
    return [x[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _infer(x: Spec, *, axis: int, num: int) -> list[Spec]:
    at = axis_of(axis, len(x.shape))
    size = num or x.shape[at]
    if size < 0 or x.shape[at] not in (-1, size):
        raise AttrError(f"num: expected {x.shape[at]}, the size of axis {axis} of X {x.shape}, got {num}")
    return [x._replace(shape=(*x.shape[:at], *x.shape[at + 1 :]), lod_level=0)] * size


@operator("unstack", "X -> Y*", attrs={"axis": 0, "num": 0}, infer=_infer, shares_lod=False)
def unstack(x: Array, *, axis: int) -> list[Array]:
    """Return the slices of X along an axis as views, without that axis."""
    return list(array_module(x).moveaxis(x, axis, 0))


@gradient("unstack", "Y@GRAD* -> X@GRAD")
def unstack_grad(dy: list[Array], *, axis: int) -> Array:
    """Return dX: the gradients of the parts, stacked along the axis."""
    return array_module(dy[0]).stack(dy, axis)


linear("concat", "split", "stack", "unstack")
