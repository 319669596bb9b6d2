# SPDX-License-Identifier: Apache-2.0
"""Updates as early as they can be: right behind their gradient, whose array is then free for the next one.

No number changes: an update comes after whatever writes what it reads, and after whatever reads or writes what it
writes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paddle.fluid.program.operator import Operator, OpRole


def moved_ahead(ops: Sequence[Operator], kept: Collection[str]) -> list[Operator]:
    """Return the operators with each update as far ahead as it can be.

    Args:
        ops: of one block, in order.
        kept: an update that reads or writes one of these stays behind everything that was ahead of it.
    """
    result: list[Operator] = []
    for op in ops:
        if op.role == OpRole.OPTIMIZE and not _touches(op, kept):
            result.insert(_first_place(result, op), op)
        else:
            result.append(op)
    return result


def _first_place(before: Sequence[Operator], op: Operator) -> int:
    reads, writes = set(op.input_names), set(op.output_names)
    for place in range(len(before), 0, -1):
        other = before[place - 1]
        written = set(other.output_names)
        if written & reads or written & writes or writes.intersection(other.input_names):
            return place
    return 0


def _touches(op: Operator, names: Collection[str]) -> bool:
    return any(name in names for name in (*op.input_names, *op.output_names))
