# SPDX-License-Identifier: Apache-2.0
"""Containers for rows of a table: gradients from trainers, and blocks to and from checkpoints.

In a float16 table, a stored row consists of 4-byte cells: its values, two float16 (IEEE 754 binary16) per cell, then
everything else. Everywhere else, values are float32. Widening is exact, and narrowing a widened number gives the
original float16. Narrowing rounds to the nearest, ties to even; a NaN becomes quiet and keeps its sign and the upper
bits of its payload. `kernels/halves.h` is the compiled form.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError
from paddle.optim.spec import RowGradient
from paddle_node.contract.classes import NamedTuple

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.uint16]

ROW_DTYPES = ("float32", "float16")
MOST, OVERFLOW = 65504.0, 65520.0
"""The largest half, and the smallest float32 that does not become a finite one."""
_INFINITE, _QUIET = 0x7C00, 0x0200


def narrowed(numbers: Floats) -> Halves:
    """Return float32 numbers of any shape rounded to float16, ties to even."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        halves = numbers.astype(np.float16).view(np.uint16)
    if (is_nan := np.isnan(numbers)).any():
        bits = np.ascontiguousarray(numbers).view(np.uint32)[is_nan]
        halves[is_nan] = (bits >> 16 & 0x8000) | _INFINITE | _QUIET | (bits >> 13 & 0x3FF)
    return halves


def widened(halves: Halves) -> Floats:
    """Return float16 numbers of any shape as float32, exactly."""
    is_nan = halves & np.uint16(0x7FFF) > _INFINITE
    quiet = np.where(is_nan, halves | np.uint16(_QUIET), halves) if is_nan.any() else halves
    return quiet.view(np.float16).astype(np.float32)


def largest_of(halves: Halves, most: int = 0) -> int:
    """Return the largest magnitude among float16 numbers and `most`, as bits."""
    return int((halves & np.uint16(0x7FFF)).max(initial=np.uint16(most)))


def magnitude(bits: int) -> float:
    """Return the magnitude of a float16 number, given as bits; infinity for NaN."""
    return float(np.uint16(min(bits, _INFINITE)).view(np.float16))


def cells_of(width: int, floats: int, *, is_half: bool) -> int:
    """Return the number of cells of a row with `floats` numbers, of which `width` are values."""
    return floats - width + (width + 1) // 2 if is_half else floats


