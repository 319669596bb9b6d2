# SPDX-License-Identifier: Apache-2.0
"""Copies the state of a store at one point in time while the store continues to change.

Elements that are about to change are copied just before the change; the rest is copied in small steps. Together, the
pieces are the state at one point in time, and no request waits for more than the elements of a batch. All of this
happens in the thread that owns the store. If the part has its own thread, that thread reads dense parameters in place,
and rows of growing tables that the owner listed.

That thread writes pieces without copying, from the end of the arrays. The owner changes arrays from the beginning; just
before it changes an unwritten piece, it passes on a copy. The owner therefore waits for at most one piece that is being
written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.optim.dense import DenseUpdater
from paddle.pserver.durable.checkpoint.format import DROPPED, IDS, VALUE, WAITING, Piece
from paddle.pserver.durable.checkpoint.writer import PartWriter, Sink
from paddle.pserver.store.observer import Elements
from paddle.pserver.store.store import Store

if TYPE_CHECKING:  # a server without growing tables does not import them
    from paddle.pserver.sparse.snapshot import TableSnapshot

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = dict[str, dict[str, float]]

STORE = ""  # among the numbers; no parameter has this name
NUMBERS = ("clock", "caught_up", "hand", "generation")
"""Numbers of a growing table: fields of its `Header`."""
_ELEMENTS = 1 << 21
"""Of a piece: for every piece the writer asks for the interpreter's lock a few times, which trainers wait for too."""
_ROWS_BYTES = 4 << 20


