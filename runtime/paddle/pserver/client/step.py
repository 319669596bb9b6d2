# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a trainer: each server receives its part of the gradients over the fastest transport.

A server uses a push only once it is complete. The last chunk for each server is therefore sent only after all chunks
for all servers have been checked for NaN and infinity. Until then, the step can be cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, WireError
from paddle.optim.spec import RowGradient
from paddle.pserver.client.exchange import Exchange, Network
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.client.request import Request
from paddle.pserver.client.stored_values import RequestedRows, StoredValues, reply_array
from paddle.pserver.store.dense_step import DenseThreads
from paddle.pserver.transports.packet import address_of
from paddle.pserver.transports.shm import ROWS
from paddle.pserver.transports.transport import SharedSlabs
from paddle.pserver.wire.arithmetic import AT_ONCE_BYTES
from paddle.pserver.wire.half import packed, widened
from paddle.pserver.wire.message import Message, Section, chunk_span
from paddle.pserver.wire.placement import DenseShare
from paddle.pserver.wire.verbs import NO_SLAB, Ok, Pull, PushPull
from paddle_node.contract.classes import NamedTuple

_PIECE = 1 << 18
"""Elements of a large array that are copied, and inspected while they are in the cache."""


class _Home(NamedTuple):
    """The location of the gradient of one part of a parameter in shared memory."""

    part: DenseShare
    array: Array
    address: int


