# SPDX-License-Identifier: Apache-2.0
"""dynamic_recurrent: a body over the steps of sequences, one step of all sequences at once.

Sequences are sorted longest first. At each step the body gets the rows of the sequences that have not ended, and as
many entries of the states. `Statics` and `States` have one entry (a row or a sequence) per sequence and are cut in the
same way. Outputs have the original order. Names in the body are those outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.body import Body, Tape
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import Lod, LoDArray, Offsets, ends_of, lod_of, plain, sequences, zeros_like
from paddle.ops.base.registry import GRAD, GradOp, gradient_maker, operator
from paddle.ops.base.segments import TimeSteps, at, lengths, ranges
from paddle.ops.recurrent.unroll import Names, leading, unroll, unroll_back

_ATTRS = {"sub_block": int, "before": (), "after": (), "is_test": False}
_Names = Mapping[str, Sequence[str]]
_READ = ("Inputs", "Statics", "States", "Parameters")


@operator(
    "dynamic_recurrent", "Inputs+* Statics+*? States+*? Parameters+*? -> Outputs+* StepScopes?", attrs=_ATTRS
)
def dynamic_recurrent(
    inputs: list[Any],
    statics: list[Any],
    first: list[Any],
    parameters: list[Any],
    *,
    before: tuple[str, ...],
    after: tuple[str, ...],
    is_test: bool,
    body: Body,
    names: _Names,
    needs: frozenset[str],
) -> tuple[list[LoDArray], tuple[Tape, ...]]:
    """Return the outputs with the inputs' LoD, and how each step ran."""
    steps = _steps(inputs)
    fixed = dict(zip(names["Parameters"], parameters, strict=True))
    given = [dict(fixed) for _ in steps]
    for name, x in zip(names["Inputs"], inputs, strict=True):
        ordered = steps.by_time(plain(x))
        for values, rows in zip(given, steps, strict=True):
            values[name] = ordered[rows]
    counts = np.diff(steps.bounds).tolist()
    for name, value in zip(names["Statics"], statics, strict=True):
        whole = _ranked(value, steps.order)
        for values, count in zip(given, counts, strict=True):
            values[name] = leading(whole, count)
    states = [_ranked(state, steps.order) for state in first]
    bound = Names(before, after, tuple(names["Outputs"]))
    found = unroll(body, given, counts, states, bound, not is_test and "StepScopes" in needs)
    outputs = [_joined(found.outputs[name], name, steps, inputs[0]) for name in bound.outputs]
    return outputs, found.tapes


@gradient_maker("dynamic_recurrent")
def _maker(inputs: _Names, outputs: _Names, attrs: Mapping[str, Any], bodies: Any) -> list[GradOp]:
    arriving = bodies.arriving(outputs["Outputs"])
    wanted = {slot: bodies.wanted(inputs[slot]) for slot in _READ}
    return [
        GradOp(
            "dynamic_recurrent_grad",
            {
                **inputs,
                "StepScopes": outputs["StepScopes"],
                "Outputs@GRAD": [name + GRAD for name in arriving],
            },
            {slot + GRAD: [name + GRAD for name in names] for slot, names in wanted.items()},
            {
                "before": attrs["before"],
                "after": attrs["after"],
                "arriving": arriving,
                "wanted": [name for names in wanted.values() for name in names],
            },
        )
    ]


