# SPDX-License-Identifier: Apache-2.0
"""A reader's side of `server.readers`: fills arrays with dense values, those of one server all of one moment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from paddle.errors import WaitTimeout
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.client.tables import reply_array
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.reader_protocol import READ_PART
from paddle.pserver.wire.verbs import Ok, View


class Viewing:
    """A reader's requests for dense values. Not thread-safe; blocks."""

    def __init__(self, exchange: Exchange, endpoints: Sequence[str], layout: Layout) -> None:
        self._exchange, self._endpoints, self._layout = exchange, endpoints, layout

    def pull(self, views: Mapping[str, Array]) -> int:
        """Fill whole parameters (size,), all of them or none; return batches in the values, the fewest of all servers.

        Raises:
            WaitTimeout: a server never kept a moment until all of it was here.
            PserverError: see `Reader`.
        """
        slabs = self._layout.slabs
        wanted = [
            i
            for i, share in enumerate(self._layout.shares)
            if any(part.parameter.name in views for part in share.dense)
        ]
        ends_at = time.monotonic() + self._exchange.wait_s
        starts, moments = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0)
        while starts:
            if time.monotonic() >= ends_at:
                raise WaitTimeout(
                    f"gave up after {self._exchange.wait_s:g} s: values change faster than they get here"
                )
            replies = self._exchange.run({i: Message(View(start, moments[i])) for i, start in starts.items()})
            for i, reply in replies.items():
                if not reply.sections:
                    starts[i] = 0
                    continue
                part = slabs[i][starts[i] : starts[i] + READ_PART]
                part[...] = reply_array(reply, self._endpoints[i], "", part.shape)
                moments[i] = reply.expect(Ok).version
                starts[i] += READ_PART
                if starts[i] >= slabs[i].size:
                    del starts[i]
        for i in wanted:
            self._layout.scatter(i, slabs[i], views)
        return min(moments.values())
