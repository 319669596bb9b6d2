# SPDX-License-Identifier: Apache-2.0
"""Growing tables from the parts of a checkpoint, however many servers wrote them: rows go by their ids.

Rows of a later file replace those of an earlier one; who waits for entry, and the clock, are of the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from paddle.errors import CheckpointError
from paddle.pserver.checkpoint.manifest import DataFile, Manifest
from paddle.pserver.checkpoint.piece import IDS, WAITING, Piece, pieces_of
from paddle.pserver.sparse.blocks import Block, Header, Sightings
from paddle.pserver.sparse.serving import ServedTable

_DTYPES = tuple(map(np.dtype, (np.int64, np.float32, np.uint32)))


def grow(served: ServedTable, root: Path, parts: Sequence[Manifest]) -> None:
    """Fill a table that was just made with its share of the rows in `parts`.

    Raises:
        CheckpointError: a file is gone, or no part has the table.
        PserverError: the rows are of another shape, or there is no room for them.
    """
    name = served.share.spec.name
    numbers = [part.numbers[name] for part in parts if name in part.numbers]
    if not numbers:
        raise CheckpointError(f"table {name} is missing")
    latest = [part.files[-1] for part in parts]
    waiting = _waiting(served, root, latest, 0), _waiting(served, root, latest, 1)
    clock, caught_up = (int(max(each[what] for each in numbers)) for what in ("clock", "caught_up"))
    served.table.restore(Header(clock, caught_up, waiting), _blocks(served, root, parts))


def _blocks(served: ServedTable, root: Path, parts: Sequence[Manifest]) -> Iterator[Block]:
    for part in parts:
        for piece in _pieces(served, root, part.files):
            if not piece.place:
                ids, values, ticks = (piece.arrays[name] for name in Block._fields)
                if (ids.dtype, values.dtype, ticks.dtype) != _DTYPES:
                    raise CheckpointError(f"table {piece.parameter}: rows of other dtypes than {_DTYPES}")
                mine = served.share.holds(np.ascontiguousarray(ids))
                if mine.all():
                    yield Block(ids, values, ticks)
                elif mine.any():
                    yield Block(ids[mine], values[:, mine], ticks[mine])


def _waiting(served: ServedTable, root: Path, files: Sequence[DataFile], period: int) -> Sightings:
    found = [Sightings(np.zeros(0, np.int64), np.zeros(0, np.uint32))]
    for piece in _pieces(served, root, files):
        if piece.place.get(WAITING) == period:
            ids, counts = (piece.arrays[name] for name in Sightings._fields)
            mine = served.share.holds(np.ascontiguousarray(ids))
            found.append(Sightings(ids[mine], counts[mine]))
    return Sightings(
        np.concatenate([each.ids for each in found]), np.concatenate([each.counts for each in found])
    )


def _pieces(served: ServedTable, root: Path, files: Sequence[DataFile]) -> Iterator[Piece]:
    for file in files:
        for piece in pieces_of(root / file.path, file.nbytes):
            if piece.parameter == served.share.spec.name and IDS in piece.arrays:
                yield piece
