# SPDX-License-Identifier: Apache-2.0
"""elementwise_add, sub, mul, div, max, min, pow, mod, floordiv: X op Y, with Y broadcast to X at `axis`.

Y's sizes, without trailing ones, must equal consecutive sizes of X, starting at `axis`.

An axis of -1 aligns the last dimensions. X is never broadcast.

Comparisons and logic: equal, not_equal, less_than, greater_than, ..., logical_and, or, xor, not; all return bool.
elementwise_add_grad_grad, sub and div: second derivatives of operators linear in X; mul is bilinear.
minus: Out = X - Y of equal shapes, from programs that predate elementwise_sub.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import (
    GRAD,
    NO_SLOTS,
    GradOp,
    LiteralName,
    Names,
    Spec,
    gradient,
    gradient_maker,
    lookup,
    operator,
)
from paddle.ops.base.second import Reached, bilinear
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.base.shapes import agree, same
from paddle_node.contract.classes import replace


def check_ranks(x: tuple[int, ...], y: tuple[int, ...], axis: int) -> None:
    """Check that Y's rank can be broadcast to X's; declared sizes may be placeholders. Raises ShapeError."""
    if not all(map(agree, x, y)) or len(x) != len(y):
        start, run = _place(x, y, axis)
        if start < 0 or start + len(run) > len(x):
            raise ShapeError(
                f"expected the axes of Y {y} to be among those of X {x} starting at axis {axis}, but Y has too many"
            )


def check(x: tuple[int, ...], y: tuple[int, ...], axis: int) -> None:
    """Check that Y can be broadcast to X at `axis`. Raises ShapeError."""
    start, run = _place(x, y, axis)
    if start < 0 or start + len(run) > len(x) or not all(map(agree, x[start : start + len(run)], run)):
        raise ShapeError(
            f"Y {y} does not fit X {x} at axis {axis}: its sizes must equal consecutive sizes of X"
        )


def aligned(x: Array, y: Array, axis: int) -> Array:
    """Return a view of Y that numpy broadcasts to X.

    Raises:
        ShapeError: the shapes do not match.
    """
    if x.shape == y.shape:
        return y
    check(x.shape, y.shape, axis)
    start, run = _place(x.shape, y.shape, axis)
    return y.reshape(run + (1,) * (len(x.shape) - start - len(run)))


def summed_like(dout: Array, y: Array, axis: int) -> Array:
    """Return the gradient of Y: dOut, in X's shape, summed over the dimensions along which Y was broadcast."""
    if dout.shape == y.shape:
        return dout
    start, run = _place(dout.shape, y.shape, axis)
    before = prod(dout.shape[:start])
    after = prod(dout.shape[start + len(run) :])
    total = dout
    if after != 1:
        total = total.reshape(before * prod(run), after).sum(axis=1)
    if before != 1:
        total = total.reshape(before, prod(run)).sum(axis=0)
    return total.reshape(y.shape)


def _place(x: tuple[int, ...], y: tuple[int, ...], axis: int) -> tuple[int, tuple[int, ...]]:
    """Return (the first dimension of X that Y is aligned with, Y's sizes without trailing ones)."""
    start = len(x) - len(y) if axis == -1 else axis
    run = y
    while run and run[-1] == 1 and not (start + len(run) <= len(x) and x[start + len(run) - 1] == 1):
        run = run[:-1]
    return start, run


_ATTRS = {"axis": -1}


def _infer(x: Spec, y: Spec, *, axis: int) -> Spec:
    check_ranks(x.shape, y.shape, axis)
    if x.dtype != y.dtype:
        raise ShapeError(f"X is {x.dtype}, but Y is {y.dtype}: cast one of them")
    return x._replace(lod_level=x.lod_level or y.lod_level)