@operator(
    "dynamic_recurrent_grad",
    "Inputs+* Statics+*? States+*? Parameters*? StepScopes Outputs@GRAD* -> "
    "Inputs@GRAD*? Statics@GRAD*? States@GRAD*? Parameters@GRAD*?",
    attrs={"before": (), "after": (), "arriving": (), "wanted": ()},
)
def dynamic_recurrent_grad(
    inputs: list[Any],
    statics: list[Any],
    first: list[Any],
    parameters: list[Any],
    tapes: tuple[Tape, ...],
    douts: list[Array],
    *,
    before: tuple[str, ...],
    after: tuple[str, ...],
    arriving: tuple[str, ...],
    wanted: tuple[str, ...],
    names: _Names,
) -> tuple[list[Array], list[Array], list[Array], list[Any]]:
    """Back through the steps."""
    steps = _steps(inputs)
    parts = {}
    for name, dout in zip(arriving, douts, strict=True):
        ordered = steps.by_time(dout)
        parts[name] = [ordered[rows] for rows in steps]
    asked = {slot: [name for name in names[slot] if name in wanted] for slot in _READ}
    counts = np.diff(steps.bounds).tolist()
    bound = Names(before, after, ())
    levels = [_ranked_rows(lod_of(state), steps.order)[1] if lod_of(state) else None for state in first]
    found = unroll_back(
        tapes, counts, parts, bound, asked["Inputs"] + asked["Statics"], asked["Parameters"], levels
    )
    value = {
        name: each
        for slot, values in zip(_READ, (inputs, statics, first, parameters), strict=True)
        for name, each in zip(names[slot], values, strict=True)
    }
    dfirst = dict(zip(names["States"], found.first, strict=True))
    return (
        [
            _input_gradient(value[name], [step.get(name) for step in found.steps], steps)
            for name in asked["Inputs"]
        ],
        [
            _static_gradient(value[name], [step.get(name) for step in found.steps], steps)
            for name in asked["Statics"]
        ],
        [_static_gradient(value[name], [dfirst[name]], steps) for name in asked["States"]],
        [
            found.fixed[name] if name in found.fixed else zeros_like(value[name])
            for name in asked["Parameters"]
        ],
    )


def _steps(inputs: list[Any]) -> TimeSteps:
    """Return the steps.

    Raises:
        InputError: an input has no sequences or others than the first one.
    """
    offsets = [sequences(x, "Inputs")[1] for x in inputs]
    if any(len(lod_of(x)) != 1 for x in inputs) or any(
        not np.array_equal(offsets[0], each) for each in offsets
    ):
        raise InputError("all step inputs must have one level of LoD, and the same one")
    return TimeSteps.of(offsets[0])


def _checked(value: Any, order: Offsets) -> Any:
    if len(value) != len(order):
        raise InputError(f"there are {len(order)} sequences, and a state with {len(value)} rows")
    return value


def _ranked(value: Any, order: Offsets) -> Any:
    """Return a static input or a state with its entries longest sequence first."""
    lod = lod_of(value)
    if not lod:
        return _checked(value, order)[at(order, value)]
    if len(lod) != 1:
        raise InputError("a static input or state must have one level of LoD at most")
    _checked(lod[0][1:], order)
    rows, offsets = _ranked_rows(lod, order)
    return LoDArray(value.data[at(rows, value.data)], (offsets,))


def _ranked_rows(lod: Lod, order: Offsets) -> tuple[Offsets, Offsets]:
    counts = lengths(lod[0])[order]
    return ranges(lod[0][:-1][order], counts), ends_of(counts)


def _joined(parts: list[Array], name: str, steps: TimeSteps, like: LoDArray) -> LoDArray:
    if not parts:
        raise InputError(f"no sequence has a row, so nothing says how the output {name!r} would look")
    for part, rows in zip(parts, steps, strict=True):
        if len(part) != rows.stop - rows.start:
            raise InputError(
                f"output {name!r} has {len(part)} rows at a step of {rows.stop - rows.start} sequences"
            )
    return LoDArray(steps.by_sequence(array_module(parts[0]).concatenate(parts)), like.lod)


def _input_gradient(x: LoDArray, parts: list[Array | None], steps: TimeSteps) -> Array:
    ordered = zeros_like(x)
    for rows, part in zip(steps, parts, strict=True):
        if part is not None:
            ordered[rows] = part
    return steps.by_sequence(ordered)


def _static_gradient(value: Any, parts: list[Array | None], steps: TimeSteps) -> Array:
    ranked = zeros_like(value)
    for part in parts:
        if part is not None:
            ranked[: len(part)] += part
    lod = lod_of(value)
    if not lod:
        return steps.restored(ranked)
    rows, _ = _ranked_rows(lod, steps.order)
    dx = zeros_like(value)
    dx[at(rows, dx)] = ranked
    return dx
