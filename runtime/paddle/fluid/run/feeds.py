# SPDX-License-Identifier: Apache-2.0
"""Conversion of feeds, which can be split over several places, and of fetched values.

Fed arrays have the variable's dtype and, optionally, LoD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle import graph
from paddle.backend import to_host
from paddle.fluid.errors import FluidError, FluidTypeError, RunError
from paddle.fluid.run.scope import RowsHandle
from paddle.fluid.run.tensor import LoDTensor
from paddle.graph.block import Block
from paddle.graph.in_place import copied
from paddle.graph.scope import Fetched, Scope
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.lod import LoDArray, lod_of, plain, with_lod
from paddle.ops.base.selected_rows import SelectedRows, concatenated


def entering(value: Any, block: Block, name: str) -> Any:
    """Convert a fed value to the dtype and form of a variable of a block.

    Python numbers are converted to the variable's dtype. Arrays must have that dtype, or contain integers or shorter
    floating-point numbers that it represents exactly, which are converted. The run refuses other arrays.

    Raises:
        RunError: the value is a list of arrays, which has no shape.
        FluidTypeError: the value is not numeric, or is selected rows although the variable is a tensor.
    """
    variable = block.find(name)
    if isinstance(value, (LoDTensor, RowsHandle)):
        value = value.value()
    if isinstance(value, SelectedRows) and getattr(variable, "type", None) != VarType.SELECTED_ROWS:
        raise FluidTypeError(
            f"{name!r} was fed selected rows, but it is a tensor: feed an array with all rows"
        )
    if isinstance(value, LoDArray):
        if type(value.data) is np.ndarray and variable is not None and value.data.dtype == variable.dtype:
            return value
        return with_lod(_fitting(np.asarray(plain(value)), variable), lod_of(value))
    if isinstance(value, (list, tuple)) and any(
        isinstance(each, (np.ndarray, list, LoDTensor)) for each in value
    ):
        lengths = {np.shape(each) for each in value if not isinstance(each, LoDTensor)}
        if len(lengths) != 1:
            raise RunError(
                f"{name!r} was fed a list of values of several shapes: convert it to one array, or to "
                "a LoDTensor with fluid.create_lod_tensor"
            )
    if isinstance(value, np.ndarray) and value.dtype == object and getattr(variable, "lod_level", 0):
        rows = (-1, *block.var(name).shape[1:])
        raise RunError(
            f"{name!r} has lod_level={block.var(name).lod_level}, but was fed an array of objects: feed "
            f"fluid.create_lod_tensor(numpy.concatenate(sequences).reshape{rows}, [[len(each) for each in sequences]], "
            "place), or use fluid.DataFeeder"
        )
    if isinstance(value, Fetched):
        return _fitting(np.asarray(value), variable)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _fitting(value, variable)
    dtype = block.var(name).dtype
    if value is None:
        raise FluidTypeError(f"{name!r} was fed None: expected an array {block.var(name).shape} {dtype}")
    try:
        array = np.asarray(value, dtype)
        if array.dtype.kind == "f" and np.isnan(array).any() and has_none(value):
            raise ValueError("it contains None; a missing value needs a number")
        return array
    except (TypeError, ValueError, OverflowError) as error:
        raise FluidTypeError(f"{name!r} was fed a value that is not an array of {dtype}: {error}") from error


def has_none(value: Any) -> bool:
    """Return whether nested lists contain None, which numpy converts to NaN."""
    return value is None or (isinstance(value, (list, tuple)) and any(map(has_none, value)))


def _fitting(value: Any, variable: graph.Variable | None) -> Any:
    """Convert an array to a variable's dtype if that represents all its numbers exactly.

    Otherwise return it unchanged.
    """
    if variable is None or value.dtype == variable.dtype:
        return value
    if value.dtype.kind in "iu" and variable.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            converted = value.astype(variable.dtype)
            return converted if _is_exact(value, converted) else value
    return value.astype(variable.dtype) if np.can_cast(value.dtype, variable.dtype, "safe") else value


def _is_exact(integers: Any, converted: Any) -> bool:
    """Return whether integers were converted exactly; floats count only if they certainly convert back."""
    if converted.dtype.kind != "f":
        return bool((converted == integers).all())
    returns = abs(converted) < np.float64(1 << 63)  # larger values depend on the processor
    return bool(returns.all() and (converted.astype(integers.dtype) == integers).all())


def keep_persistable(values: Mapping[str, Any], block: Block, scope: Scope) -> dict[str, Any]:
    """Store fed values of persistable variables permanently in the scope; return the other values.

    Raises:
        RunError: a value has a different dtype than its variable.
    """
    others = {}
    for name, value in values.items():
        variable = block.find(name)
        if variable is None or not variable.persistable:
            others[name] = value
            continue
        if value.dtype != variable.dtype:
            raise RunError(
                f"{name!r}: expected {variable.shape} {variable.dtype}, was fed {tuple(value.shape)} "
                f"{value.dtype}: pass it as .astype('{variable.dtype}')"
            )
        scope.set(name, copied(value))
    return others


def split_feed(feed: Mapping[str, Any], parts: int, kind: str = "place") -> list[dict[str, Any]]:
    """Split a feed into one feed per part, such as a place; the last part gets the remainder.

    Raises:
        FluidError: a value has fewer samples than there are parts, or is selected rows.
    """
    if parts == 1:
        return [dict(feed)]
    split: list[dict[str, Any]] = [{} for _ in range(parts)]
    for name, value in feed.items():
        if isinstance(value, SelectedRows):
            raise FluidError(
                f"{name!r}: selected rows cannot be divided among {parts} {kind}s; feed a list of dicts"
            )
        count = len(value.lod[0]) - 1 if isinstance(value, LoDArray) else len(np.atleast_1d(value))
        if count < parts:
            raise FluidError(
                f"{name!r} has {count} samples for {parts} {kind}s: feed at least one per {kind}"
                + (", or a list of feeds" if kind == "place" else "")
            )
        size = count // parts
        for at, each in enumerate(split):
            each[name] = _part(value, at * size, count if at == parts - 1 else (at + 1) * size)
    return split


def joined(values: Sequence[Any]) -> Any:
    """Concatenate the values that several places fetched."""
    first = values[0]
    if isinstance(first, SelectedRows):
        return concatenated(values)
    if isinstance(first, LoDArray):
        data = np.concatenate([to_host(value.data) for value in values])
        levels = []
        for number in range(len(first.lod)):
            lengths = np.concatenate([np.diff(value.lod[number]) for value in values])
            levels.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))
        return LoDArray(data, tuple(levels))
    return np.concatenate([np.atleast_1d(to_host(value)) for value in values])


def _part(value: Any, start: int, end: int) -> Any:
    if not isinstance(value, LoDArray):
        return value[start:end]
    levels = []
    for level in value.lod:
        levels.append(level[start : end + 1] - level[start])
        start, end = int(level[start]), int(level[end])
    return LoDArray(value.data[start:end], tuple(levels))
