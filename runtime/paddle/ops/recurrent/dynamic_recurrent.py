# SPDX-License-Identifier: Apache-2.0
"""dynamic_recurrent: runs a body for each step of sequences of different lengths, all sequences together.

Sequences are sorted longest first. At each step, the body gets the items of the sequences that have not ended, and the
same number of entries of the states. An item is a row, or a sequence if the input has two levels. With `level` 1, the
steps are those of the inner sequences, and only the outputs have the outer level. `Statics` and
`States` have one entry (a row or a sequence) per sequence and are truncated in the same way. Outputs are in the
original order, and have one more level if a step outputs sequences. Variables have the same names inside and outside
the body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.body import Body, Tape
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import (
    Lod,
    LoDArray,
    Offsets,
    ends_of,
    lod_of,
    plain,
    sequences,
    with_lod,
    zeros_like,
)
from paddle.ops.base.registry import GRAD, GradOp, gradient_maker, operator
from paddle.ops.base.segments import TimeSteps, at, chosen, count_of, leading, lengths, ranges, taken
from paddle.ops.base.selected_rows import no_gradient
from paddle.ops.recurrent.recurrent import Names, summed, unroll, unroll_back
from paddle_node.contract.classes import NamedTuple


class StepRows(NamedTuple):
    """The row numbers of sequences in time order: all first steps, then all second steps, and so on.

    Attributes:
        rows: (rows,) row numbers, step by step.
        bounds: the rows of step t are rows[bounds[t]:bounds[t + 1]].
        levels: offsets, from 0, of the sequences that each step reads; empty where an item is a row.
    """

    rows: Offsets
    bounds: list[int]
    levels: list[Offsets]

    @staticmethod
    def of(steps: TimeSteps, inner: Lod = ()) -> StepRows:
        """Return the rows of the steps; if items are sequences, `inner` is the LoD level below the steps."""
        if not inner:
            return StepRows(steps.rows, steps.bounds.tolist(), [])
        (level,) = inner
        counts = lengths(level)[steps.rows]
        ends = ends_of(counts)
        bounds = ends[steps.bounds].tolist()
        parts = [ends[part.start : part.stop + 1] - ends[part.start] for part in steps]
        return StepRows(ranges(level[:-1][steps.rows], counts), bounds, parts)

    def cut(self, x: Any) -> list[Any]:
        """Split `x` into the rows or sequences that each time step reads; return one value per step."""
        ordered = plain(x)[at(self.rows, plain(x))]
        parts = [ordered[start:end] for start, end in zip(self.bounds[:-1], self.bounds[1:], strict=True)]
        return [*map(LoDArray, parts, [(level,) for level in self.levels])] if self.levels else parts

    def joined(self, parts: Sequence[Array | None], like: Array) -> Array:
        """Return rows shaped like x, assembled from each step's rows; zeros for a step without rows (None)."""
        xp = array_module(like)
        out = xp.zeros_like(like) if any(part is None for part in parts) else xp.empty_like(like)
        for start, end, part in zip(self.bounds[:-1], self.bounds[1:], parts, strict=True):
            if part is not None:
                out[at(self.rows[start:end], out)] = part
        return out


def collected(parts: Sequence[Any], steps: TimeSteps, outer: Lod) -> tuple[Any, Lod]:
    """Assemble the values of all steps as sequences. If they are sequences themselves, also return their LoD level."""
    rows = [plain(part) for part in parts]
    xp = array_module(rows[0])
    ordered = xp.concatenate(rows)
    inner: Lod = ()
    if isinstance(parts[0], LoDArray):
        counts = np.empty(int(steps.bounds[-1]), np.int64)
        counts[steps.rows] = np.concatenate([lengths(part.lod[0]) for part in parts])
        inner = (ends_of(counts),)
    back = xp.empty_like(ordered)
    back[at(StepRows.of(steps, inner).rows, ordered)] = ordered
    return with_lod(back, (*outer, *inner)), inner


def steps_of(inputs: list[Any], reverse: bool) -> TimeSteps:
    """Return the time steps of the input sequences.

    Raises:
        InputError: an input has no sequences, or its lengths differ from those of the first input.
    """
    for x in inputs:
        sequences(x, "Inputs")
    lods = [lod_of(x) for x in inputs]
    if any(len(lod) > 2 for lod in lods):
        raise InputError(f"step inputs must have one or two levels of LoD, got {[len(lod) for lod in lods]}")
    for lod in lods[1:]:
        if not np.array_equal(lods[0][0], lod[0]):
            counts = [np.diff(each[0]).tolist() for each in (lods[0], lod)]
            what = ["sub-sequences" if len(each) == 2 else "rows" for each in (lods[0], lod)]
            raise InputError(
                "step inputs must have the same number of items in each sequence: one has "
                f"{counts[0]} {what[0]}, another has {counts[1]} {what[1]}"
            )
    return TimeSteps.of(lods[0][0], reverse)


def below(x: Any, level: int) -> Any:
    """Return the input without its first `level` levels of LoD."""
    if level and len(lod_of(x)) <= level:
        raise InputError(f"step_input(level={level}) needs {level + 1} levels of LoD, got {len(lod_of(x))}")
    return with_lod(plain(x), lod_of(x)[level:]) if level else x


def ranked(value: Any, steps: TimeSteps) -> Any:
    """Sort the entries of a static input or a state by the length of their sequences, longest first."""
    if count_of(value) != len(steps.order):
        what = "sequences" if lod_of(value) else "rows"
        raise InputError(f"there are {len(steps.order)} sequences, but a state has {count_of(value)} {what}")
    return taken(value, steps.order)


