# SPDX-License-Identifier: Apache-2.0
"""Which inputs of an operator are spent: nobody reads them afterwards, so that it may put its result there.

Only values count that cannot share memory with any other: an operator that is `fresh` made them, and whatever
read them meanwhile was `fresh` too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from paddle.graph.operator import Operator
from paddle.ops.base.registry import NO_SLOTS


def spent_inputs(ops: Sequence[Operator], kept: Collection[str]) -> list[frozenset[str]]:
    """Return for each operator, in order, the slots it may write to.

    Args:
        ops: those that run.
        kept: variables whose values come from outside or leave the plan.
    """
    last = _last_reads(ops)
    owned: set[str] = set()
    result = []
    for at, op in enumerate(ops):
        reads = Counter(op.input_names)
        found = NO_SLOTS
        if "spent" in op.definition.keywords:
            found = frozenset(
                slot
                for slot, names in op.inputs.items()
                if len(names) == 1 and names[0] in owned and reads[names[0]] == 1 and names[0] in last[at]
            )
        result.append(found)
        if not op.definition.fresh:
            owned.difference_update(reads)
        owned.difference_update(op.output_names)
        if op.definition.fresh:
            owned.update(name for name in op.output_names if name not in kept)
    return result


def _last_reads(ops: Sequence[Operator]) -> list[frozenset[str]]:
    """Return for each operator those of its inputs that are not read again before they are written anew."""
    later: set[str] = set()
    found = []
    for op in reversed(ops):
        later.difference_update(op.output_names)
        found.append(frozenset(name for name in op.input_names if name not in later))
        later.update(op.input_names)
    return found[::-1]
