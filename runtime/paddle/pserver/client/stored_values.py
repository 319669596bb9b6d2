# SPDX-License-Identifier: Apache-2.0
"""Sets and pulls the servers' values in parts of bounded size: dense slabs, tables and single rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, WireError
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.sparse.walk import TableRows
from paddle.pserver.transports.shm import ROWS
from paddle.pserver.wire.half import widened
from paddle.pserver.wire.message import CHUNK, PART, Message, Section
from paddle.pserver.wire.placement import RowShare
from paddle.pserver.wire.table_rows import row_sections
from paddle.pserver.wire.verbs import Ok, Pull, PullRows, PullTable, SetRows, SetValues
from paddle_node.contract.classes import NamedTuple

_NONE: Mapping[int, Message] = MappingProxyType({})
_TRIES = 3
_PULLED = 1 << 22
"""Dense elements in one pull: ZeroMQ considers a connection broken if a frame takes longer than its heartbeats."""


class RequestedRows(NamedTuple):
    """The rows of one sparse parameter to request, and their positions on the servers.

    Attributes:
        ids: (n,) int64; they may repeat.
        width: number of elements per row.
        places: server -> positions of its ids in `ids`.
    """

    name: str
    ids: npt.NDArray[np.int64]
    width: int
    places: Mapping[int, npt.NDArray[np.int64]]

    def asked_of(self, index: int) -> Section:
        """Return the request for the rows that server `index` holds."""
        return Section(self.name, self.ids[self.places[index]])

    def nbytes_of(self, index: int) -> int:
        """Return the size of server `index`'s answer in bytes."""
        return 4 * self.width * len(self.places.get(index, ()))


