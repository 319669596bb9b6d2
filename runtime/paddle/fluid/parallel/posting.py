# SPDX-License-Identifier: Apache-2.0
"""An operator that hands values to a function while a program runs; it is in no table and in no file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from paddle import graph
from paddle.ops.base.registry import OpDef, Slot

_TYPE = "post_gradients"


@dataclass(frozen=True)
class _Posting(graph.Operator):
    """See above; `made` stands for what others find in the table."""

    made: OpDef | None = None

    @property
    def definition(self) -> OpDef:
        assert self.made is not None
        return self.made


def posting(names: Sequence[str], taken: Callable[[Sequence[Any]], None]) -> graph.Operator:
    """Return an operator that calls `taken` with the values of some variables, which it must not change."""

    def kernel(values: Sequence[Any]) -> tuple[()]:
        taken(values)
        return ()

    nothing = frozenset[str]()
    definition = OpDef(
        _TYPE,
        (Slot("X", many=True),),
        (),
        MappingProxyType({}),
        kernel,
        None,
        nothing,
        nothing,
        has_effect=True,
    )
    return _Posting(_TYPE, {"X": tuple(names)}, {}, {}, definition)
