# SPDX-License-Identifier: Apache-2.0
"""Keeps updates in place from showing where they should not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle.graph.operator import Operator
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.selected_rows import SelectedRows


def owner(value: Any) -> Any:
    """Return the object that owns the memory of an array, of selected rows' values or of sequences' rows."""
    if isinstance(value, SelectedRows):
        value = value.values
    elif isinstance(value, LoDArray):
        value = value.data
    base = getattr(value, "base", None)
    while base is not None:
        value, base = base, getattr(base, "base", None)
    return value


def copied(value: Any) -> Any:
    """Return the same value in memory of its own."""
    if isinstance(value, SelectedRows):
        return SelectedRows(value.rows.copy(), value.values.copy(), value.height)
    return value.copy()


def copying(kernel: Callable[..., Any], op: Operator, feeds: frozenset[str]) -> Callable[..., Any]:
    """Return the kernel with copies of those inputs that it would change though their variable must stay."""
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
    """Return the kernel with those outputs copied, slot by slot, that are `late` and share memory with `sources`."""

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
