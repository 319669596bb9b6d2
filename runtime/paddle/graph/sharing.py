# SPDX-License-Identifier: Apache-2.0
"""Which outputs must not share memory with arrays that an operator changes in place while they are still needed.

A value may share memory with such an array if an operator made it of the array, or of a value that may, without
being `fresh`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from paddle.graph.operator import Operator
from paddle.ops.base.registry import NO_SLOTS


class Exposed(NamedTuple):
    """Slots of one operator.

    Attributes:
        late: outputs that are read after an array was changed which they may share memory with.
        sources: inputs that may share memory with such an array.
    """

    late: frozenset[str]
    sources: frozenset[str]


NOT_EXPOSED = Exposed(NO_SLOTS, NO_SLOTS)


def exposed(ops: Sequence[Operator], kept: Collection[str]) -> list[Exposed]:
    """Return what each operator, in order, has to look out for.

    Args:
        ops: those that run.
        kept: variables whose values are needed when the plan has run.
    """
    changes: dict[str, list[int]] = {}
    for at, op in enumerate(ops):
        for slot in op.definition.in_place.values():
            for name in op.inputs[slot]:
                changes.setdefault(name, []).append(at)
    if not changes:
        return [NOT_EXPOSED] * len(ops)
    last_use = {name: at for at, op in enumerate(ops) for name in (*op.input_names, *op.output_names)}
    roots: dict[str, set[str]] = {name: {name} for name in changes}
    result = []
    for at, op in enumerate(ops):
        shared = set().union(*(roots.get(name, ()) for name in op.input_names))
        if op.definition.fresh or op.definition.in_place or not shared:
            for name in op.output_names:
                if name not in changes:
                    roots.pop(name, None)
            result.append(NOT_EXPOSED)
            continue
        sources = frozenset(slot for slot, names in op.inputs.items() if any(map(roots.get, names)))
        ends = {name: len(ops) if name in kept else last_use[name] for name in op.output_names}
        moments = [moment for root in shared for moment in changes[root]]
        late = {name for name, end in ends.items() if any(at < moment <= end for moment in moments)}
        for name in op.output_names:
            # One that is late gets memory of its own.
            roots[name] = set() if name in late else set(shared)
        slots = frozenset(slot for slot, names in op.outputs.items() if not late.isdisjoint(names))
        result.append(Exposed(slots, sources) if slots else NOT_EXPOSED)
    return result
