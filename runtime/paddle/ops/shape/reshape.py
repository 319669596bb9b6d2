# SPDX-License-Identifier: Apache-2.0
"""reshape, squeeze, unsqueeze, flatten, transpose: the same elements in another shape, as views; expand repeats them.

The variants whose names end in 2 also return XShape, an empty array (0, *X.shape), for their gradient. A shape or
repetition counts can be given by a list of tensors with one number each, else by one tensor, else by the attribute, in
which -1 marks values given by the list.

transpose, transpose2: the dimensions in another order, as views.
expand: X repeated expand_times[i] times along dimension i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, TypeAlias

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import linear
from paddle.ops.base.shapes import axis_of, decided, product

Shape: TypeAlias = tuple[int, ...]


def _reshaped(x: Shape, shape: Shape) -> Shape:
    """Return the shape with the input's size in place of 0, and the remaining size, if known, in place of -1."""
    sizes = [x[at] if size == 0 and at < len(x) else size for at, size in enumerate(shape)]
    if list(shape).count(-1) > 1:
        raise AttrError(f"shape {shape}: only one size may be -1")
    if -1 not in shape:
        if product(x) >= 0 and product(sizes) >= 0 and product(x) != product(sizes):
            raise ShapeError(f"X {x} has {product(x)} elements, but shape {shape} needs {product(sizes)}")
        return tuple(sizes)
    at = shape.index(-1)
    rest = product(sizes[:at] + sizes[at + 1 :])
    if product(x) < 0 or rest <= 0:
        return tuple(sizes)
    if product(x) % rest:
        raise ShapeError(f"X {x} has {product(x)} elements, which cannot be divided into shape {shape}")
    return (*sizes[:at], product(x) // rest, *sizes[at + 1 :])


def _squeezed(x: Shape, *, axes: Shape) -> Shape:
    """Return the shape without the given axes of size 1, or without all of them if none is given."""
    if not axes:
        return tuple(size for size in x if size != 1)
    gone = {axis_of(axis, len(x)) for axis in axes}
    if any(x[axis] not in (1, -1) for axis in gone):
        raise ShapeError(f"axes {axes} of {x} must have size 1 to be squeezed")
    return tuple(size for axis, size in enumerate(x) if axis not in gone)


def _unsqueezed(x: Shape, *, axes: Shape) -> Shape:
    """Return the shape with a 1 inserted at each of the axes, one after the other."""
    sizes = list(x)
    for axis in axes:
        if not -len(sizes) - 1 <= axis <= len(sizes):
            raise AttrError(
                f"axes: expected positions from {-len(sizes) - 1} to {len(sizes)} in a shape of {len(sizes)} "
                f"dimensions, got {axis}"
            )
        sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, 1)
    return tuple(sizes)


def flattened(x: Shape, *, axis: int) -> Shape:
    """Return the shape of X as a matrix: the products of the first `axis` dimensions and of all other dimensions."""
    if not 0 <= axis <= len(x):
        raise AttrError(f"axis: expected 0 to {len(x)} for a shape of {len(x)} dimensions, got {axis}")
    return product(x[:axis]), product(x[axis:])


def _infer_reshape(x: Spec, given: Spec | None, parts: list[Spec], *, shape: Shape) -> Spec:
    if given is None and not parts:
        return x._replace(shape=_reshaped(x.shape, shape))
    sizes = shape or (-1,) * (len(parts) or product(given.shape if given else ()))
    return x._replace(
        shape=tuple(x.shape[at] if size == 0 and at < len(x.shape) else size for at, size in enumerate(sizes))
    )


