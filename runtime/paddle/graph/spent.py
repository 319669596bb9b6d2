# SPDX-License-Identifier: Apache-2.0
"""Which inputs of an operator are spent: nobody reads them afterwards, so that it may put its result there.

Only values count that cannot share memory with any other: an operator that is `fresh` made them, and whatever
read them meanwhile was `fresh` too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from paddle.graph.operator import Operator
from paddle.ops.registry import NO_SLOTS


def spent_inputs(ops: Sequence[Operator], kept: Collection[str]) -> list[frozenset[str]]:
    """Return for each operator, in order, the slots it may write to.

    Args:
        ops: those that run.
        kept: variables whose values come from outside or leave the plan.
    """
    writes = Counter(name for op in ops for name in op.output_names)
    last = {name: at for at, op in enumerate(ops) for name in op.input_names}
    owned: set[str] = set()
    result = []
    for at, op in enumerate(ops):
        reads = Counter(op.input_names)
        found = NO_SLOTS
        if "spent" in op.definition.keywords:
            found = frozenset(
                slot
                for slot, names in op.inputs.items()
                if len(names) == 1 and names[0] in owned and reads[names[0]] == 1 and last[names[0]] == at
            )
        result.append(found)
        if op.definition.fresh:
            owned.update(name for name in op.output_names if writes[name] == 1 and name not in kept)
        else:
            owned.difference_update(reads)
    return result
