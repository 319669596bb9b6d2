# SPDX-License-Identifier: Apache-2.0
"""Whole sparse parameters on their way to and from servers, in pieces that bound the memory both sides need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle.errors import WireError
from paddle.pserver.exchange import Exchange
from paddle.pserver.layout import Array
from paddle.pserver.message import Message, Section, Verb
from paddle.pserver.placement import RowShare

_CHUNK_BYTES = 32 << 20


class Tables:
    """A client's requests about whole tables. Not thread-safe; both methods block."""

    def __init__(self, exchange: Exchange, endpoints: Sequence[str]) -> None:
        self._exchange, self._endpoints = exchange, endpoints

    def send(self, index: int, share: RowShare, flat: Array) -> None:
        """Give server `index` its rows of a parameter (size,)."""
        whole = flat.reshape(share.parameter.shape)
        step = max(_CHUNK_BYTES // (4 * share.width), 1)
        for start in range(0, share.height, step):
            part = np.ascontiguousarray(whole[share.span(start, min(start + step, share.height))])
            section = Section(share.parameter.name, part)
            self._exchange.run({index: Message(Verb.SET_VALUES, extra=start, sections=(section,))})

    def pull(self, shares: Sequence[tuple[int, RowShare]], out: Array) -> None:
        """Fill `out`, of the parameter's shape, with the rows of all (server, share)."""
        for index, share in shares:
            whole = out.reshape(share.parameter.shape)
            name = Section.text("name", share.parameter.name)
            step = max(_CHUNK_BYTES // (4 * share.width), 1)
            for start in range(0, share.height, step):
                stop = min(start + step, share.height)
                request = Message(Verb.PULL_TABLE, value=start, extra=stop - start, sections=(name,))
                reply = self._exchange.run({index: request})[index]
                shape = (stop - start, share.width)
                whole[share.span(start, stop)] = reply_array(reply, self._endpoints[index], "", shape)


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
