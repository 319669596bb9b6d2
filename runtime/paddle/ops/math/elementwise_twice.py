# SPDX-License-Identifier: Apache-2.0
"""elementwise_add_grad_grad, sub and div: second derivatives of operators linear in X; mul is bilinear."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddle.backend import Array, array_module
from paddle.ops.base.registry import GRAD, Given, GradOp, Names, gradient_maker, lookup, operator
from paddle.ops.base.second import Reached
from paddle.ops.math.elementwise import aligned, elementwise_div_grad

_ARRIVING = f"DX{GRAD}? DY{GRAD}?"
_ATTRS = lookup("elementwise_add").attrs


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
    """With T = (ddX - Out ddY) / Y: dY = -sum of dOut T / Y, dOut's is T, Out's is -ddY dOut / Y."""
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
            slot: [Given(name) for name in names] for slot, names in held.items() if slot in known
        }
        made = {
            slot.name: [name + GRAD for name in held[slot.name.removesuffix(GRAD)]] for slot in second.outputs
        }
        return [GradOp(second.type, given | taken, made, attrs)]

    gradient_maker(f"{op_type}_grad")(maker)


for _type in ("elementwise_add", "elementwise_sub", "elementwise_div"):
    _twice(_type)