class StoredValues:
    """Sets and pulls the servers' values in one layout. Not thread-safe; all methods block.

    `part_bytes`: bytes of a table in one message. `rows_as`: dtype of rows on the wire, see `half.WIRE_DTYPES`.
    """

    def __init__(
        self,
        exchange: Exchange,
        endpoints: Collection[str],
        layout: Layout,
        part_bytes: int = 32 << 20,
        rows_as: int = 0,
    ) -> None:
        self.rows_as = rows_as
        self._exchange, self._endpoints, self._layout = exchange, tuple(endpoints), layout
        self._part_bytes = part_bytes

    def send(self, servers: Collection[int], flat: Mapping[str, Array]) -> None:
        """Send each server its part of whole dense parameters (size,), as initial values."""
        sizes = self._layout.sizes
        for start in range(0, max((max(sizes[i], 1) for i in servers), default=0), PART):
            theirs = [i for i in servers if start < max(sizes[i], 1)]
            self._exchange.run({i: _set(start, self._part(i, start, flat)) for i in theirs})
        for index in servers:
            for share in self._layout.shares[index].tables:
                name = share.parameter.name
                whole = flat[name].reshape(share.parameter.shape)
                for start, stop in self._spans(share):
                    part = np.ascontiguousarray(whole[share.span(start, stop)])
                    self._exchange.run({index: _set(start, part, name)})

    def send_rows(self, servers: Collection[int], name: str, pieces: Iterable[TableRows]) -> None:
        """Send rows of a growing table to the servers before training starts.

        Raises:
            PserverError: a server has no room for them, or its table has different states.
        """
        holders = [(i, share) for i, share in self._layout.holders(name) if i in servers]
        width = self._layout.parameter(name).shape[1]
        for piece in pieces:
            size = width + (0 if piece.states is None else piece.states.shape[1])
            step = max(self._part_bytes // (4 * size), 1)
            for start in range(0, len(piece.ids), step):
                part = piece.take(slice(start, start + step))
                messages = {}
                for index, share in holders:
                    mine = part.take(share.holds(part.ids))
                    if len(mine.ids):
                        sections = (Section.text("name", name), *row_sections(mine))
                        messages[index] = Message(SetRows(), sections=sections)
                self._exchange.run(messages)

    def pull_dense(self, views: Mapping[str, Array]) -> None:
        """Fill whole dense parameters (size,) with the servers' values.

        All values of a server are from one point in time, unless asynchronous training continues during the call.

        Raises:
            PserverError: see `Client`; some parameters may already have been filled.
        """
        sizes = {i: size for i, size in enumerate(self._layout.sizes) if size}
        for _ in range(_TRIES):
            versions: dict[int, set[int]] = {i: set() for i in sizes}
            for start in range(0, max(sizes.values(), default=0), _PULLED):
                counts = {i: min(size - start, _PULLED) for i, size in sizes.items() if start < size}
                for i, version in self._pull_part(start, counts, views).items():
                    versions[i].add(version)
            if all(len(seen) == 1 for seen in versions.values()):
                break

    def _pull_part(self, start: int, counts: Mapping[int, int], views: Mapping[str, Array]) -> dict[int, int]:
        """Fill a part of the values; return each server's version. The next part reuses the memory of the replies."""
        replies = self._exchange.run({i: Message(Pull(start, n)) for i, n in counts.items()})
        for i, reply in replies.items():
            part = reply_array(reply, self._endpoints[i], "", (counts[i],))
            for at in range(0, part.size, CHUNK):
                self._layout.spread(i, (start + at) // CHUNK, part[at : at + CHUNK], views)
        return {i: reply.expect(Ok).version for i, reply in replies.items()}

    def _part(self, index: int, start: int, flat: Mapping[str, Array]) -> Array:
        """Return `PART` values of one server's slab starting at `start`, or the rest of the slab."""
        part = np.empty(min(self._layout.sizes[index] - start, PART), np.float32)
        for at in range(0, part.size, CHUNK):
            part[at : at + CHUNK] = self._layout.chunk(index, (start + at) // CHUNK, flat)[0].array
        return part

    def pull_table(self, name: str, out: Array) -> None:
        """Fill `out`, float32 in the parameter's shape, with all rows of a sparse parameter."""
        section = Section.text("name", name)
        for index, share in self._layout.tables(name):
            whole = out.reshape(share.parameter.shape)
            for start, stop in self._spans(share):
                request = Message(PullTable(start, stop - start), sections=(section,))
                reply = self._exchange.run({index: request})[index]
                shape = (stop - start, share.width)
                whole[share.span(start, stop)] = reply_array(reply, self._endpoints[index], "", shape)

    def want(self, name: str, ids: npt.NDArray[np.int64]) -> RequestedRows:
        """Locate the rows on the servers. Raises ConfigError if the parameter is not sparse, or has no such ids."""
        layout = self._layout
        parameter = layout.parameter(name)
        if not parameter.sparse:
            raise ConfigError(f"parameter {name} is not sparse: pull the whole parameter")
        what = f"row ids of parameter {name}"
        if ids.ndim != 1 or ids.dtype != np.int64:
            raise ConfigError(f"{what}: expected (n,) int64, got {ids.shape} {ids.dtype}")
        if name not in layout.growing:
            unknown = (ids < 0) | (ids >= parameter.shape[0])
            if unknown.any():
                raise ConfigError(f"{what}: expected 0 to {parameter.shape[0] - 1}, got {ids[unknown][0]}")
        ids = np.ascontiguousarray(ids)
        places = {i: np.flatnonzero(share.holds(ids)) for i, share in layout.holders(name)}
        return RequestedRows(
            name, ids, parameter.shape[1], {i: place for i, place in places.items() if len(place)}
        )

    def rows(self, wanted: RequestedRows, came: Mapping[int, Message] = _NONE) -> Array:
        """Return the requested rows of one parameter, as (n, width) float32; see `rows_of`."""
        return self.rows_of([wanted], came)[0]

    def rows_of(self, wanted: Sequence[RequestedRows], came: Mapping[int, Message] = _NONE) -> list[Array]:
        """Return rows (n, width) float32 of several distinct parameters, with one request per server.

        Args:
            came: servers' answers that may already contain some of the rows; only the other rows are requested.
        """
        lacking: dict[int, list[RequestedRows]] = {}
        for each in wanted:
            for index in each.places:
                if index not in came or came[index].find(each.name) is None:
                    lacking.setdefault(index, []).append(each)
        requests = {}
        for index, theirs in lacking.items():
            is_small = sum(each.nbytes_of(index) for each in theirs) <= ROWS
            sections = tuple(each.asked_of(index) for each in theirs)
            requests[index] = Message(PullRows(is_small, self.rows_as), sections=sections)
        replies = self._exchange.run(requests) if requests else {}
        return [self._put_together(each, came, replies) for each in wanted]

    def _put_together(
        self, wanted: RequestedRows, came: Mapping[int, Message], replies: Mapping[int, Message]
    ) -> Array:
        found = np.empty((len(wanted.ids), wanted.width), np.float32)
        for index, place in wanted.places.items():
            is_here = index in came and came[index].find(wanted.name) is not None
            reply, shape = (came if is_here else replies)[index], (len(place), wanted.width)
            array = reply_array(reply, self._endpoints[index], wanted.name, shape, rows_as=self.rows_as)
            found[place if len(place) < len(found) else ...] = array
        return found

    def _spans(self, share: RowShare) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of the rows that fit in one message."""
        step = max(self._part_bytes // (4 * share.width), 1)
        for start in range(0, share.height, step):
            yield start, min(start + step, share.height)


def reply_array(
    reply: Message, endpoint: str, name: str, shape: tuple[int, ...], *, rows_as: int = 0
) -> Array:
    """Return the array with this name and shape in a reply, as float32.

    Raises:
        WireError: the array is missing, has a different shape or was not requested.
    """
    array = reply.section(name).array
    if rows_as:
        array = widened(array)
    if array.shape != shape or array.dtype != np.float32:
        raise WireError(
            f"pserver {endpoint}: expected {shape} float32, got {array.shape} {array.dtype}", endpoint
        )
    return array


def _set(start: int, part: Array, name: str = "") -> Message:
    return Message(SetValues(start), sections=(Section(name, part),))