class WithinNode:
    """The servers on this node, and the memory that the trainer shares with each: `shared`, by server index."""

    def __init__(self, layout: Layout, shared: Mapping[int, SharedSlabs]) -> None:
        self._layout, self.shared = layout, dict(shared)
        self._latest: dict[int, Array] = {}
        self._threads = DenseThreads()
        self._homes = {
            index: [_home(part, slabs.gradient) for part in layout.shares[index].dense]
            for index, slabs in self.shared.items()
        }

    def gradient(self, name: str) -> Array | None:
        """Return a parameter's gradient (size,) in shared memory, or None if it is not contiguous there."""
        for homes in self._homes.values():
            for part, array, _ in homes:
                if part.parameter.name == name and array.size == part.parameter.size:
                    return array
        return None

    def value(self, name: str) -> Array | None:
        """Return the newest values of a parameter, (size,), read-only, valid until the next push begins."""
        place = self._place(name)
        return None if place is None or place[0] not in self._latest else self._latest[place[0]][place[1]]

    def fill(self, index: int, flat: Mapping[str, Array]) -> Array:
        """Copy gradients to the memory that server `index` reads, unless already there; set omitted gradients to 0.

        Large gradients are not checked here if there is only one server: it checks them while it adds them, and
        changes nothing if one is not finite. With several servers, another server could already have used its part.

        Raises:
            ConfigError: a gradient contains NaN or infinity.
        """
        slab = self.shared[index].gradient
        check = len(self._layout.used) > 1 or slab.nbytes < AT_ONCE_BYTES
        for part, here, address in self._homes[index]:
            name = part.parameter.name
            gradient = flat.get(name)
            if gradient is None:
                here[...] = 0.0
                continue
            is_here = gradient is here or address_of(gradient) == address
            if here.size > _PIECE and gradient.size == here.size:
                is_fit = self._copy(here if is_here else gradient, here, check=check)
            else:
                if not is_here:
                    part.gather(gradient, slab)
                is_fit = not check or Section("", here).is_finite
            if not is_fit:
                raise ConfigError(
                    f"gradient of parameter {name} contains NaN or infinity; nothing was changed"
                )
        return slab

    def take(self, index: int, reply: Message) -> Array:
        """Return the slab of values that the reply to a push or an in-place refresh refers to."""
        self._latest[index] = self.shared[index].values(reply)
        return self._latest[index]

    def scatter(self, index: int, slab: Array, views: Mapping[str, Array]) -> None:
        """Copy values of server `index` into whole parameters (size,); omitted parameters are unchanged."""
        for part in self._layout.shares[index].dense:
            view = views.get(part.parameter.name)
            if view is None:
                continue
            if view.size > _PIECE and view.size == part.stop - part.start:
                self._copy(slab[part.start : part.stop], view, check=False)
            else:
                part.scatter(slab, view)

    def lose(self, index: int) -> None:
        """Remove a server that has disconnected; its arrays remain valid for their owners."""
        self.shared.pop(index, None)
        self._homes.pop(index, None)
        self._latest.pop(index, None)

    def _copy(self, source: Array, target: Array, *, check: bool) -> bool:
        """Copy a large array on several cores, unless both are the same; on request, return whether it is finite."""
        if source is target and not check:
            return True

        def copy(worker: int, number: int) -> bool:
            piece = slice(number * _PIECE, (number + 1) * _PIECE)
            if source is not target:
                np.copyto(target[piece], source[piece])
            return not check or Section("", target[piece]).is_finite

        return all(self._threads.run(copy, -(-target.size // _PIECE)))

    def _place(self, name: str) -> tuple[int, slice] | None:
        size = self._layout.parameter(name).size
        for index in self.shared:
            for part in self._layout.shares[index].dense:
                if part.parameter.name == name and part.stop - part.start == size:
                    return index, slice(part.start, part.stop)
        return None


class TrainerStep:
    """Runs the steps of one trainer over a fixed layout. Not thread-safe; `run` blocks."""

    def __init__(
        self, exchange: Exchange, network: Network, layout: Layout, node: WithinNode, stored: StoredValues
    ) -> None:
        self._exchange, self._network = exchange, network
        self._layout, self._node, self._stored = layout, node, stored
        self.left_out: dict[int, int] = {}

    def run(
        self,
        grads: Mapping[str, Array | RowGradient],
        num_samples: int,
        out: Mapping[str, Array],
        ahead: Sequence[RequestedRows] = (),
        *,
        is_quiet: bool = False,
    ) -> dict[int, Message]:
        """Run one step as `TrainerSession.push_pull` describes; if `is_quiet`, servers send no values.

        Returns:
            The answer of every server in the step, with the requested rows if the server could send them with it.
        """
        if num_samples < 0:
            raise ConfigError(f"num_samples: expected 0 or more, got {num_samples}")
        views = self._layout.views(out)
        flat, rows = self._sorted(grads)
        split = self._by_server(rows) if rows else {}
        requests: dict[int, Request] = {}
        pushes: dict[int, tuple[_Push, PushPull, list[Section]]] = {}
        inspection = _Inspection(self._layout, flat)
        in_place: set[int] = set()
        having: set[int] = set()
        if self.left_out:
            having = {i for i, count in self.left_out.items() if count > 0}
            self.left_out = {i: self.left_out[i] - 1 for i in having}
        for i in self._layout.used:
            if i in having:
                continue
            is_near = self._shares_memory(i)
            asked = _asked_of(i, ahead, is_near=is_near) if ahead else []
            theirs = [*split.get(i, ()), *asked]
            push = None if is_near else _Push(self._layout, i, self._network.endpoints[i], inspection, views)
            chunks = 0 if push is None or push.count == 1 else push.count
            record = PushPull(num_samples, chunks, False, not is_quiet, len(asked), self._stored.rows_as)
            if push is None:
                slab = Section("", self._node.fill(i, flat))
                requests[i] = Request(Message(record, sections=(slab, *theirs)))
                in_place.add(i)
            else:
                pushes[i] = push, record, theirs
        if requests:
            inspection.finish()  # data that is sent in one message cannot be taken back
        for i, (push, record, theirs) in pushes.items():
            requests[i] = push.request(record, theirs)
        try:
            replies = self._exchange.carry(requests)
        except ConfigError:
            if inspection.has_given and views:
                self._stored.pull_dense(views)  # they may have values of the step that is taken back
            raise
        for i, reply in replies.items():
            if i in in_place and reply.expect(Ok).slab != NO_SLAB:
                self._node.scatter(i, self._node.take(i, reply), views)
                continue
            if i in self._node.shared:
                self._node.lose(i)  # the shared values are no longer the current ones
            if (values := reply.find("")) is None:
                continue
            if i in pushes:
                pushes[i][0].finish(values)
            else:
                shape = (self._layout.sizes[i],)
                array = reply_array(reply, self._network.endpoints[i], "", shape)
                self._layout.scatter(i, array, views)
        if having and views:
            self._stored.pull_dense(views)
        return replies

    def refresh_values(self) -> None:
        """Refresh `WithinNode.value` with the current values of this node's servers."""
        near = [i for i in range(len(self._network.endpoints)) if self._shares_memory(i)]
        for i, reply in self._exchange.run({i: Message(Pull(in_place=True)) for i in near}).items():
            if self._shares_memory(i):
                self._node.take(i, reply)

    def _sorted(
        self, grads: Mapping[str, Array | RowGradient]
    ) -> tuple[dict[str, Array], dict[str, RowGradient]]:
        """Return the dense gradients, each (size,), and the row gradients."""
        flat: dict[str, Array] = {}
        rows: dict[str, RowGradient] = {}
        for name, grad in grads.items():
            parameter = self._layout.parameter(name)
            if isinstance(grad, RowGradient) != parameter.sparse:
                expected = "a RowGradient" if parameter.sparse else "an array"
                raise ConfigError(
                    f"gradient of parameter {name}: expected {expected}, got {type(grad).__name__}"
                )
            if isinstance(grad, RowGradient):
                rows[name] = self._layout.rows(name, grad)
            else:
                flat[name] = self._layout.flat(name, {name: grad}, "gradient", check=False)
        return flat, rows

    def _shares_memory(self, index: int) -> bool:
        if index in self._node.shared and not self._network.is_attached(index):
            self._node.lose(index)
        return index in self._node.shared

    def _by_server(self, rows: Mapping[str, RowGradient]) -> dict[int, list[Section]]:
        sections: dict[int, list[Section]] = {}
        for name, gradient in rows.items():
            for index, share in self._layout.holders(name):
                held = share.holds(gradient.rows)
                mine = gradient if held.all() else RowGradient(gradient.rows[held], gradient.values[held])
                both = (
                    Section(name, mine.rows),
                    Section(name, self._travelling(np.ascontiguousarray(mine.values), share.width)),
                )
                sections.setdefault(index, []).extend(both)
        return sections

    def _travelling(self, rows: npt.NDArray[np.float32], width: int) -> npt.NDArray[Any]:
        """Return rows in their wire format, with 16 bits only if that does not change their shows and clicks."""
        found = packed(rows, self._stored.rows_as)
        return found if np.array_equal(widened(found[:, width:]), rows[:, width:]) else rows


class _Inspection:
    """Inspects each chunk of a step's gradients once, before it is sent.

    Attributes:
        has_given: whether a chunk has been released for sending.
    """

    def __init__(self, layout: Layout, flat: Mapping[str, Array]) -> None:
        """Prepare the inspection; `flat`: gradients of whole parameters (size,) by name."""
        self._layout, self._flat = layout, flat
        self.has_given = False
        self._all: list[tuple[int, int]] = []
        # Inspected chunks; None if one must be assembled again.
        self._chunks: dict[tuple[int, int], Section | None] = {}

    def add(self, index: int) -> int:
        """Add all chunks for server `index`; return their number."""
        count = self._layout.num_chunks(index)
        self._all += zip(repeat(index), range(count))
        return count

    def chunk(self, index: int, number: int) -> Section:
        """Return a chunk that can be sent. Raises ConfigError if a gradient contains NaN or infinity."""
        if number + 1 == self._layout.num_chunks(index):
            self.finish()
        section = self._chunks.get((index, number)) or self._inspect(index, number)
        self.has_given = True
        return section

    def finish(self) -> None:
        """Check all remaining chunks. Raises ConfigError if a gradient contains NaN or infinity."""
        for each in self._all:
            if each not in self._chunks:
                self._inspect(*each)
        self._all.clear()

    def _inspect(self, index: int, number: int) -> Section:
        at = (index, number)
        found, is_view = self._layout.chunk(index, number, self._flat, check=at not in self._chunks)
        # A copy of one chunk of many is not kept: it would be as large as the model.
        self._chunks[at] = found if is_view or self._layout.num_chunks(index) == 1 else None
        return found


class _Push:
    """The dense gradients for one server, and the destination of its values.

    Gradients come from `inspection`, values go to `views`, whole parameters (size,) by name; neither is copied as a
    whole.
    """

    def __init__(
        self, layout: Layout, index: int, endpoint: str, inspection: _Inspection, views: Mapping[str, Array]
    ) -> None:
        self._layout, self._index, self._endpoint = layout, index, endpoint
        self._inspection, self._views = inspection, views
        self._homes: dict[int, Array] = {}
        self.count = inspection.add(index)

    def request(self, record: PushPull, rows: Sequence[Section]) -> Request:
        """Return the request: a single message, or a head that is followed by chunks."""
        if self.count > 1:
            head = Message(record, sections=tuple(rows))
            return Request(head, self.count, self._chunk, self._deliver, self._place)
        if self.count:
            return Request(Message(record, sections=(self._chunk(0), *rows)), place=self._place)
        self._inspection.finish()  # as the only chunk of a server does
        return Request(Message(record, sections=(Section("", np.zeros(0, np.float32)), *rows)))

    def finish(self, values: Section) -> None:
        """Accept all values, if they arrived with the reply.

        Raises:
            WireError: the values do not match the server's share.
        """
        if self.count:
            self._deliver(0, values)

    def _chunk(self, number: int) -> Section:
        return self._inspection.chunk(self._index, number)

    def _deliver(self, number: int, values: Section) -> None:
        span = chunk_span(number, self._layout.sizes[self._index])
        array = values.array
        if array.shape != (span.stop - span.start,) or array.dtype != np.float32:
            raise WireError(
                f"pserver {self._endpoint}: expected ({span.stop - span.start},) float32, "
                f"got {array.shape} {array.dtype}",
                self._endpoint,
            )
        home = self._homes.pop(number, None)
        if home is None or not np.may_share_memory(home, array):
            self._layout.spread(self._index, number, array, self._views)

    def _place(self, number: int) -> memoryview | None:
        home = self._layout.home(self._index, number, self._views)
        if home is None:
            return None
        self._homes[number] = home
        return home.data.cast("B")


def _home(part: DenseShare, gradient: Array) -> _Home:
    array = gradient[part.start : part.stop]
    return _Home(part, array, address_of(array))


def _asked_of(index: int, ahead: Sequence[RequestedRows], *, is_near: bool) -> list[Section]:
    """Return the request for rows from server `index`; none if the shared memory has no room for them."""
    theirs = [each for each in ahead if index in each.places]
    if is_near and sum(each.nbytes_of(index) for each in theirs) > ROWS:
        return []
    return [each.asked_of(index) for each in theirs]