def unranked(value: Any, parts: Sequence[Array | None], steps: TimeSteps) -> Array:
    """Return the gradient of a value that `ranked` sorted: the sum over steps, in the original order."""
    ordered = zeros_like(value)
    for part in parts:
        if part is not None:
            ordered[: len(part)] += part
    rows, _ = chosen(lod_of(value), steps.order)
    dx = zeros_like(value)
    dx[at(rows, dx)] = ordered
    return dx


_Names = Mapping[str, Sequence[str]]
_READ = ("Inputs", "Statics", "States", "Parameters")


class Ran(NamedTuple):
    """The record of a forward run over all steps, which the backward run needs.

    Attributes:
        heights: number of rows of each state after each step.
        inner: output -> the LoD level below the steps; empty where an item is a row.
    """

    tapes: tuple[Tape, ...]
    heights: list[list[int]]
    inner: dict[str, Lod]


@operator(
    "dynamic_recurrent",
    "Inputs+* Statics+*? States+*? Parameters+*? -> Outputs+* StepScopes?",
    attrs={"sub_block": int},
)
def dynamic_recurrent(
    inputs: list[Any],
    statics: list[Any],
    first: list[Any],
    parameters: list[Any],
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    level: int = 0,
    reverse: bool = False,
    is_test: bool = False,
    body: Body,
    names: _Names,
    needs: frozenset[str],
) -> tuple[list[Any], Ran]:
    """Run the body once per time step; return the outputs as sequences, and a record of the steps.

    `reverse` starts at the last step.
    """
    outer = lod_of(inputs[0])[: level + 1]
    inputs = [below(x, level) for x in inputs]
    steps = steps_of(inputs, reverse)
    fixed = dict(zip(names["Parameters"], parameters, strict=True))
    given = [dict(fixed) for _ in steps]
    for name, x in zip(names["Inputs"], inputs, strict=True):
        for values, part in zip(given, StepRows.of(steps, lod_of(x)[1:]).cut(x), strict=True):
            values[name] = part
    counts = np.diff(steps.bounds).tolist()
    for name, value in zip(names["Statics"], statics, strict=True):
        whole = ranked(value, steps)
        for values, count in zip(given, counts, strict=True):
            values[name] = leading(whole, count)
    states = [ranked(state, steps) for state in first]
    bound = Names(before, after, tuple(names["Outputs"]))
    found = unroll(body, given, counts, states, bound, not is_test and "StepScopes" in needs)
    outputs = {}
    inner = {}
    for name in bound.outputs:
        _check_items(found.outputs[name], name, counts)
        outputs[name], inner[name] = collected(found.outputs[name], steps, outer)
    return [outputs[name] for name in bound.outputs], Ran(found.tapes, found.heights, inner)


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
                "level": attrs["level"],
                "reverse": attrs["reverse"],
                "arriving": arriving,
                "wanted": [name for names in wanted.values() for name in names],
                "rows": bodies.rows(wanted["Parameters"]),
            },
        )
    ]


@operator(
    "dynamic_recurrent_grad",
    "Inputs+* Statics+*? States+*? Parameters*? StepScopes Outputs@GRAD* -> "
    "Inputs@GRAD*? Statics@GRAD*? States@GRAD*? Parameters@GRAD*?",
)
def dynamic_recurrent_grad(
    inputs: list[Any],
    statics: list[Any],
    first: list[Any],
    parameters: list[Any],
    ran: Ran,
    douts: list[Array],
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    level: int = 0,
    reverse: bool = False,
    arriving: tuple[str, ...] = (),
    wanted: tuple[str, ...] = (),
    rows: tuple[str, ...] = (),
    names: _Names,
) -> tuple[list[Array], list[Array], list[Array], list[Any]]:
    """Return the gradients of inputs, statics, initial states and parameters, by backpropagation through the steps."""
    inputs = [below(x, level) for x in inputs]
    steps = steps_of(inputs, reverse)
    parts = {
        name: [plain(part) for part in StepRows.of(steps, ran.inner[name]).cut(dout)]
        for name, dout in zip(arriving, douts, strict=True)
    }
    asked = {slot: [name for name in dict.fromkeys(names[slot]) if name in wanted] for slot in _READ}
    bound = Names(before, after, ())
    given = asked["Inputs"] + asked["Statics"]
    found = unroll_back(ran.tapes, parts, bound, given, asked["Parameters"], ran.heights)
    value = {
        name: each
        for slot, values in zip(_READ, (inputs, statics, first, parameters), strict=True)
        for name, each in zip(names[slot], values, strict=True)
    }
    dfirst = summed(names["States"], found.first)
    return (
        [
            StepRows.of(steps, lod_of(value[name])[1:]).joined(
                [step.get(name) for step in found.steps], plain(value[name])
            )
            for name in asked["Inputs"]
        ],
        [unranked(value[name], [step.get(name) for step in found.steps], steps) for name in asked["Statics"]],
        [unranked(value[name], [dfirst.get(name)], steps) for name in asked["States"]],
        [
            found.fixed[name] if name in found.fixed else no_gradient(value[name], name in rows)
            for name in asked["Parameters"]
        ],
    )


def _check_items(parts: list[Any], name: str, counts: list[int]) -> None:
    if not parts:
        raise InputError(
            f"all sequences are empty, so the shape of output {name!r} is unknown: feed at least one nonempty "
            "sequence"
        )
    for part, count in zip(parts, counts, strict=True):
        if count_of(part) != count or len(lod_of(part)) > 1:
            what = "sequences" if lod_of(part) else "rows"
            raise InputError(
                f"output {name!r} has {count_of(part)} {what} in a step; expected {count}, one per sequence"
                if len(lod_of(part)) < 2
                else f"output {name!r} has sequences of sequences in a step, but at most two levels are supported"
            )