def _with_xshape(
    op_type: str,
    signature: str,
    attrs: Mapping[str, object],
    infer: Callable[..., Spec],
    shares_lod: bool | Callable[[Mapping[str, Any], int], bool] = True,
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Register a kernel as an operator, and as its variant whose name ends in 2, which also returns XShape."""

    def add(kernel: Callable[..., Array]) -> Callable[..., Array]:
        @wraps(infer)
        def infer2(x: Spec, *more: Any, **given: Any) -> tuple[Spec, Spec]:
            return infer(x, *more, **given), Spec((0, *x.shape), x.dtype)

        @wraps(kernel)
        def kernel2(x: Array, *more: Any, **given: Any) -> tuple[Array, Array]:
            return kernel(x, *more, **given), array_module(x).empty((0, *x.shape), x.dtype)

        add_to_table = partial(operator, attrs=attrs, shares_lod=shares_lod)
        add_to_table(op_type, signature, infer=infer)(kernel)
        add_to_table(f"{op_type}2", f"{signature} XShape~", infer=infer2)(kernel2)
        return kernel

    return add


@_with_xshape("reshape", "X Shape? ShapeTensor*? -> Out", {"shape": ()}, _infer_reshape)
def reshape(x: Array, given: Array | None, parts: list[Array], *, shape: Shape) -> Array:
    """Reshape X: in the given shape, 0 copies a size of X and -1 is inferred."""
    return x.reshape(_reshaped(x.shape, decided(given, parts, shape)))


def _shaping(op_type: str, attrs: Mapping[str, object], shape_of: Callable[..., Shape]) -> None:
    """Register an operator that reshapes X to a function of its shape and attributes."""

    @wraps(shape_of)
    def infer(x: Spec, **given: Any) -> Spec:
        return x._replace(shape=shape_of(x.shape, **given))

    @wraps(shape_of)
    def kernel(x: Array, **given: Any) -> Array:
        return x.reshape(shape_of(x.shape, **given))

    _with_xshape(op_type, "X -> Out", attrs, infer)(kernel)
    gradient(op_type, "X Out@GRAD -> X@GRAD")(_shape_grad)
    gradient(f"{op_type}2", "XShape Out@GRAD -> X@GRAD")(_shape2_grad)


@gradient("reshape", "X Out@GRAD -> X@GRAD")
def _shape_grad(x: Array, dout: Array) -> Array:
    """Return dX = dOut in X's shape."""
    return dout.reshape(x.shape)


@gradient("reshape2", "XShape Out@GRAD -> X@GRAD")
def _shape2_grad(xshape: Array, dout: Array) -> Array:
    """Return dX = dOut in X's shape."""
    return dout.reshape(xshape.shape[1:])


_shaping("squeeze", {"axes": ()}, _squeezed)
_shaping("unsqueeze", {"axes": tuple}, _unsqueezed)
_shaping("flatten", {"axis": 1}, flattened)


def _infer(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    if sorted(axis) != list(range(len(x.shape))):
        raise AttrError(
            f"axis: expected a permutation of the {len(x.shape)} dimensions of X {x.shape}, got {axis}"
        )
    return x._replace(shape=tuple(x.shape[at] for at in axis))


@_with_xshape("transpose", "X -> Out", {"axis": tuple}, _infer, lambda attrs, _: attrs["axis"][:1] == (0,))
def transpose(x: Array, *, axis: tuple[int, ...]) -> Array:
    """Permute the dimensions of X: dimension i of Out is dimension axis[i] of X."""
    return x.transpose(axis)


@gradient("transpose", "Out@GRAD -> X@GRAD")
@gradient("transpose2", "Out@GRAD -> X@GRAD")
def transpose_grad(dout: Array, *, axis: tuple[int, ...]) -> Array:
    """Return dX = dOut in the original order of dimensions."""
    back = [0] * len(axis)
    for at, source in enumerate(axis):
        back[source] = at
    return dout.transpose(back)


def _check_times(x: Shape, times: Shape, least: int = 1) -> None:
    if len(times) != len(x) or any(each < 1 and each != least for each in times):
        raise AttrError(f"expand_times: expected {len(x)} positive numbers for X {x}, got {times}")


def _infer_expand(x: Spec, given: Spec | None, parts: list[Spec], *, expand_times: Shape) -> Spec:
    open_ = given is not None or bool(parts)
    times = expand_times or ((-1,) * len(x.shape) if open_ else ())
    _check_times(x.shape, times, least=-1 if open_ else 1)
    pairs = zip(x.shape, times, strict=True)
    return x._replace(shape=tuple(-1 if size < 0 or each < 0 else size * each for size, each in pairs))


@operator("expand", "X ExpandTimes? expand_times_tensor*? -> Out", infer=_infer_expand)
def expand(x: Array, given: Array | None, parts: list[Array], *, expand_times: Shape = ()) -> Array:
    """Repeat X expand_times[i] times along each dimension i."""
    times = decided(given, parts, expand_times)
    _check_times(x.shape, times)
    return array_module(x).tile(x, times)


@gradient("expand", "X Out@GRAD -> X@GRAD")
def expand_grad(x: Array, dout: Array) -> Array:
    """Return dX = sum of dOut over the copies."""
    pairs = zip(dout.shape, x.shape, strict=True)
    split = [part for whole, size in pairs for part in (whole // size if size else 1, size)]
    return dout.reshape(split).sum(axis=tuple(range(0, len(split), 2)))


for _type in ("reshape", "squeeze", "unsqueeze", "flatten", "transpose"):
    linear(_type, f"{_type}2")
linear("expand")
