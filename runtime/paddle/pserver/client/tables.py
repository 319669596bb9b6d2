# SPDX-License-Identifier: Apache-2.0
"""Sparse parameters on their way to and from servers: whole ones, in pieces that bound memory, and single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, WireError
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.transports.local_wire import SMALL
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.placement import RowShare
from paddle.pserver.wire.verbs import PullRows, PullTable, SetValues

_NONE: Mapping[int, Message] = MappingProxyType({})


class WantedRows(NamedTuple):
    """Rows of a sparse parameter that are wanted.

    Attributes:
        ids: (n,) int64; they may repeat.
        width: elements of a row.
        places: server -> which of the ids lie there.
    """

    name: str
    ids: npt.NDArray[np.int64]
    width: int
    places: Mapping[int, npt.NDArray[np.int64]]

    def asked_of(self, index: int) -> Section:
        """Return what asks server `index` for its rows."""
        return Section(self.name, self.ids[self.places[index]])

    def nbytes_of(self, index: int) -> int:
        """Return how many bytes server `index` will answer with."""
        return 4 * self.width * len(self.places.get(index, ()))


class Tables:
    """A client's requests about sparse parameters and growing tables. Not thread-safe; all methods block."""

    def __init__(self, exchange: Exchange, endpoints: Sequence[str], part_bytes: int = 32 << 20) -> None:
        self._exchange, self._endpoints, self._part_bytes = exchange, endpoints, part_bytes

    def send(self, index: int, share: RowShare, flat: Array) -> None:
        """Give server `index` its rows of a parameter (size,)."""
        whole = flat.reshape(share.parameter.shape)
        step = max(self._part_bytes // (4 * share.width), 1)
        for start in range(0, share.height, step):
            part = np.ascontiguousarray(whole[share.span(start, min(start + step, share.height))])
            section = Section(share.parameter.name, part)
            self._exchange.run({index: Message(SetValues(start), sections=(section,))})

    def pull(self, shares: Sequence[tuple[int, RowShare]], out: Array) -> None:
        """Fill `out`, of the parameter's shape, with the rows of all (server, share)."""
        for index, share in shares:
            whole = out.reshape(share.parameter.shape)
            name = Section.text("name", share.parameter.name)
            step = max(self._part_bytes // (4 * share.width), 1)
            for start in range(0, share.height, step):
                stop = min(start + step, share.height)
                request = Message(PullTable(start, stop - start), sections=(name,))
                reply = self._exchange.run({index: request})[index]
                shape = (stop - start, share.width)
                whole[share.span(start, stop)] = reply_array(reply, self._endpoints[index], "", shape)

    def want(self, layout: Layout, name: str, ids: npt.NDArray[np.int64]) -> WantedRows:
        """Find out where rows lie.

        Raises:
            ConfigError: the parameter is not sparse, or has no such ids.
        """
        parameter = layout.parameter(name)
        if not parameter.sparse:
            raise ConfigError(f"parameter {name} is not sparse: pull it whole")
        what = f"row ids of parameter {name}"
        if ids.ndim != 1 or ids.dtype != np.int64:
            raise ConfigError(f"{what}: expected (n,) int64, got {ids.shape} {ids.dtype}")
        if name not in layout.growing:
            unknown = (ids < 0) | (ids >= parameter.shape[0])
            if unknown.any():
                raise ConfigError(f"{what}: expected 0 to {parameter.shape[0] - 1}, got {ids[unknown][0]}")
        ids = np.ascontiguousarray(ids)
        places = {i: np.flatnonzero(share.holds(ids)) for i, share in layout.holders(name)}
        return WantedRows(
            name, ids, parameter.shape[1], {i: place for i, place in places.items() if len(place)}
        )

    def rows(self, wanted: WantedRows, came: Mapping[int, Message] = _NONE) -> Array:
        """Return rows (n, width) float32.

        Args:
            came: answers of servers that may have some of them already; the others are asked.
        """
        replies = {i: came[i] for i in wanted.places if i in came and came[i].has_section(wanted.name)}
        if lacking := [i for i in wanted.places if i not in replies]:
            replies |= self._exchange.run(
                {
                    i: Message(PullRows(wanted.nbytes_of(i) <= SMALL), sections=(wanted.asked_of(i),))
                    for i in lacking
                }
            )
        found = np.empty((len(wanted.ids), wanted.width), np.float32)
        for index, place in wanted.places.items():
            shape = (len(place), wanted.width)
            found[place] = reply_array(replies[index], self._endpoints[index], wanted.name, shape)
        return found


def reply_array(reply: Message, endpoint: str, name: str, shape: tuple[int, ...]) -> Array:
    """Return the array of that name in a reply.

    Raises:
        WireError: it is missing, of another shape or not float32.
    """
    array = reply.section(name).array
    if array.shape != shape or array.dtype != np.float32:
        raise WireError(
            f"pserver {endpoint}: expected {shape} float32, got {array.shape} {array.dtype}", endpoint
        )
    return array
