# SPDX-License-Identifier: Apache-2.0
"""unroll and unroll_back: run a body over time steps, forward and backward, for recurrent and dynamic_recurrent.

At step t, the first `counts[t]` entries of the states continue; counts never grow. An entry is a row or a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paddle.backend import Array, array_module
from paddle.ops.base.body import Body, Products, Tape
from paddle.ops.base.entries import as_before, leading
from paddle.ops.math.scale import sum_


@dataclass(frozen=True)
class Names:
    """The names of variables of the body that `unroll` reads or writes.

    Attributes:
        before: the states that a step reads.
        after: the same states as the step writes them.
        outputs: the variables to collect.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    outputs: tuple[str, ...]


class Unrolled(NamedTuple):
    """The result of `unroll`: the outputs of each step, and each step's tape (empty if not requested).

    Attributes:
        heights: number of rows of each state after each step.
    """

    outputs: dict[str, list[Any]]
    tapes: tuple[Tape, ...]
    heights: list[list[int]]


class Gradients(NamedTuple):
    """The gradients of the steps' inputs, of shared inputs, and of the initial states (None: no gradient)."""

    steps: list[dict[str, Any]]
    fixed: dict[str, Any]
    first: list[Array | None]


def unroll(
    body: Body,
    steps: Sequence[Mapping[str, Any]],
    counts: Sequence[int],
    first: Sequence[Any],
    names: Names,
    trace: bool,
) -> Unrolled:
    """Run the body once per step.

    Args:
        steps: the inputs of each step, except the states.
        trace: whether to record tapes, which `unroll_back` needs.
    """
    outputs: dict[str, list[Any]] = {name: [] for name in names.outputs}
    states, tapes, heights = list(first), [], []
    for turn, (given, rows) in enumerate(zip(steps, counts, strict=True)):
        states = [leading(state, rows) for state in states]
        values = {**given, **dict(zip(names.before, states, strict=True))}
        if trace:
            tapes.append(body.trace(values, turn))
        else:
            body.run(values, turn)
        states = [as_before(values[name], state) for name, state in zip(names.after, states, strict=True)]
        heights.append([len(state) for state in states])
        for name in outputs:
            outputs[name].append(values[name])
    return Unrolled(outputs, tuple(tapes), heights)


def unroll_back(
    tapes: Sequence[Tape],
    douts: Mapping[str, Sequence[Array]],
    names: Names,
    given: Sequence[str],
    fixed: Sequence[str],
    heights: Sequence[Sequence[int]],
) -> Gradients:
    """Backpropagate through all steps.

    Args:
        tapes: the tapes from `unroll`.
        douts: output -> its gradient at each step.
        given: the inputs of each step that need a gradient.
        fixed: the shared inputs that need a gradient.
        heights: the result of `unroll`.
    """
    wanted = frozenset((*given, *fixed, *names.before))
    carried: list[Array | None] = [None] * len(names.before)
    steps: list[dict[str, Any]] = []
    totals: dict[str, Any] = {}
    products: Products = {name: [] for name in fixed}
    for turn in reversed(range(len(tapes))):
        grads: dict[str, Any] = {name: parts[turn] for name, parts in douts.items()}
        for name, state, rows in zip(names.after, carried, heights[turn], strict=True):
            if state is not None:
                _add(grads, name, padded(state, rows))
        tapes[turn].back(grads, wanted, products)
        carried = [grads.get(name) for name in names.before]
        steps.append({name: grads[name] for name in given if name in grads})
        for name in fixed:
            if name in grads:
                _add(totals, name, grads[name])
    for name, pairs in products.items():
        if pairs:
            xp = array_module(pairs[0][0])
            rows, douts_of = (xp.concatenate(each) for each in zip(*pairs, strict=True))
            _add(totals, name, rows.T @ douts_of)
    return Gradients(steps[::-1], totals, carried)


def summed(names: Sequence[str], grads: Sequence[Array | None]) -> dict[str, Array]:
    """Return the gradients of initial states by name; a variable that initializes several states receives the sum."""
    totals: dict[str, Array] = {}
    for name, grad in zip(names, grads, strict=True):
        if grad is not None:
            _add(totals, name, grad)
    return totals


def padded(value: Array, rows: int) -> Array:
    """Pad a value with zeros to `rows` rows."""
    if len(value) == rows:
        return value
    whole: Array = array_module(value).zeros((rows, *value.shape[1:]), value.dtype)
    whole[: len(value)] = value
    return whole


def _add(grads: dict[str, Any], name: str, value: Any) -> None:
    grads[name] = sum_([grads[name], value]) if name in grads else value
