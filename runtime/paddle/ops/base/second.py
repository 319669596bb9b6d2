# SPDX-License-Identifier: Apache-2.0
"""Second derivatives: makes gradient operators `<type>_grad` differentiable, for a few simple kinds of operators.

G(..., dOut) -> dX is linear in dOut, so the gradient of dOut is the operator itself applied to the gradient of dX:

- linear F: G depends on nothing else. dOut@GRAD = F(dX@GRAD).
- bilinear F(X, Y): dOut@GRAD = F(dX@GRAD, Y) + F(X, dY@GRAD), X@GRAD = G's dX at (dY@GRAD, dOut), Y@GRAD likewise.
- element-wise functions, dX = f'(v) dOut: dOut@GRAD = f' dX@GRAD, and v@GRAD = f'' dOut dX@GRAD, where v is X or
  Out. Where f'' is zero, v gets no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from paddle.backend import Array
from paddle.ops.base.errors import OpError
from paddle.ops.base.registry import (
    GRAD,
    GradOp,
    LiteralName,
    Names,
    gradient_maker,
    operator,
    registered_so_far,
)

Maker = Callable[..., list[GradOp]]


class Reached(Protocol):
    """A query object for gradient makers: which outputs of an operator have a gradient."""

    def arriving(self, names: Sequence[str]) -> list[str]:
        """Return the given names that have a gradient."""


def linear(*op_types: str) -> None:
    """Make the gradient operators differentiable for operators that are linear in their one differentiable input."""
    for op_type in op_types:
        gradient_maker(f"{op_type}_grad")(_linear(op_type))


def bilinear(*op_types: str) -> None:
    """Make the gradient operators differentiable for operators that are linear in each of their first two inputs."""
    for op_type in op_types:
        gradient_maker(f"{op_type}_grad")(_bilinear(op_type))


def curved(op_type: str, curve: Callable[..., Any] | None) -> None:
    """Make the gradient of an element-wise function differentiable, given the function's second derivative.

    Args:
        curve: a kernel of the value that `<type>_grad` reads, and attributes, that returns ∂f'/∂v without the factor
            dOut; None means it is zero almost everywhere.
    """
    grad_type = f"{op_type}_grad"
    slots = [slot.name for slot in registered_so_far(grad_type).inputs if slot.name != "Out" + GRAD]
    if curve is not None:
        _register_curve(grad_type, slots[0], curve)

    def maker(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
        (dx,), (dout,) = outputs["X" + GRAD], inputs["Out" + GRAD]
        held: dict[str, list[str]] = {slot: _given(inputs[slot]) for slot in slots}
        made = [GradOp(grad_type, {**held, "Out" + GRAD: [dx + GRAD]}, {"X" + GRAD: [dout + GRAD]}, attrs)]
        if curve is not None:
            (value,) = inputs[slots[0]]
            bent: dict[str, list[str]] = {
                "Value": [LiteralName(value)],
                "DOut": [LiteralName(dout)],
                "DX" + GRAD: [dx + GRAD],
            }
            made.append(GradOp(f"{grad_type}_grad", bent, {"Value" + GRAD: [value + GRAD]}, attrs))
        return made

    gradient_maker(grad_type)(maker)


def _register_curve(grad_type: str, slot: str, curve: Callable[..., Any]) -> None:
    def kernel(value: Array, dout: Array, ddx: Array, *, attrs: Mapping[str, Any]) -> Array:
        known = {name: attrs[name] for name in wanted}
        return curve(value, **known) * dout * ddx

    wanted = curve.__code__.co_varnames[1 : curve.__code__.co_argcount]
    signature = f"Value DOut DX{GRAD} -> Value{GRAD}"
    operator(
        f"{grad_type}_grad", signature, attrs=registered_so_far(grad_type).attrs, infer="Value", fresh=True
    )(kernel)


def _linear(op_type: str) -> Maker:
    forward, backward = registered_so_far(op_type), registered_so_far(f"{op_type}_grad")
    (source,) = [slot.name.removesuffix(GRAD) for slot in backward.outputs]
    target = next(slot.name for slot in forward.outputs if not slot.intermediate)

    def maker(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
        if str(attrs.get("pooling_type", "avg")) != "avg":
            raise OpError(f"{op_type}: the gradient of a maximum over windows has no gradient; use avg")
        taken = {slot.name: _given(inputs.get(slot.name, ())) for slot in forward.inputs}
        taken[source] = [name + GRAD for name in outputs[source + GRAD]]
        return [GradOp(op_type, taken, {target: [name + GRAD for name in inputs[target + GRAD]]}, attrs)]

    return maker


def _bilinear(op_type: str) -> Maker:
    forward, grad_type = registered_so_far(op_type), f"{op_type}_grad"
    pair, target = [slot.name for slot in forward.inputs[:2]], forward.outputs[0].name

    def maker(inputs: Names, outputs: Names, attrs: Mapping[str, object], *, bodies: Reached) -> list[GradOp]:
        made = []
        (dout,) = inputs[target + GRAD]
        for mine, other in (pair, pair[::-1]):
            if not bodies.arriving(outputs[mine + GRAD]):
                continue
            moved: dict[str, list[str]] = {
                mine: [name + GRAD for name in outputs[mine + GRAD]],
                other: _given(inputs[other]),
            }
            made.append(GradOp(op_type, moved, {target: [dout + GRAD]}, attrs))
            back: dict[str, list[str]] = {**moved, target + GRAD: [LiteralName(dout)]}
            wanted = {other + GRAD: [inputs[other][0] + GRAD], mine + GRAD: ["@EMPTY@"]}
            made.append(GradOp(grad_type, back, wanted, attrs))
        return made

    return maker


def _given(names: Sequence[str]) -> list[str]:
    return [LiteralName(name) for name in names]
