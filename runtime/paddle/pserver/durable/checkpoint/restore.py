# SPDX-License-Identifier: Apache-2.0
"""Fills a store from the parts of a checkpoint, even if a different number of servers wrote them.

Dense blocks are cut to the new layout; rows are assigned by their ids. A missing element or row is an error; it is
never replaced by zero. In growing tables, rows of a later file replace those of an earlier one; the waiting ids and
the clock are those of the last file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError, ConfigError, PserverError
from paddle.pserver.durable.checkpoint.format import DROPPED, IDS, VALUE, WAITING, Manifest, Piece
from paddle.pserver.durable.checkpoint.reader import Reading
from paddle.pserver.durable.checkpoint.snapshot import NUMBERS, STORE
from paddle.pserver.sparse.blocks import Header, Sightings
from paddle.pserver.sparse.serving import ServedTable
from paddle.pserver.store.store import Store
from paddle.pserver.wire.placement import DenseShare

Columns = dict[str, npt.NDArray[Any]]


def load(
    store: Store, root: Path, parts: Sequence[Manifest], report: Callable[[str], None] = lambda _: None
) -> None:
    """Load a checkpoint into a new store, or into one into which loading another checkpoint failed.

    Args:
        root: folder with the files of `parts`.
        parts: the parts of all servers that wrote the checkpoint; if the placement is unchanged, this server's part
            suffices.
        report: function that is called with a description of the progress, once per file.

    Raises:
        CheckpointError: a file is missing, damaged, or of a different model. The store is then unusable.
    """
    for name, served in store.growing.items():
        if not served.is_untouched:
            store.growing[name] = store.new_table(served.share)
    files = [file for part in parts for file in part.files]
    latest = {part.files[-1] for part in parts}
    try:
        loader = _Loader(store)
        for (
            name,
            served,
        ) in store.growing.items():  # rows of more servers may exceed the budget: the oldest leave
            numbers = [part.numbers[name] for part in parts if name in part.numbers]
            served.table.clock = int(max((each.get("clock", 0) for each in numbers), default=0))
        # Each of several servers reads all files, so the page cache saves repeated reads from the disk.
        with Reading(root, files, past_cache=len(parts) == 1) as reading:
            number, last = 0, None
            for file, piece in reading:
                if file is not last:
                    number, last = number + 1, file
                    report(f"{number} of {len(files)} files")
                # every file contains whole dense parameters, but only the rows that changed since the previous file
                loader.take(piece, is_latest=file in latest)
        loader.finish([part.numbers for part in parts])
    except (ConfigError, PserverError, KeyError, ValueError, IndexError, TypeError, ArithmeticError) as error:
        raise CheckpointError(f"the checkpoint does not fit this model: {error!r}") from None


class _Loader:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._dense = {part.parameter.name: part for part in store.share.dense}
        self._columns: dict[str, Columns] = {
            name: {VALUE: store.slab[part.start : part.stop]} for name, part in self._dense.items()
        }
        self._filled = dict.fromkeys(self._dense, 0)
        self._growing = {name: _Growth(served) for name, served in store.growing.items()}
        self._seen = {name: np.zeros(table.share.height, np.bool_) for name, table in store.tables.items()}

    def take(self, piece: Piece, *, is_latest: bool) -> None:
        if piece.parameter in self._growing:
            self._growing[piece.parameter].take(piece, is_latest=is_latest)
        elif piece.place and is_latest and piece.parameter in self._dense:
            self._fill_dense(piece)
        elif not piece.place and piece.parameter in self._seen:
            self._fill_rows(piece)

    def finish(self, numbers: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
        for name, part in self._dense.items():
            if self._filled[name] != part.stop - part.start:
                raise CheckpointError(
                    f"parameter {name}: expected {part.stop - part.start} elements, found {self._filled[name]}"
                )
        for name, seen in self._seen.items():
            if not seen.all():
                raise CheckpointError(f"parameter {name}: {len(seen) - int(seen.sum())} rows are missing")
        for (name, _), updater in zip(self._dense.items(), self._store.updaters, strict=True):
            columns = self._columns[name]
            del columns[VALUE]
            updater.resume(int(_latest(numbers, name)["batches"]), columns)
        for name, table in self._store.tables.items():
            table.resume(dict(_latest(numbers, name)))
        for growth in self._growing.values():
            growth.finish(numbers)
        whole = _latest(numbers, STORE)
        self._store.version, self._store.num_samples = int(whole["version"]), int(whole["num_samples"])
        self._store.pass_id, self._store.pass_version = int(whole["pass_id"]), int(whole["pass_version"])

    def _fill_dense(self, piece: Piece) -> None:
        part, columns = self._dense[piece.parameter], self._columns[piece.parameter]
        if piece.place["size"] != part.size:
            raise CheckpointError(
                f"parameter {part.parameter.name}: expected {part.size} elements, but the checkpoint "
                f"has {piece.place['size']}: the model has changed since. Resume with the old model, "
                "or start from scratch"
            )
        for name, array in piece.arrays.items():
            if name not in columns:
                columns[name] = np.zeros(part.stop - part.start, array.dtype)
        for there, here, count in _runs(piece, part):
            for name, array in piece.arrays.items():
                columns[name][here : here + count] = array[there : there + count]
            self._filled[piece.parameter] += count

    def _fill_rows(self, piece: Piece) -> None:
        table = self._store.tables[piece.parameter]
        ids = piece.arrays[IDS]
        mine = table.share.holds(ids)
        local = table.share.local(ids if mine.all() else ids[mine])
        columns = table.columns
        if set(columns) | {IDS} != set(piece.arrays):
            raise CheckpointError(
                f"parameter {piece.parameter}: expected {sorted(columns)} for each row, but the "
                f"checkpoint has {sorted(set(piece.arrays) - {IDS})}: the optimizer has changed since. Resume with the "
                "old optimizer, or start from scratch"
            )
        for name, column in columns.items():
            array = piece.arrays[name]
            column[local] = array if mine.all() else array[mine]
        self._seen[piece.parameter][local] = True


class _Growth:
    """A new growing table that receives its share of the rows from all parts."""

    def __init__(self, served: ServedTable) -> None:
        self._served, self._name = served, served.share.spec.name
        self._waiting: tuple[list[Sightings], list[Sightings]] = ([], [])

    def take(self, piece: Piece, *, is_latest: bool) -> None:
        """Add this server's rows of a piece of this table, in the order of each part's files.

        Args:
            piece: see `Piece`; its arrays may be reused after the call.
            is_latest: whether it is of the last file of its part.

        Raises:
            CheckpointError: the piece contains something other than rows.
            PserverError: the rows have a different shape, or there is not enough room for them.
        """
        if IDS not in piece.arrays:
            raise CheckpointError(f"table {self._name}: expected rows with ids, found {sorted(piece.arrays)}")
        ids = np.require(piece.arrays[IDS], requirements=("C", "A", "W"))
        if not piece.place:
            self._served.fill(piece.arrays)
            return
        mine = self._served.share.holds(ids)
        if DROPPED in piece.place:
            self._served.table.forget(ids[mine])
        elif is_latest:
            counts = piece.arrays["counts"]
            self._waiting[piece.place[WAITING]].append(Sightings(ids[mine], counts[mine]))

    def finish(self, numbers: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
        """Restore the clock of the table, after all pieces.

        Args:
            numbers: the numbers in the `Manifest` of each part.

        Raises:
            CheckpointError: no part has the table.
        """
        found = [each[self._name] for each in numbers if self._name in each]
        if not found:
            raise CheckpointError(f"the checkpoint has no rows of table {self._name}")
        clock, caught_up, hand, generation = (
            int(max(each.get(what, 0) for each in found)) for what in NUMBERS
        )
        if len(found) > 1:
            generation = 0  # rows of several servers have several
        waiting = _joined(self._waiting[0]), _joined(self._waiting[1])
        self._served.table.resume(Header(clock, caught_up, waiting, hand, generation=generation))


def _runs(piece: Piece, part: DenseShare) -> Iterator[tuple[int, int, int]]:
    """Yield (position in the piece, position in this server's part, count) of the elements in both."""
    at, size, block = piece.place["at"], piece.place["size"], piece.place["block"]
    first, stride = piece.place["first"], piece.place["stride"]
    length = len(piece.arrays[VALUE])
    if (block, first, stride) == (part.block, part.first, part.stride):
        yield 0, at, length
        return
    done = 0
    while done < length:
        block_number, offset = divmod(at + done, block)
        whole = (first + block_number * stride) * block + offset  # position in the whole parameter
        mine, inside = divmod(whole, part.block)
        count = min(block - offset, part.block - inside, size - whole, length - done)
        if count <= 0:
            raise CheckpointError(
                f"parameter {part.parameter.name}: a piece of the checkpoint is outside the parameter"
            )
        if mine % part.stride == part.first:
            yield done, mine // part.stride * part.block + inside, count
        done += count


def _latest(numbers: Sequence[Mapping[str, Mapping[str, float]]], name: str) -> Mapping[str, float]:
    """Return a parameter's numbers; if servers differ, those of the server with the most progress.

    Raises:
        CheckpointError: servers differ in numbers that are valid only together with their own rows.
    """
    found = [each[name] for each in numbers if name in each]
    if any("tau" in each and dict(each) != dict(found[0]) for each in found):
        raise CheckpointError(
            f"parameter {name}: the sparse momentum of asynchronous training differs between servers; resume with as "
            "many servers as before"
        )
    return max(found, key=lambda each: each.get("version", each.get("batches", 0)))


def _joined(found: Sequence[Sightings]) -> Sightings:
    none = Sightings(np.zeros(0, np.int64), np.zeros(0, np.uint32))
    return Sightings(*(np.concatenate(each) for each in zip(none, *found, strict=True)))
