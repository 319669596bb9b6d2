# SPDX-License-Identifier: Apache-2.0
"""Propagates LoD through a program; a value with sequences is a `LoDArray`, all others are plain arrays.

- An operator with slots marked `+` in its signature gets such inputs with their LoD, and sets the LoD of its outputs
  itself.
- Every other operator gets plain arrays. Each output with as many rows as the first input that has LoD shares that LoD,
  unless the operator is registered with `shares_lod=False` or a function that excludes it.
- Gradients have no LoD, and neither have parameters and state: persistable variables of lod_level 0 that a run reads
  and writes.
- Calls that never meet LoD are not wrapped: which variables can have it follows from the feeds and the scope.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from paddle.graph.operator import Operator
from paddle.ops.base.lod import Lod, LoDArray, lod_of, offsets_of, plain, with_lod
from paddle.ops.base.registry import OpDef

__all__ = ["LoDArray", "Lod", "carriers", "lod_of", "offsets_of", "plain", "sharing", "with_lod"]


def carriers(ops: Iterable[Operator], sources: Iterable[str], never: Collection[str]) -> set[str]:
    """Return the variables that can have LoD while the operators run.

    Args:
        sources: the variables that have LoD beforehand.
        never: variables that never have LoD, regardless of the operator that writes them.
    """
    found = {*sources}
    for op in ops:
        definition = op.definition
        if definition.lod_aware or (definition.shares_lod and not found.isdisjoint(op.reads)):
            found.update(name for name in op.writes if name not in never)
    return found


def sharing(kernel: Callable[..., Any], definition: OpDef, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    """Wrap a kernel so that unmarked slots receive plain arrays and its outputs share the inputs' LoD."""
    marked = tuple(slot.lod for slot in definition.inputs)
    if definition.lod_aware:

        def call_marked(*values: Any, **keywords: Any) -> Any:
            return kernel(*map(_given, values, marked), **keywords)

        return call_marked
    shares = definition.shares_lod

    def call(*values: Any, **keywords: Any) -> Any:
        for value in values:
            if type(value) is LoDArray or type(value) is list:
                break
        else:
            return kernel(*values, **keywords)
        source = _first_with_lod(values) if shares else None
        result = kernel(*map(_plain, values), **keywords)
        if source is None or (callable(shares) and not shares(attrs, source.data.ndim)):
            return result
        return _shared(result, source.lod)

    return call


def _given(value: Any, marked: bool) -> Any:
    return value if marked else _plain(value)


def _plain(value: Any) -> Any:
    if type(value) is list:
        return [plain(each) for each in value]
    return value.data if type(value) is LoDArray else value


def _first_with_lod(values: Iterable[Any]) -> LoDArray | None:
    for value in values:
        for each in value if type(value) is list else (value,):
            if type(each) is LoDArray:
                return each
    return None


def _shared(result: Any, lod: Lod) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(_shared(each, lod) for each in result)
    shape = getattr(result, "shape", ())
    return LoDArray.unchecked(result, lod) if shape and shape[0] == lod[-1][-1] else result
