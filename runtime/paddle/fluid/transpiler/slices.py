# SPDX-License-Identifier: Apache-2.0
"""Slices: ranges of rows that large parameters are cut into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Protocol


class Shaped(Protocol):
    """What can be cut."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """One range of rows of a variable.

    Attributes:
        origin: the variable.
        index: which of its slices.
        count: how many it has.
        shape: of the slice.
        offset: elements before it.
    """

    origin: str
    index: int
    count: int
    shape: tuple[int, ...]
    offset: int

    @property
    def first_row(self) -> int:
        """Rows before it."""
        return self.offset // prod(self.shape[1:])

    @property
    def name(self) -> str:
        """`<origin>.block<index>`, or the variable's own name if it is whole."""
        return f"{self.origin}.block{self.index}" if self.count > 1 else self.origin


def slice_variable(var_list: Sequence[Shaped], slice_count: int, min_block_size: int) -> list[str]:
    """Return `name:index:elements` of each slice of each variable."""
    return [
        f"{variable.name}:{index}:{size}"
        for variable in var_list
        for index, size in enumerate(block_sizes(variable.shape, slice_count, min_block_size))
    ]


def slices_of(variable: Shaped, slice_count: int, min_block_size: int) -> list[Slice]:
    """Return the slices of one variable."""
    sizes = block_sizes(variable.shape, slice_count, min_block_size)
    width = prod(variable.shape[1:])
    return [
        Slice(
            variable.name,
            index,
            len(sizes),
            (size // width, *variable.shape[1:]),
            sum(sizes[:index]),
        )
        for index, size in enumerate(sizes)
    ]


def block_sizes(shape: Sequence[int], slice_count: int, min_block_size: int) -> list[int]:
    """Return the elements of each slice: whole rows, as many slices as servers, each of a least size."""
    total = prod(shape)
    count = min(slice_count, max(1, total // min_block_size))
    size = ceil(total / count)
    if len(shape) >= 2:
        width = prod(shape[1:])
        size = ceil(size / width) * width
    return [min(size, total - start) for start in range(0, total, size)]
