# SPDX-License-Identifier: Apache-2.0
"""Unrolling a body over steps, forward and back; recurrent and dynamic_recurrent are faces of it.

At step t the first `counts[t]` rows of the states go on; counts never grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paddle.backend import Array, array_module
from paddle.ops.base.body import Body, Tape
from paddle.ops.base.lod import plain
from paddle.ops.math.sum import sum_


@dataclass(frozen=True)
class Names:
    """Variables of the body.

    Attributes:
        before: states as a step sees them.
        after: the same states as the step leaves them.
        outputs: what is collected.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    outputs: tuple[str, ...]


class Unrolled(NamedTuple):
    """Outputs step by step, output -> steps; how each step ran (empty if that was not asked for)."""

    outputs: dict[str, list[Array]]
    tapes: tuple[Tape, ...]


class Gradients(NamedTuple):
    """Of what each step was given, of what all steps read, and of the states before the first (None: nothing)."""

    steps: list[dict[str, Any]]
    fixed: dict[str, Any]
    first: list[Array | None]


def unroll(
    body: Body,
    steps: Sequence[Mapping[str, Any]],
    counts: Sequence[int],
    first: Sequence[Array],
    names: Names,
    trace: bool,
) -> Unrolled:
    """Run the body once a step.

    Args:
        body: what a step does.
        steps: what each step is given besides the states.
        counts: rows of the states that go on.
        first: states before the first step.
        names: of states and outputs.
        trace: whether gradients will be asked for.
    """
    outputs: dict[str, list[Array]] = {name: [] for name in names.outputs}
    states, tapes = list(first), []
    for turn, (given, rows) in enumerate(zip(steps, counts, strict=True)):
        values = {**given, **{name: state[:rows] for name, state in zip(names.before, states, strict=True)}}
        if trace:
            tapes.append(body.trace(values, turn))
        else:
            body.run(values, turn)
        states = [plain(values[name]) for name in names.after]
        for name in names.outputs:
            outputs[name].append(plain(values[name]))
    return Unrolled(outputs, tuple(tapes))


def unroll_back(
    tapes: Sequence[Tape],
    counts: Sequence[int],
    douts: Mapping[str, Sequence[Array]],
    names: Names,
    given: Sequence[str],
    fixed: Sequence[str],
) -> Gradients:
    """Go back through all steps.

    Args:
        tapes: of `unroll`.
        counts: as there.
        douts: output -> its gradient step by step.
        names: of states and outputs.
        given: what each step was given and wants a gradient of.
        fixed: what all steps read and wants a gradient of.
    """
    wanted = frozenset((*given, *fixed, *names.before))
    carried: list[Array | None] = [None] * len(names.before)
    steps: list[dict[str, Any]] = []
    totals: dict[str, Any] = {}
    for turn in reversed(range(len(tapes))):
        grads: dict[str, Any] = {name: parts[turn] for name, parts in douts.items()}
        for name, state in zip(names.after, carried, strict=True):
            if state is not None:
                _add(grads, name, padded(state, counts[turn]))
        tapes[turn].back(grads, wanted)
        carried = [grads.get(name) for name in names.before]
        steps.append({name: grads[name] for name in given if name in grads})
        for name in fixed:
            if name in grads:
                _add(totals, name, grads[name])
    return Gradients(steps[::-1], totals, carried)


def padded(value: Array, rows: int) -> Array:
    """Return the value with zeros behind, `rows` in all."""
    if len(value) == rows:
        return value
    whole: Array = array_module(value).zeros((rows, *value.shape[1:]), value.dtype)
    whole[: len(value)] = value
    return whole


def _add(grads: dict[str, Any], name: str, value: Any) -> None:
    grads[name] = sum_([grads[name], value]) if name in grads else value
