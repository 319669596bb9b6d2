# SPDX-License-Identifier: Apache-2.0
"""Growing tables from the parts of a checkpoint, however many servers wrote them: rows go by their ids.

Rows of a later file replace those of an earlier one; who waits for entry, and the clock, are of the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint.piece import IDS, WAITING, Piece
from paddle.pserver.sparse.blocks import Block, Header, Sightings
from paddle.pserver.sparse.serving import ServedTable

_DTYPES = tuple(map(np.dtype, (np.int64, np.float32, np.uint32)))


class Growth:
    """A table that was just made, on its way to its share of the rows in all parts."""

    def __init__(self, served: ServedTable) -> None:
        self._served, self._name = served, served.share.spec.name
        self._waiting: tuple[list[Sightings], list[Sightings]] = ([], [])

    def take(self, piece: Piece, *, is_latest: bool) -> None:
        """Take what is ours of a piece of this table, in the order of each part's files.

        Args:
            piece: see `Piece`; its arrays need not hold after the call.
            is_latest: it is of the last file of its part.

        Raises:
            CheckpointError: it has something else than rows.
            PserverError: the rows are of another shape, or there is no room for them.
        """
        if IDS not in piece.arrays:
            raise CheckpointError(f"table {self._name}: expected rows with ids, found {sorted(piece.arrays)}")
        ids = np.require(piece.arrays[IDS], requirements=("C", "A", "W"))
        mine = self._served.share.holds(ids)
        if not piece.place:
            self._fill(ids, piece, mine)
        elif is_latest:
            counts = piece.arrays["counts"]
            self._waiting[piece.place[WAITING]].append(Sightings(ids[mine], counts[mine]))

    def finish(self, numbers: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
        """Go on where the table was, after all pieces.

        Args:
            numbers: see `Manifest`, of each part.

        Raises:
            CheckpointError: no part has the table.
        """
        found = [each[self._name] for each in numbers if self._name in each]
        if not found:
            raise CheckpointError(f"table {self._name} is missing")
        clock, caught_up = (int(max(each[what] for each in found)) for what in ("clock", "caught_up"))
        waiting = _joined(self._waiting[0]), _joined(self._waiting[1])
        self._served.table.resume(Header(clock, caught_up, waiting))

    def _fill(self, ids: npt.NDArray[np.int64], piece: Piece, mine: npt.NDArray[np.bool_]) -> None:
        values, ticks = (
            np.require(piece.arrays[name], requirements=("C", "A", "W")) for name in Block._fields[1:]
        )
        if (ids.dtype, values.dtype, ticks.dtype) != _DTYPES:
            raise CheckpointError(f"table {self._name}: rows of other dtypes than {_DTYPES}")
        if mine.all():
            self._served.table.fill(Block(ids, values, ticks))
        elif mine.any():
            self._served.table.fill(Block(ids[mine], values[:, mine], ticks[mine]))


def _joined(found: Sequence[Sightings]) -> Sightings:
    none = Sightings(np.zeros(0, np.int64), np.zeros(0, np.uint32))
    return Sightings(*(np.concatenate(each) for each in zip(none, *found, strict=True)))
