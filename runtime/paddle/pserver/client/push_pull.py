# SPDX-License-Identifier: Apache-2.0
"""One step of a trainer with all its servers: each gets its part of the gradients the fastest way that leads to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paddle.errors import ConfigError
from paddle.optim.spec import RowGradient
from paddle.pserver.client.dense_push import DensePush, Inspection
from paddle.pserver.client.exchange import Exchange, Network
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.client.tables import WantedRows, reply_array
from paddle.pserver.client.transfer import Transfer
from paddle.pserver.client.whole_slabs import WholeSlabs
from paddle.pserver.client.within_node import WithinNode
from paddle.pserver.transports.local_wire import SMALL
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import NO_SLAB, Ok, Pull, PushPull


class TrainerStep:
    """Every step of a trainer with one layout. Not thread-safe; `run` blocks."""

    def __init__(
        self, exchange: Exchange, network: Network, layout: Layout, node: WithinNode, slabs: WholeSlabs
    ) -> None:
        self._exchange, self._network = exchange, network
        self._layout, self._node, self._slabs = layout, node, slabs

    def run(
        self,
        grads: Mapping[str, Array | RowGradient],
        num_samples: int,
        out: Mapping[str, Array],
        ahead: Sequence[WantedRows] = (),
        *,
        is_quiet: bool = False,
    ) -> dict[int, Message]:
        """See `TrainerSession.push_pull`; `is_quiet`: servers are to send no values.

        Returns:
            Every server's answer, with rows that are wanted; they lack where a server cannot send them with it.
        """
        if num_samples < 0:
            raise ConfigError(f"num_samples: expected 0 or more, got {num_samples}")
        views = self._layout.views(out)
        flat, rows = self._sorted(grads)
        split = self._by_server(rows)
        record = PushPull(num_samples, wants_values=not is_quiet)
        transfers: dict[int, Transfer] = {}
        pushes: dict[int, tuple[DensePush, Message, list[Section]]] = {}
        inspection = Inspection(self._layout, flat)
        in_place: set[int] = set()
        for i, endpoint in enumerate(self._network.endpoints):
            is_near = self._shares_memory(i)
            asked = _asked_of(i, ahead, is_near=is_near)
            theirs = [*split.get(i, ()), *asked]
            head = Message(record._replace(asked=len(asked)) if asked else record)
            if is_near:
                slab = Section("", self._node.fill(i, flat))
                transfers[i] = Transfer(head._replace(sections=(slab, *theirs)))
                in_place.add(i)
            else:
                pushes[i] = DensePush(self._layout, i, endpoint, inspection, views), head, theirs
        if transfers or any(push.count <= 1 for push, _, _ in pushes.values()):
            inspection.finish()  # what goes out in one message cannot be taken back
        for i, (push, head, theirs) in pushes.items():
            transfers[i] = push.transfer(head, theirs)
        replies = self._carry(transfers, inspection, views)
        for i, reply in replies.items():
            if i in in_place and reply.expect(Ok).slab != NO_SLAB:
                self._node.scatter(i, self._node.take(i, reply), views)
                continue
            self._node.lose(i)  # what was shared, if anything, is not what holds now
            if not reply.has_section(""):
                continue
            if i in pushes:
                pushes[i][0].finish(reply.section(""))
            else:
                shape = self._layout.slabs[i].shape
                values = reply_array(reply, self._network.endpoints[i], "", shape)
                self._layout.scatter(i, values, views)
        return replies

    def look(self) -> None:
        """Let `WithinNode.value` have what servers of this node hold now."""
        near = [i for i in range(len(self._network.endpoints)) if self._shares_memory(i)]
        for i, reply in self._exchange.run({i: Message(Pull(in_place=True)) for i in near}).items():
            if self._shares_memory(i):
                self._node.take(i, reply)

    def _carry(
        self, transfers: Mapping[int, Transfer], inspection: Inspection, views: Mapping[str, Array]
    ) -> dict[int, Message]:
        try:
            return self._exchange.carry(transfers)
        except ConfigError:
            if inspection.has_given and views:
                self._slabs.pull(views)  # values of the step that is taken back may lie there already
            raise

    def _sorted(
        self, grads: Mapping[str, Array | RowGradient]
    ) -> tuple[dict[str, Array], dict[str, RowGradient]]:
        """Return dense gradients, each (size,), and those of rows."""
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
        if self._node.has(index) and not self._network.is_attached(index):
            self._node.lose(index)
        return self._node.has(index)

    def _by_server(self, rows: Mapping[str, RowGradient]) -> dict[int, list[Section]]:
        sections: dict[int, list[Section]] = {}
        for name, gradient in rows.items():
            for index, share in self._layout.holders(name):
                mine = np.flatnonzero(share.holds(gradient.rows))
                both = Section(name, gradient.rows[mine]), Section(name, gradient.values[mine])
                sections.setdefault(index, []).extend(both)
        return sections


def _asked_of(index: int, ahead: Sequence[WantedRows], *, is_near: bool) -> list[Section]:
    """Return what asks server `index` for rows; nothing where they would not go in one packet of this node."""
    theirs = [each for each in ahead if index in each.places]
    if is_near and sum(each.nbytes_of(index) for each in theirs) > SMALL:
        return []
    return [each.asked_of(index) for each in theirs]
