# SPDX-License-Identifier: Apache-2.0
"""while: runs a block again and again as long as a condition holds, which the block itself writes.

`X` names all that the block reads from outside and all of `Out` that exists before the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle.ops.base.body import Body, Tape
from paddle.ops.base.registry import GRAD, GradOp, gradient_maker, operator
from paddle.ops.base.tensor_array import zeros_like

_Names = Mapping[str, Sequence[str]]


@operator("while", "X+*? Condition -> Out+*? StepScopes?", attrs={"sub_block": int, "is_test": False})
def while_loop(
    x: list[Any], condition: Any, *, body: Body, names: _Names, needs: frozenset[str], is_test: bool
) -> tuple[list[Any], tuple[Tape, ...]]:
    """Return the values of Out after the last turn, and how each turn ran."""
    holds = names["Condition"][0]
    values = {**dict(zip(names["X"], x, strict=True)), holds: condition}
    tapes: list[Tape] = []
    turn = 0
    while bool(values[holds].reshape(-1)[0]):
        if is_test or "StepScopes" not in needs:
            body.run(values, turn)
        else:
            tapes.append(body.trace(values, turn))
        turn += 1
    return [values.get(name) for name in names["Out"]], tuple(tapes)


@gradient_maker("while")
def _maker(inputs: _Names, outputs: _Names, attrs: Mapping[str, object], bodies: Any) -> list[GradOp]:
    arriving, wanted = bodies.arriving(outputs["Out"]), bodies.wanted(inputs["X"])
    given = {"StepScopes": outputs["StepScopes"], "X": wanted, "Out@GRAD": [name + GRAD for name in arriving]}
    own = {"arriving": [name.removesuffix("@AFTER") for name in arriving], "wanted": wanted}
    return [GradOp("while_grad", given, {"X@GRAD": [name + GRAD for name in wanted]}, own)]


@operator("while_grad", "StepScopes X+* Out@GRAD+* -> X@GRAD+*", attrs={"arriving": (), "wanted": ()})
def while_grad(
    tapes: tuple[Tape, ...],
    x: list[Any],
    douts: list[Any],
    *,
    arriving: tuple[str, ...],
    wanted: tuple[str, ...],
) -> list[Any]:
    """Back through the turns, the last one first."""
    grads = dict(zip(arriving, douts, strict=True))
    for tape in reversed(tapes):
        tape.back(grads, frozenset(wanted))
    return [
        grads[name] if name in grads else zeros_like(value) for name, value in zip(wanted, x, strict=True)
    ]
