# SPDX-License-Identifier: Apache-2.0
"""conditional_block runs a block if a condition is true; while repeats a block as long as its condition is true.

`Input` of conditional_block lists all variables that the block reads, and variables of `Out` that exist before; the
latter keep their values if the block does not run.

The block of while writes the condition itself. `X` lists all outer variables that the block reads, and variables of
`Out` that exist before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.backend import Array
from paddle.ops.base.body import Body, Tape
from paddle.ops.base.registry import GRAD, GradOp, gradient_maker, operator
from paddle.ops.base.selected_rows import no_gradient

_Names = Mapping[str, Sequence[str]]


@operator("conditional_block", "Cond* Input+*? -> Out+*? Scope?", attrs={"sub_block": int})
@operator("conditional_block_infer", "Cond* Input+*? -> Out+*? Scope?", attrs={"sub_block": int})
def conditional_block(
    cond: list[Array],
    given: list[Any],
    *,
    is_scalar_condition: bool = False,
    body: Body,
    names: _Names,
    needs: frozenset[str],
    is_test: bool = False,
) -> tuple[list[Any], tuple[Tape, ...]]:
    """Run the block if Cond is true; return the values of Out and a record of the run, if there was one.

    Without is_scalar_condition, the block runs unless one of Cond is empty.
    """
    values = dict(zip(names["Input"], given, strict=True))
    holds = bool(cond[0].reshape(-1)[0]) if is_scalar_condition else all(each.size for each in cond)
    tapes: tuple[Tape, ...] = ()
    if holds and not is_test and "Scope" in needs:
        tapes = (body.trace(values),)
    elif holds:
        body.run(values)
    return [values.get(name) for name in names["Out"]], tapes


@operator("while", "X+*? Condition -> Out+*? StepScopes?", attrs={"sub_block": int})
def while_loop(
    x: list[Any], condition: Any, *, body: Body, names: _Names, needs: frozenset[str], is_test: bool = False
) -> tuple[list[Any], tuple[Tape, ...]]:
    """Run the block as long as Condition is true; return the last values of Out, and a record of each iteration."""
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


def _maker(op_type: str, reads: str, records: str) -> Callable[..., list[GradOp]]:
    """Return the maker of a gradient, given the slots of the variables that the block reads and of its records."""

    def make(inputs: _Names, outputs: _Names, attrs: Mapping[str, object], bodies: Any) -> list[GradOp]:
        arriving, wanted = bodies.arriving(outputs["Out"]), bodies.wanted(inputs[reads])
        given = {records: outputs[records], reads: wanted, "Out@GRAD": [name + GRAD for name in arriving]}
        own = {
            "arriving": [name.removesuffix("@AFTER") for name in arriving],
            "wanted": wanted,
            "rows": bodies.rows(wanted),
        }
        return [GradOp(op_type, given, {f"{reads}@GRAD": [name + GRAD for name in wanted]}, own)]

    return make


gradient_maker("conditional_block")(_maker("conditional_block_grad", "Input", "Scope"))
gradient_maker("while")(_maker("while_grad", "X", "StepScopes"))


@operator("conditional_block_grad", "Scope Input* Out@GRAD+* -> Input@GRAD+*")
@operator("while_grad", "StepScopes X+* Out@GRAD+* -> X@GRAD+*")
def block_grad(
    tapes: tuple[Tape, ...],
    given: list[Any],
    douts: list[Any],
    *,
    arriving: tuple[str, ...] = (),
    wanted: tuple[str, ...] = (),
    rows: tuple[str, ...] = (),
) -> list[Any]:
    """Return the gradients of the inputs, propagated back through each run of the block, the last one first.

    If the block did not run, they are the unchanged gradients of Out.
    """
    grads = dict(zip(arriving, douts, strict=True))
    for tape in reversed(tapes):
        tape.back(grads, frozenset(wanted))
    return [
        grads[name] if name in grads else no_gradient(value, name in rows)
        for name, value in zip(wanted, given, strict=True)
    ]
