# SPDX-License-Identifier: Apache-2.0
"""Errors of failed operators, with their inputs and fed values; NaN, infinity and values that costs do not expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from paddle.backend import array_module
from paddle.graph.errors import ExecutionError
from paddle.graph.lod import lod_of, plain
from paddle.graph.operator import Operator, warn_script
from paddle.ops.base.errors import OpError, RowError
from paddle.ops.base.registry import Spec
from paddle.ops.base.segments import joined
from paddle.ops.base.selected_rows import SelectedRows
from paddle_node.contract.classes import NamedTuple

Shape: TypeAlias = tuple[int, ...]
_RUNS, _ROUNDING = 3, 1e-3
_warned: set[str] = set()  # lines of scripts


def failed(
    op: Operator, position: int, value_of: Callable[[str], Any], error: Exception, notes: Sequence[str] = ()
) -> ExecutionError:
    """Return the error for an operator that failed.

    If the body of an operator failed, only the operator's type is named; the inner error has the details.

    Args:
        value_of: returns the value of one of its inputs, or None if it has no value yet.
    """
    if isinstance(error, ExecutionError):
        return ExecutionError(op.type, position, f"operator {position} {op.type}, in its body: {error}")
    parts = []
    for slot, names in op.inputs.items():
        for name in names:
            value = value_of(name)
            found = "" if value is None else f" {getattr(value, 'shape', '')} {getattr(value, 'dtype', '')}"
            parts.append(f"{slot}={name}{found}".rstrip())
    where = ""
    if isinstance(error, RowError):
        names = (error.variable,) if error.variable else op.inputs.get(error.slot, ())
        if len(names) == 1:
            where = f"{error.variable!r}, " if error.variable else ""
            where += _sample(value_of(names[0]), error.row)
    message = f"operator {position} {op.describe()} failed: {where}{error} [{'; '.join(parts)}]"
    if op.origin:
        message += f"; created {op.origin}"
    message += "".join(f"; {note}" for note in notes)
    return ExecutionError(op.type, position, message)


class Declared(NamedTuple):
    """The declaration of a fed variable.

    Attributes:
        line: "at file:line" of the script, or "".
        has_batch: whether `layers.data` has prepended the batch size to its shape.
    """

    spec: Spec
    line: str
    has_batch: bool


def shape_fits(shape: Shape, declared: Shape) -> bool:
    """Return whether the shape of a value matches the declared shape."""
    return shape == declared or (
        len(shape) == len(declared)
        and all(want in (-1, got) for got, want in zip(shape, declared, strict=True))
    )


def fed_notes(
    values: Mapping[str, Any], odd: Mapping[str, Shape], known: Mapping[str, Declared]
) -> list[str]:
    """Return what is wrong with fed values.

    Args:
        values: fed values that are not yet freed.
        odd: fed shapes that differ from the declared ones.
        known: declarations of all fed variables.
    """
    found = []
    for name in {**odd, **values}:
        spec, line, has_batch = known[name]
        where = f" {line}" if line else ""
        if line and spec.lod_level and name in values and not lod_of(values[name]):
            shape = f"shape {odd[name]}" if name in odd else "an array without LoD"
            found.append(
                f"{name!r} was fed with {shape}, but is declared {spec.shape}{where} with lod_level={spec.lod_level}: "
                "feed fluid.create_lod_tensor(data, [lengths], place), where data has the rows of all sequences, joined"
            )
        elif name in odd:
            text = f"{name!r} was fed with shape {odd[name]}, but is declared {spec.shape}{where}"
            found.append(text + _correction(odd[name], spec.shape, has_batch))
    return found + [text for text in [exchanged(odd, known)] if text]


def exchanged(odd: Mapping[str, Shape], known: Mapping[str, Declared]) -> str:
    """Return which two variables were fed with each other's values, if that explains all shapes, or ""."""
    for one, other in combinations(odd, 2) if len(odd) == 2 else ():
        if shape_fits(odd[one], known[other].spec.shape) and shape_fits(odd[other], known[one].spec.shape):
            return (
                f"{one!r} and {other!r} were fed with each other's values: feed_list has the order of the fields of a "
                "sample"
            )
    return ""


