# SPDX-License-Identifier: Apache-2.0
"""Protects readers of earlier values from in-place updates, and finds inputs that have no later reader.

The first part finds outputs that must not share memory with an array that an operator changes in place while they are
still needed. A value may share memory with such an array if an operator computed it, without being `fresh`, from the
array or from another value that may share its memory.

The second part finds the spent inputs of each operator: those without a later reader, whose memory can take the result.
Only values that cannot share memory with any other count: a `fresh` operator made them, and every operator that read
them since is `fresh` too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from paddle.graph.operator import Operator
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.registry import NO_SLOTS
from paddle.ops.base.selected_rows import SelectedRows
from paddle_node.contract.classes import NamedTuple


def owner(value: Any) -> Any:
    """Return the object that owns the memory of an array, of selected rows' values, or of a LoDArray's rows."""
    if isinstance(value, SelectedRows):
        value = value.values
    elif isinstance(value, LoDArray):
        value = value.data
    base = getattr(value, "base", None)
    while base is not None:
        value, base = base, getattr(base, "base", None)
    return value


def copied(value: Any) -> Any:
    """Return a copy of a value, which shares no memory with the original."""
    if isinstance(value, SelectedRows):
        return SelectedRows(value.rows.copy(), value.values.copy(), value.height)
    return value.copy() if hasattr(value, "copy") else value


def copying(kernel: Callable[..., Any], op: Operator, feeds: frozenset[str]) -> Callable[..., Any]:
    """Wrap a kernel so that it copies inputs that it changes although their variables must not change."""
    definition = op.definition
    positions = []
    for out_slot, in_slot in definition.in_place.items():
        before, after = op.inputs[in_slot], op.outputs[out_slot]
        if before and (before != after or not feeds.isdisjoint(before)):
            positions.append(next(i for i, slot in enumerate(definition.inputs) if slot.name == in_slot))
    if not positions:
        return kernel

    def call(*values: Any) -> Any:
        given = list(values)
        for position in positions:
            given[position] = copied(given[position])
        return kernel(*given)

    return call


def unsharing(
    kernel: Callable[..., Any], late: Sequence[bool], sources: Sequence[bool]
) -> Callable[..., Any]:
    """Wrap a kernel so that it copies outputs in the slots `late` that share memory with inputs in `sources`."""

    def call(*values: Any, **keywords: Any) -> Any:
        result = kernel(*values, **keywords)
        owners = {
            id(owner(each))
            for value, is_source in zip(values, sources, strict=True)
            if is_source
            for each in (value if type(value) is list else (value,))
        }
        if len(late) == 1:
            return _apart(result, owners)
        return tuple(
            _apart(each, owners) if is_late else each for each, is_late in zip(result, late, strict=True)
        )

    return call


def _apart(result: Any, owners: set[int]) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(_apart(each, owners) for each in result)
    return copied(result) if result is not None and id(owner(result)) in owners else result


class Exposed(NamedTuple):
    """The slots of one operator that need copies.

    Attributes:
        late: outputs that are read after a change in place of an array whose memory they may share.
        sources: inputs that may share memory with such an array.
    """

    late: frozenset[str]
    sources: frozenset[str]


NOT_EXPOSED = Exposed(NO_SLOTS, NO_SLOTS)


def exposed(ops: Sequence[Operator], kept: Collection[str]) -> list[Exposed]:
    """Return the slots of each operator that need copies, in the order of operators.

    Args:
        kept: variables whose values are needed after the plan has run.
    """
    changes: dict[str, list[int]] = {}
    for at, op in enumerate(ops):
        for slot in op.definition.in_place.values():
            for name in op.inputs[slot]:
                changes.setdefault(name, []).append(at)
        for name in op.writes if op.definition.overwrites else ():
            changes.setdefault(name, []).append(at)
    if not changes:
        return [NOT_EXPOSED] * len(ops)
    last_use = {name: at for at, op in enumerate(ops) for name in (*op.reads, *op.writes)}
    roots: dict[str, set[str]] = {name: {name} for name in changes}
    result = []
    for at, op in enumerate(ops):
        shared = set().union(*(roots.get(name, ()) for name in op.reads))
        if op.definition.fresh or op.definition.in_place or not shared:
            for name in op.writes:
                if name not in changes:
                    roots.pop(name, None)
            result.append(NOT_EXPOSED)
            continue
        sources = frozenset(slot for slot, names in op.inputs.items() if any(map(roots.get, names)))
        ends = {name: len(ops) if name in kept else last_use[name] for name in op.writes}
        moments = [moment for root in shared for moment in changes[root]]
        late = {name for name, end in ends.items() if any(at < moment <= end for moment in moments)}
        for name in op.writes:
            # A late output gets its own memory.
            roots[name] = set() if name in late else set(shared)
        slots = frozenset(slot for slot, names in op.outputs.items() if not late.isdisjoint(names))
        result.append(Exposed(slots, sources) if slots else NOT_EXPOSED)
    return result


def spent_inputs(ops: Sequence[Operator], kept: Collection[str]) -> list[frozenset[str]]:
    """Return, for each operator in order, the input slots that the operator may overwrite.

    Args:
        kept: variables whose values come from outside the plan or are returned from it.
    """
    last = _last_reads(ops)
    owned: set[str] = set()
    result = []
    for at, op in enumerate(ops):
        reads = Counter(op.reads)
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
        owned.difference_update(op.writes)
        if op.definition.fresh:
            owned.update(name for name in op.writes if name not in kept)
    return result


def _last_reads(ops: Sequence[Operator]) -> list[frozenset[str]]:
    """Return the inputs of each operator that are not read again before they are overwritten."""
    later: set[str] = set()
    found = []
    for op in reversed(ops):
        later.difference_update(op.writes)
        found.append(frozenset(name for name in op.reads if name not in later))
        later.update(op.reads)
    return found[::-1]
