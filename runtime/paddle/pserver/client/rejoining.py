# SPDX-License-Identifier: Apache-2.0
"""How a trainer that was started again finds its place among the others."""

from __future__ import annotations

from collections.abc import Iterable

from paddle.pserver.client.exchange import Exchange
from paddle.pserver.wire.message import Message, Verb


def rejoin(exchange: Exchange, servers: Iterable[int]) -> int:
    """Bring all servers to the same pass as far as this trainer is concerned; return how many passes are over.

    The earlier process may have told one server of the end of a pass and not the next: those that are behind hear it
    again, or the others would wait for it for ever.
    """
    replies = exchange.run({index: Message(Verb.PULL, extra=1) for index in servers})
    passes = {index: reply.extra for index, reply in replies.items()}
    behind = [index for index, number in passes.items() if number < max(passes.values())]
    for verb in (Verb.START_PASS, Verb.FINISH_PASS):
        if behind:
            exchange.run({index: Message(verb) for index in behind})
    return max(passes.values())