def packed(parts: Floats, width: int, *, is_half: bool) -> Floats:
    """Return rows (parts, n, part) float32 in their stored form, (n, cells) of 4 bytes each."""
    count, n, part = parts.shape
    floats = np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(n, count * part)
    if not is_half:
        return floats
    cells = np.zeros((n, cells_of(width, floats.shape[1], is_half=True)), np.float32)
    cells.view(np.uint16)[:, :width] = narrowed(floats[:, :width])
    cells[:, (width + 1) // 2 :] = floats[:, width:]
    return cells


def unpacked(cells: Floats, shape: tuple[int, int], width: int, *, is_half: bool) -> npt.NDArray[Any]:
    """Return rows (parts, n, part) from their contiguous stored form (n, cells).

    Args:
        shape: parts and part.
    """
    if is_half:
        values = widened(cells.view(np.uint16)[:, :width])
        cells = np.concatenate((values, cells[:, (width + 1) // 2 :]), axis=1)
    return cells.reshape(len(cells), *shape).swapaxes(0, 1)


NO_IDS = np.zeros(0, np.int64)
_CELLS = "cells"
"""Of a stored block: its rows, if values are float16."""


class Block(NamedTuple):
    """A block of a table's rows with their states and ticks. The receiver owns its arrays.

    Attributes:
        ids: (n,) int64, in any order.
        parts: (1 + states, n, width) float32: values, then each of the rule's states; states with one number per row
            are additional columns.
        ticks: (n,) uint32: see `ticks`.
    """

    ids: npt.NDArray[np.int64]
    parts: npt.NDArray[np.float32]
    ticks: npt.NDArray[np.uint32]

    def stored(self, halves: int) -> dict[str, npt.NDArray[Any]]:
        """Return name -> array of the block for a checkpoint; values are packed as float16 if `halves` is not 0."""
        if not halves:
            return self._asdict()
        cells = packed(self.parts, halves, is_half=True)
        return {"ids": self.ids, _CELLS: cells.view(np.uint32), "ticks": self.ticks}

    @classmethod
    def read(
        cls,
        arrays: Mapping[str, npt.NDArray[Any]],
        table: str,
        shape: tuple[int, int],
        halves: int,
        holds: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
    ) -> Block:
        """Return a server's rows as a block; its arrays are copies or views of the arrays that `stored` returned.

        Args:
            table: the name of the table, for errors.
            shape: parts and part.
            holds: function that returns which of ids (n,) belong to the server.

        Raises:
            CheckpointError: the arrays belong to a table of a different dtype, or have different dtypes or shapes.
        """
        if (_CELLS in arrays) != bool(halves):
            there, here = ("float16", "float32") if _CELLS in arrays else ("float32", "float16")
            raise CheckpointError(
                f"table {table}: the checkpoint has rows of dtype {there}, but the table has dtype {here}; resume with "
                f"dtype={there!r}, or export the table from the checkpoint and give its directory as start"
            )
        ids, rows, ticks = (
            np.require(arrays[name], requirements=("C", "A", "W"))
            for name in ("ids", _CELLS if halves else "parts", "ticks")
        )
        dtypes = [str(each.dtype) for each in (ids, rows, ticks)]
        wanted = ["int64", "uint32" if halves else "float32", "uint32"]
        if dtypes != wanted:
            raise CheckpointError(
                f"table {table}: expected ids, rows and ticks of dtypes {', '.join(wanted)}, got {', '.join(dtypes)}"
            )
        chosen = holds(ids)
        mine = slice(None) if chosen.all() else chosen
        if not halves:
            return cls(ids[mine], rows[:, mine], ticks[mine])
        cells = cells_of(halves, shape[0] * shape[1], is_half=True)
        if rows.shape != (len(ids), cells):
            raise CheckpointError(
                f"table {table}: rows to restore: expected {(len(ids), cells)}, got {rows.shape}"
            )
        rows = unpacked(rows[mine].view(np.float32), shape, halves, is_half=True)
        return cls(ids[mine], rows, ticks[mine])


class Sightings(NamedTuple):
    """The ids (n,) int64 without a row, and the number of batches (n,) uint32 that contained each."""

    ids: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint32]


class Header(NamedTuple):
    """The state of a whole table besides its rows, for a snapshot or checkpoint.

    Attributes:
        clock: number of batches so far.
        caught_up: the batch at which all rows were last decayed.
        waiting: sightings of the current and of the previous period.
        hand: the segment at which the next eviction begins.
        dropped: (n,) ids of rows that were dropped since the batch at which the snapshot's blocks begin.
        generation: the table's generation (see `Lineage`); 0 means unknown.
    """

    clock: int
    caught_up: int
    waiting: tuple[Sightings, Sightings]
    hand: int = 0
    dropped: npt.NDArray[np.int64] = NO_IDS
    generation: int = 0


class Lineage(NamedTuple):
    """The identity of a table's batches, whose numbers are meaningful only together with a generation.

    Attributes:
        generation: random number of the batches since this process created or restored the table; 0 means unknown.
        earlier: generation of the checkpoint from which the table was restored; 0 means there is none.
        until: batch of that checkpoint; later batches of that generation are not part of this table.
    """

    generation: int = 0
    earlier: int = 0
    until: int = 0

    def at(self, batch: int) -> int:
        """Return the generation in which the batch with this number was counted."""
        return self.generation if batch > self.until or not self.earlier else self.earlier

    def has(self, generation: int, batch: int) -> bool:
        """Return whether a batch of a generation is part of this table; True if the generation is unknown."""
        return generation in (0, self.at(batch))


def new_generation() -> int:
    """Return a random generation number above 0, exactly representable as float64."""
    return secrets.randbits(52) + 1


def ids_of(gradients: Sequence[RowGradient]) -> npt.NDArray[np.int64]:
    """Return the row ids of all gradients as one array (n,), in the given order."""
    return np.concatenate([NO_IDS, *(gradient.rows for gradient in gradients)])


def joined(
    gradients: Sequence[RowGradient], width: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return all ids (n,) and values (n, width), in the given order; values of a single gradient are not copied.

    Columns beyond the width, which contain shows and clicks, are omitted.
    """
    if not gradients:
        return NO_IDS, np.zeros((0, width), np.float32)
    if len(gradients) == 1:
        rows, values = gradients[0]
        return plain(rows), np.require(values[:, :width], requirements=("C", "A"))
    return ids_of(gradients), np.concatenate([gradient.values[:, :width] for gradient in gradients])


def plain(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ids in the form that kernels need: C-contiguous and aligned."""
    return ids if ids.flags.c_contiguous and ids.flags.aligned else ids.copy()
