# SPDX-License-Identifier: Apache-2.0
"""Takes operators out of the body of a group where all steps can be computed at once.

An operator that goes row by row through what a step sees of sequences, and reads no state, runs once before the steps,
over the rows of all of them. One whose result no state and no other operator of the body needs runs once behind them.
Names inside and outside are the same, so an operator moves as it is; numbers differ by the rounding of larger products.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from paddle.graph import Block
from paddle.graph.operator import Operator
from paddle.v2.activation import OPERATORS

# operator -> slots of rows, of which each has its own result; what else it reads is the same at every step
_ROW_BY_ROW: Mapping[str, tuple[str, ...]] = {
    **{kind: ("X",) for kind, _ in OPERATORS.values() if kind and not kind.startswith("sequence")},
    "concat": ("X",),
    "elementwise_add": ("X",),
    "gru_unit": ("Input", "HiddenPrev"),
    "lookup_table": ("Ids",),
    "mul": ("X",),
    "scale": ("X",),
    "sum": ("X",),
}
_OF_PARAMETERS = frozenset({"lookup_table", "reshape2"})


class Hoisted(NamedTuple):
    """What moved.

    Attributes:
        inputs: of the steps that the body still reads, by name.
        before: operators that went in front, whose results may be among `inputs`.
        behind: those that follow.
        outputs: what the steps put out now.
    """

    inputs: list[str]
    before: list[Operator]
    behind: list[Operator]
    outputs: list[str]


def hoist(
    body: Block, inputs: Sequence[str], rows: Iterable[str], kept: Collection[str], outputs: Sequence[str]
) -> Hoisted:
    """Take operators out of a body.

    Args:
        body: loses them.
        inputs: what goes step by step.
        rows: everything that the body is given a row an item of: inputs, static ones and states.
        kept: what the states are after a step.
        outputs: what a step puts out.
    """
    constants = [
        op
        for op in body.ops
        if op.type in _OF_PARAMETERS
        and not any(name in body.vars for name in op.input_names)
        and set(op.output_names).isdisjoint((*kept, *outputs))
    ]
    changing = set(body.vars).difference(name for op in constants for name in op.output_names)
    at_once = {name for name in inputs if not body.vars[name].lod_level}
    before: list[Operator] = []
    for op in body.ops:
        stays = op in constants or not set(op.output_names).isdisjoint(kept)
        if not stays and _goes_by_rows(op, at_once, changing, body):
            at_once.update(op.output_names)
            before.append(op)
    body.ops[:] = [op for op in body.ops if op not in constants and op not in before]
    items = {*rows, *at_once}
    for op in body.ops:
        if _goes_by_rows(op, items, changing, body):
            items.update(op.output_names)
    movable = items & ({name for op in body.ops for name in op.output_names} | at_once)
    behind: list[Operator] = []
    for op in reversed(list(body.ops)):
        needed = {*kept, *(name for each in body.ops if each is not op for name in each.input_names)}
        if needed.isdisjoint(op.output_names) and _goes_by_rows(op, movable, changing, body):
            body.ops.remove(op)
            behind.insert(0, op)
    inside = {name for op in body.ops for name in op.output_names}
    wanted = [*outputs, *(name for op in behind for name in op.input_names)]
    read = {name for op in body.ops for name in op.input_names}
    # An input that nobody reads is still compared with the others.
    done_with = {name for op in before for name in op.input_names} - read
    new = [name for op in before for name in op.output_names if name in read]
    return Hoisted(
        [*(name for name in inputs if name not in done_with), *new] or list(inputs[:1]),
        [*constants, *before],
        behind,
        [name for name in dict.fromkeys(wanted) if name in inside],
    )


def _goes_by_rows(op: Operator, rows: Collection[str], changing: Collection[str], body: Block) -> bool:
    """Whether it makes a row of each row, of which it needs nothing else that changes from step to step."""
    slots = _ROW_BY_ROW.get(op.type)
    if slots is None or (op.type == "concat" and op.attrs.get("axis") != 1):
        return False
    for slot, names in op.inputs.items():
        if slot in slots:
            if not names or not all(name in rows for name in names):
                return False
        elif any(name in changing for name in names):
            return False
    return not any(body.vars[name].lod_level for name in op.output_names)
