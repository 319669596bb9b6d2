# SPDX-License-Identifier: Apache-2.0
"""Checks results: a run stops at the first operator that produces NaN or infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.backend import array_module
from paddle.graph.lod import plain
from paddle.graph.operator import Operator
from paddle.ops.base.errors import OpError
from paddle.ops.base.selected_rows import SelectedRows


class NotFiniteError(OpError):
    """An operator produced NaN or infinity."""


def checked(call: Any, op: Operator, numbers: Mapping[str, int]) -> Any:
    """Return a call over registers that also checks the floating point numbers it writes."""
    written = [(name, numbers[name]) for name in op.output_names if name in numbers]

    def check(registers: list[Any]) -> None:
        call(registers)
        for name, number in written:
            _check(name, registers[number])

    return check


def _check(name: str, value: Any) -> None:
    value = plain(value.values if isinstance(value, SelectedRows) else value)
    if getattr(getattr(value, "dtype", None), "kind", "") != "f":
        return
    xp = array_module(value)
    if not xp.isfinite(value).all():
        what = "NaN" if xp.isnan(value).any() else "infinity"
        raise NotFiniteError(f"variable {name!r} contains {what} (FLAGS_check_nan_inf is set)")