class Copying:
    """The pieces to copy into one checkpoint part. Only `write` may be called outside the owner's thread."""

    def __init__(self, pieces: Iterable[Piece], give: Callable[[Piece], None], length: int) -> None:
        """Begin the copy.

        Args:
            pieces: with views of the arrays that change; parameters, and the pieces of each, in the order in which
                they change.
            give: receives a piece; its arrays are valid only during the call.
            length: elements of each piece except the last of each parameter.
        """
        self._left: dict[str, dict[int, Piece]] = {}
        for piece in pieces:
            self._left.setdefault(piece.parameter, {})[piece.place["at"] // length] = piece
        self._give, self._length = give, length
        self._changed = threading.Condition()
        self._written: tuple[str, int] | None = (
            None  # the argument of `write`: the parameter, and the piece's number
        )

    @property
    def is_waiting(self) -> bool:
        """Return whether there are pieces that no thread has begun to write."""
        with self._changed:
            return bool(self._left)

    @property
    def is_over(self) -> bool:
        """Return whether all pieces are written, so that the arrays are no longer needed."""
        with self._changed:
            return self._written is None and not self._left

    def write(self, writer: PartWriter) -> None:
        """Write all pieces that the owner has not taken; called in the thread of the part."""
        while (nbytes := self._next_bytes()) is not None:
            # A thread that waits for the piece in progress then waits for a copy in memory, not for the disk.
            writer.make_room(nbytes)
            with self._changed:
                taken = self._take_last()
                self._written = None if taken is None else taken[0]
            if taken is None:
                return
            try:
                writer.write(taken[1])
            finally:
                with self._changed:
                    self._written = None
                    self._changed.notify_all()

    def advance(self) -> None:
        """Write one piece on the owner's thread, if any is waiting."""
        with self._changed:
            taken = self._take_last()
        if taken is not None:
            self._give(taken[1])

    def finish(self, parameter: str, start: int, stop: int) -> None:
        """Write the waiting pieces of elements `start` to `stop`, and wait for the one in progress, before a change."""
        for number in range(start // self._length, -(-stop // self._length)):
            with self._changed:
                piece = self._take(parameter, number)
                while piece is None and self._written == (parameter, number):
                    self._changed.wait()
            if piece is not None:
                self._give(piece)

    def cancel(self) -> None:
        """Discard the pieces that no thread has begun, and wait for the piece in progress."""
        with self._changed:
            self._left.clear()
            self._changed.wait_for(lambda: self._written is None)

    def _take(self, parameter: str, number: int) -> Piece | None:
        pieces = self._left.get(parameter)
        piece = pieces.pop(number, None) if pieces else None
        if piece is not None and not pieces:
            del self._left[parameter]
        return piece

    def _take_last(self) -> tuple[tuple[str, int], Piece] | None:
        if not self._left:
            return None
        parameter = next(reversed(self._left))
        number = next(reversed(self._left[parameter]))
        piece = self._take(parameter, number)
        assert piece is not None
        return (parameter, number), piece

    def _next_bytes(self) -> int | None:
        with self._changed:
            if not self._left:
                return None
            pieces = self._left[next(reversed(self._left))]
            return pieces[next(reversed(pieces))].nbytes


class Snapshot:
    """A snapshot in progress, which must be notified before changes; see `watch.Watch`.

    Attributes:
        version: version of the store at the time of the snapshot.
        numbers: numbers of the store and of its parameters at that time.
    """

    def __init__(
        self,
        store: Store,
        sink: Sink,
        changed: Mapping[str, Mask] | None = None,
        since: Mapping[str, int] | None = None,
    ) -> None:
        """Begin the copy.

        Args:
            sink: receives the pieces.
            changed: which rows of each table to copy; the snapshot owns it. None means all rows.
            since: `clock` of each growing table; only later changes are copied. None means all rows.
        """
        self.version = store.version
        self.numbers = numbers_of(store)
        self._store, self._sink, self._give = store, sink, sink.give
        self._dense = Copying(_dense_pieces(store), self._give, _ELEMENTS)
        if sink.has_thread and self._dense.is_waiting:
            sink.defer(self._dense.write)
        self._todo = {
            name: np.ones(table.share.height, np.bool_) if changed is None else changed[name]
            for name, table in store.tables.items()
        }
        self._cursor = dict.fromkeys(self._todo, 0)
        self._growing: dict[str, TableSnapshot] = {}
        self._floats = np.empty(0, np.float32)  # of the block that the part's thread is at
        self._is_idle = True  # whether that thread waits for a request to read the tables
        for name, served in store.growing.items():
            growing = served.table.snapshot(since=(since or {}).get(name))
            self._growing[name] = growing
            header = growing.header
            self.numbers[name] = {what: getattr(header, what) for what in NUMBERS}
            if len(header.dropped):
                self._give(Piece(name, {DROPPED: 1}, {IDS: header.dropped}))
            for period, sightings in enumerate(header.waiting):
                self._give(Piece(name, {WAITING: period}, sightings._asdict()))

    @property
    def is_over(self) -> bool:
        """Return whether the whole store has been copied."""
        return self._dense.is_over and not self._cursor and not self._growing

    def dense(self, elements: Elements) -> None:
        """Copy these dense elements, which are about to change; block until they are copied."""
        if elements.version >= self.version:  # otherwise they are elsewhere in the copied state
            self._dense.finish(elements.parameter, elements.start, elements.stop)

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """Copy the given rows (n,) of a sparse parameter before they change, unless already copied."""
        if name in self._cursor:
            left = rows[self._todo[name][rows]]
            self._copy_rows(name, left, left)

    def cancel(self) -> None:
        """Stop copying the store."""
        self._dense.cancel()
        self._growing.clear()

    def advance(self) -> None:
        """Copy the next few megabytes of the store to the sink."""
        if not self._sink.has_thread and self._dense.is_waiting:
            self._dense.advance()
        elif self._cursor:
            name, start = next(iter(self._cursor.items()))
            todo = self._todo[name]
            stop = start + max(_ROWS_BYTES // self._row_bytes(name), 1)
            rows = start + np.flatnonzero(todo[start:stop])
            is_run = len(rows) == len(todo[start:stop])  # views need no gathering
            self._copy_rows(name, rows, slice(start, stop) if is_run else rows)
            self._cursor[name] = stop
            if stop >= len(todo):
                del self._cursor[name]
        elif self._growing:
            self._advance_growing(*next(iter(self._growing.items())))

    def _advance_growing(self, name: str, growing: TableSnapshot) -> None:
        if growing.is_over:
            del self._growing[name]
        elif not self._sink.has_thread:
            self._sink.defer(lambda writer: self._write_next(name, growing, writer))
        elif growing.list_ahead() and self._is_idle:
            self._is_idle = False
            self._sink.defer(lambda writer: self._write_rows(name, growing, writer))

    def _write_next(self, name: str, growing: TableSnapshot, writer: PartWriter) -> None:
        if (block := growing.next_block()) is not None:
            writer.write(Piece(name, {}, block.stored(growing.halves)))

    def _write_rows(self, name: str, growing: TableSnapshot, writer: PartWriter) -> None:
        """Write the listed rows of a table; called in the part's thread."""
        self._is_idle = True
        if len(self._floats) < growing.floats_of_block:
            self._floats = np.empty(growing.floats_of_block, np.float32)
        while name in self._growing and (block := growing.take(self._floats)) is not None:
            writer.write(Piece(name, {}, block.stored(growing.halves)))

    def _copy_rows(
        self, name: str, rows: npt.NDArray[np.int64], where: slice | npt.NDArray[np.int64]
    ) -> None:
        if not len(rows):
            return
        self._todo[name][where] = False
        table = self._store.tables[name]
        arrays = {column: array[where] for column, array in table.columns.items()}
        ids = table.share.first + rows * table.share.stride
        self._give(Piece(name, {}, {IDS: ids, **arrays}))

    def _row_bytes(self, name: str) -> int:
        columns = self._store.tables[name].columns.values()
        return sum(array.itemsize * int(np.prod(array.shape[1:])) for array in columns)


def _dense_pieces(store: Store) -> Iterator[Piece]:
    for part, updater in zip(store.share.dense, store.updaters, strict=True):
        place = {name: getattr(part, name) for name in ("size", "block", "first", "stride")}
        whole: dict[str, npt.NDArray[Any]] = {VALUE: store.slab[part.start : part.stop], **updater.columns}
        for at in range(0, part.stop - part.start, _ELEMENTS):
            arrays = {name: array[at : at + _ELEMENTS] for name, array in whole.items()}
            yield Piece(part.parameter.name, {**place, "at": at}, arrays)


def numbers_of(store: Store) -> Numbers:
    """Return the scalar state of a store and of its parameters, by name: everything except the arrays."""
    numbers: Numbers = {
        STORE: {
            "version": store.version,
            "num_samples": store.num_samples,
            "pass_id": store.pass_id,
            "pass_version": store.pass_version,
        }
    }
    for part, updater in zip(store.share.dense, store.updaters, strict=True):
        numbers[part.parameter.name] = {"batches": updater.batches}
    for name, table in store.tables.items():
        numbers[name] = dict(table.numbers)
    return numbers


def size_of(store: Store) -> int:
    """Return an estimate of the size of a store's arrays, in bytes."""
    dense = sum(updater_bytes(updater) for updater in store.updaters) + store.slab.nbytes
    rows = sum(array.nbytes for t in store.tables.values() for array in t.columns.values())
    return dense + rows + sum(each.table.nbytes + each.table.disk_bytes for each in store.growing.values())


def dense_size_of(store: Store) -> int:
    """Return the number of bytes of a store's arrays for dense parameters after its first step."""
    parts = zip(store.share.dense, store.updaters, strict=True)
    return sum((part.stop - part.start) * store.slab.itemsize * (1 + len(each.kept)) for part, each in parts)


def updater_bytes(updater: DenseUpdater) -> int:
    """Return the size of an update rule's state, in bytes."""
    return sum(array.nbytes for array in updater.columns.values())
