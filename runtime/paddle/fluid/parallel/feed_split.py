# SPDX-License-Identifier: Apache-2.0
"""Splits what is fed over places, by rows or by sequences, and joins what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.backend import to_host
from paddle.fluid.errors import FluidError
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.selected_rows import SelectedRows, concatenated


def split_feed(feed: Mapping[str, Any], parts: int) -> list[dict[str, Any]]:
    """Return a feed for each part; the last takes what is left over.

    Raises:
        FluidError: a value has fewer samples than there are parts.
    """
    split: list[dict[str, Any]] = [{} for _ in range(parts)]
    for name, value in feed.items():
        count = len(value.lod[0]) - 1 if isinstance(value, LoDArray) else len(value)
        if count < parts:
            raise FluidError(
                f"{name!r} has {count} samples for {parts} places: feed at least as many, or a list of feeds"
            )
        size = count // parts
        for at, each in enumerate(split):
            each[name] = _part(value, at * size, count if at == parts - 1 else (at + 1) * size)
    return split


def joined(values: Sequence[Any]) -> Any:
    """Return what several places fetched, one after the other."""
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