@operator("elementwise_add", "X Y -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def elementwise_add(x: Array, y: Array, *, axis: int, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return the elementwise sum X + Y."""
    return array_module(x).add(x, aligned(x, y, axis), out=x if "X" in spent else None)


@gradient("elementwise_add", "Y Out@GRAD -> X@GRAD Y@GRAD")
def elementwise_add_grad(
    y: Array, dout: Array, *, axis: int, needs: frozenset[str]
) -> tuple[Array | None, Array | None]:
    """Return dX = dOut and dY = Σ dOut, over the dimensions along which Y was broadcast."""
    return dout, summed_like(dout, y, axis) if "Y@GRAD" in needs else None


@operator("elementwise_sub", "X Y -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def elementwise_sub(x: Array, y: Array, *, axis: int, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return the elementwise difference X - Y."""
    return array_module(x).subtract(x, aligned(x, y, axis), out=x if "X" in spent else None)


@gradient("elementwise_sub", "Y Out@GRAD -> X@GRAD Y@GRAD")
def elementwise_sub_grad(
    y: Array, dout: Array, *, axis: int, needs: frozenset[str]
) -> tuple[Array | None, Array | None]:
    """Return dX = dOut and dY = -Σ dOut, over the dimensions along which Y was broadcast."""
    return dout, -summed_like(dout, y, axis) if "Y@GRAD" in needs else None


@operator("elementwise_mul", "X Y -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def elementwise_mul(x: Any, y: Array, *, axis: int, spent: frozenset[str] = NO_SLOTS) -> Any:
    """Return the elementwise product X Y; X can be selected rows if Y is a single number."""
    if isinstance(x, SelectedRows):
        if y.size != 1:
            raise ShapeError(f"X is selected rows: expected a single number as Y, got {y.shape}")
        return replace(x, values=x.values * y.reshape(()))
    return array_module(x).multiply(x, aligned(x, y, axis), out=x if "X" in spent else None)


@gradient("elementwise_mul", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def elementwise_mul_grad(
    x: Array, y: Array, dout: Array, *, axis: int, needs: frozenset[str]
) -> tuple[Array | None, Array | None]:
    """Return dX = dOut Y and dY = Σ dOut X, over the dimensions along which Y was broadcast."""
    dx = dout * aligned(x, y, axis) if "X@GRAD" in needs else None
    return dx, summed_like(dout * x, y, axis) if "Y@GRAD" in needs else None


@operator("elementwise_div", "X Y -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def elementwise_div(x: Array, y: Array, *, axis: int) -> Array:
    """Return the elementwise quotient X / Y; integers are divided as in C, truncating towards zero."""
    return quotient(x, aligned(x, y, axis)) if x.dtype.kind in "iu" else x / aligned(x, y, axis)


@gradient("elementwise_div", "Y Out Out@GRAD -> X@GRAD Y@GRAD")
def elementwise_div_grad(
    y: Array, out: Array, dout: Array, *, axis: int, needs: frozenset[str]
) -> tuple[Array, Array | None]:
    """Return dX = dOut / Y and dY = -Σ dOut Out / Y, over the dimensions along which Y was broadcast."""
    dx = dout / aligned(dout, y, axis)
    return dx, -summed_like(dx * out, y, axis) if "Y@GRAD" in needs else None


@operator("elementwise_max", "X Y -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def elementwise_max(x: Array, y: Array, *, axis: int) -> Array:
    """Return the elementwise maximum of X and Y."""
    return array_module(x).maximum(x, aligned(x, y, axis))


@gradient("elementwise_max", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def elementwise_max_grad(
    x: Array, y: Array, dout: Array, *, axis: int, needs: frozenset[str]
) -> tuple[Array, Array | None]:
    """Return dX and dY: route dOut to the larger input, or to Y where both are equal."""
    return _chosen(x > aligned(x, y, axis), y, dout, axis, needs)


@operator("elementwise_min", "X Y -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def elementwise_min(x: Array, y: Array, *, axis: int) -> Array:
    """Return the elementwise minimum of X and Y."""
    return array_module(x).minimum(x, aligned(x, y, axis))


@gradient("elementwise_min", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def elementwise_min_grad(
    x: Array, y: Array, dout: Array, *, axis: int, needs: frozenset[str]
) -> tuple[Array, Array | None]:
    """Return dX and dY: route dOut to the smaller input, or to Y where both are equal."""
    return _chosen(x < aligned(x, y, axis), y, dout, axis, needs)


@operator("elementwise_pow", "X Y -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def elementwise_pow(x: Array, y: Array, *, axis: int) -> Array:
    """Return X to the power of Y, elementwise."""
    return x ** aligned(x, y, axis)


@gradient("elementwise_pow", "X Y Out Out@GRAD -> X@GRAD Y@GRAD")
def elementwise_pow_grad(
    x: Array, y: Array, out: Array, dout: Array, *, axis: int, needs: frozenset[str]
) -> tuple[Array | None, Array | None]:
    """Return dX = dOut Y X^(Y-1), and dY = Σ dOut Out ln X over Y's broadcast dimensions."""
    exponent = aligned(x, y, axis)
    dx = dout * exponent * x ** (exponent - 1) if "X@GRAD" in needs else None
    return dx, summed_like(dout * out * array_module(x).log(x), y, axis) if "Y@GRAD" in needs else None


def _chosen(
    takes_x: Array, y: Array, dout: Array, axis: int, needs: frozenset[str]
) -> tuple[Array, Array | None]:
    dx: Any = dout * takes_x
    return dx, summed_like(dout - dx, y, axis) if "Y@GRAD" in needs else None


@operator("elementwise_mod", "X Y -> Out", attrs=_ATTRS, infer=_infer)
def elementwise_mod(x: Array, y: Array, *, axis: int) -> Array:
    """Return the elementwise remainder of X / Y as in C, with the sign of X: -7 and 3 give -1."""
    divisor = aligned(x, y, axis)
    rest = x % divisor
    return rest - divisor * _down(x, divisor, rest)


@operator("elementwise_floordiv", "X Y -> Out", attrs=_ATTRS, infer=_infer)
def elementwise_floordiv(x: Array, y: Array, *, axis: int) -> Array:
    """Return the elementwise quotient X / Y as in C, truncated towards zero despite the name: -7 and 3 give -2."""
    return quotient(x, aligned(x, y, axis))


def quotient(x: Array, divisor: Array) -> Array:
    """Divide whole numbers elementwise, truncating towards zero."""
    return x // divisor + _down(x, divisor, x % divisor)


def _down(x: Array, divisor: Array, rest: Array) -> Array:
    """Return, in X's dtype, 1 where rounding down differs from truncation towards zero, else 0."""
    return ((rest != 0) & ((x < 0) != (divisor < 0))).astype(x.dtype)


_BOOL = np.dtype("bool")


def _infer_compare(x: Spec, y: Spec, *, axis: int) -> Spec:
    check_ranks(x.shape, y.shape, axis)
    return x._replace(dtype=_BOOL)


def _infer_logical(x: Spec, y: Spec) -> Spec:
    check_ranks(x.shape, y.shape, -1)
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


@operator("logical_not", "X -> Out", infer="X(...) -> bool(..., lod=X)")
def logical_not(x: Array) -> Array:
    """Return the logical negation of X, bool."""
    return array_module(x).logical_not(x)


bilinear("elementwise_mul")


_ARRIVING = f"DX{GRAD}? DY{GRAD}?"


def _adding(sign: int) -> Callable[..., Array]:
    def kernel(dout: Array, ddx: Array | None, ddy: Array | None, *, axis: int) -> Array:
        if ddy is None:
            return ddx
        total = array_module(dout).zeros_like(dout) if ddx is None else ddx
        return total + sign * aligned(dout, ddy, axis)

    return kernel


for _type, _sign in (("elementwise_add", 1), ("elementwise_sub", -1)):
    operator(
        f"{_type}_grad_grad",
        f"DOut {_ARRIVING} -> DOut{GRAD}",
        attrs=_ATTRS,
        infer=lambda dout, ddx, ddy: dout,
    )(_adding(_sign))


@operator(
    "elementwise_div_grad_grad",
    f"Y Out DOut {_ARRIVING} -> Y{GRAD} Out{GRAD} DOut{GRAD}",
    attrs=_ATTRS,
    infer=lambda y, out, dout, ddx, ddy: (y, out, dout),
)
def elementwise_div_grad_grad(
    y: Array, out: Array, dout: Array, ddx: Array | None, ddy: Array | None, *, axis: int
) -> tuple[Array, Array, Array]:
    """Return the gradients of Y, -Σ dOut T / Y; of dOut, T; and of Out, -ddY dOut / Y; with T = (ddX - Out ddY) / Y."""
    xp = array_module(y)
    over = aligned(dout, y, axis)
    along = xp.zeros_like(over) if ddy is None else aligned(dout, ddy, axis)
    turned = ((xp.zeros_like(dout) if ddx is None else ddx) - out * along) / over
    _, dy = elementwise_div_grad(y, turned, dout, axis=axis, needs=frozenset({"Y" + GRAD}))
    return dy, -along * dout / over, turned


def _twice(op_type: str) -> None:
    backward, second = lookup(f"{op_type}_grad"), lookup(f"{op_type}_grad_grad")

    def maker(inputs: Names, outputs: Names, attrs: Mapping[str, object], *, bodies: Reached) -> list[GradOp]:
        taken = {
            slot: [name + GRAD for name in bodies.arriving(outputs[slot[1:]])]
            for slot in (f"DX{GRAD}", f"DY{GRAD}")
        }
        held = {slot.name: inputs[slot.name] for slot in backward.inputs} | {"DOut": inputs["Out" + GRAD]}
        known = {slot.name for slot in second.inputs}
        given: dict[str, list[str]] = {
            slot: [LiteralName(name) for name in names] for slot, names in held.items() if slot in known
        }
        made = {
            slot.name: [name + GRAD for name in held[slot.name.removesuffix(GRAD)]] for slot in second.outputs
        }
        return [GradOp(second.type, given | taken, made, attrs)]

    gradient_maker(f"{op_type}_grad")(maker)


for _type in ("elementwise_add", "elementwise_sub", "elementwise_div"):
    _twice(_type)


@operator("minus", "X Y -> Out", infer="X(...), Y(...) -> X(...)", fresh=True)
def minus(x: Array, y: Array) -> Array:
    """Return the elementwise difference X - Y."""
    same(x.shape, y.shape, "X and Y")
    return x - y


@gradient_maker("minus")
def _gradient(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    """Return dX = dOut, dY = -dOut."""
    dout = {"X": [name + GRAD for name in outputs["Out"]]}
    return [
        GradOp("scale", dout, {"Out": [name + GRAD for name in inputs[slot]]}, {"scale": factor})
        for slot, factor in (("X", 1.0), ("Y", -1.0))
    ]