def _correction(shape: Shape, declared: Shape, has_batch: bool) -> str:
    if declared[-1:] == (1,) and shape_fits(shape, declared[:-1]):
        return f": reshape it, as in .reshape{declared}"
    if has_batch and shape == declared[1:] and len(shape) > 1:
        return (
            f": layers.data adds the batch size, so if this is {shape[0]}, declare shape={list(shape[1:])}, or pass "
            f"append_batch_size=False; feed one sample as a batch {(1, *shape)}"
        )
    return f": feed a batch, as in .reshape{(1, *shape)}" if has_batch and shape == declared[1:] else ""


def _sample(value: Any, row: int) -> str:
    lod = lod_of(value)
    return f"sample {int(np.searchsorted(joined(lod), row, 'right')) - 1} of the batch, " if lod else ""


class NotFiniteError(OpError):
    """Raised when an operator produced NaN or infinity."""


def checked(call: Any, op: Operator, numbers: Mapping[str, int]) -> Any:
    """Wrap a call so that it also checks that the floating-point values that it writes are finite."""
    written = [(name, numbers[name]) for name in op.writes if name in numbers]

    def check(registers: list[Any]) -> None:
        call(registers)
        for name, number in written:
            _check(name, registers[number])

    return check


def expecting(call: Any, op: Operator, numbers: Mapping[str, int]) -> Any:
    """Wrap a call of a cost so that its first runs warn of values that are hardly meant; see `_EXPECTED`."""
    slot, problem = _EXPECTED.get(op.type, ("", _none))
    number = numbers.get(next(iter(op.inputs.get(slot, ())), ""))
    if number is None or not op.origin:
        return call
    runs = iter(range(_RUNS))

    def check(registers: list[Any]) -> None:
        if next(runs, None) is not None and op.origin not in _warned:
            value = plain(registers[number])
            if getattr(value, "size", 0) and (text := problem(value, op)):
                _warned.add(op.origin)
                warn_script(text, op.origin if op.origin.startswith("at ") else "")
        call(registers)

    return check


def _logits(value: Any, op: Operator) -> str:
    least, most = float(value.min()), float(value.max())
    if not op.origin.startswith("at ") or not (
        least < -_ROUNDING or most > 1 + _ROUNDING
    ):  # NaN has another cause
        return ""
    return (
        f"cross_entropy expects probabilities, but its input {op.inputs['X'][0]!r} has values from {least:.3g} to "
        f'{most:.3g}: give the layer before act="softmax", or use softmax_with_cross_entropy'
    )


def _blanks(value: Any, op: Operator) -> str:
    blank = op.attrs["blank"]
    if not (value == blank).any():
        return ""
    return (
        f"the CTC cost created {op.origin} has blank={blank}, but labels {op.inputs['Label'][0]!r} contain {blank}: "
        "number the labels without the blank, such as from 1 with blank=0, or pass blank=N for labels 0 to N - 1; the "
        "input needs N + 1 values per step"
    )


def _none(value: Any, op: Operator) -> str:
    return ""


_EXPECTED: Mapping[str, tuple[str, Callable[[Any, Operator], str]]] = {
    "cross_entropy": ("X", _logits),
    "cross_entropy2": ("X", _logits),
    "warpctc": ("Label", _blanks),
}
"""Cost -> the slot whose values are checked, and a function that returns what is wrong with them, or ""."""


def _check(name: str, value: Any) -> None:
    value = plain(value.values if isinstance(value, SelectedRows) else value)
    if getattr(getattr(value, "dtype", None), "kind", "") != "f":
        return
    xp = array_module(value)
    if not xp.isfinite(value).all():
        what = "NaN" if xp.isnan(value).any() else "infinity"
        raise NotFiniteError(f"variable {name!r} contains {what} (FLAGS_check_nan_inf is set)")
