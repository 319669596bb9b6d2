# SPDX-License-Identifier: Apache-2.0
"""A server that cannot serve: it tells the trainers that come why, so that none of them waits for it."""

from __future__ import annotations

import time

from paddle.errors import WireError
from paddle.pserver.transports.table import BaseListener
from paddle.pserver.wire.address import host_and_port
from paddle.pserver.wire.codec import decode
from paddle.pserver.wire.keys import Context, WireKeys
from paddle.pserver.wire.message import Message, error_message
from paddle.pserver.wire.verbs import Verb

_READING_S = 2.0
_STAMP = 1  # of no server: whoever hears it has no session


def refuse_trainers(
    endpoint: str, keys: WireKeys | None, text: str, trainers: int, limit_s: float
) -> set[int]:
    """Answer whatever trainers ask with an error, until each of them has heard it or the time is over.

    Args:
        endpoint: "host:port" of this machine.
        keys: None: the wire is plain.
        text: of the error.
        trainers: how many there are.
        limit_s: how long to wait for them.

    Returns:
        ids of the trainers that were told.

    Raises:
        PortBusy, ConfigError: the endpoint cannot be had.
    """
    host, port = host_and_port(endpoint)
    context = Context(keys)
    try:
        router = BaseListener(context, host, port)
        try:
            return _refuse(router, text, trainers, time.monotonic() + limit_s)
        finally:
            router.close()
    finally:
        context.close()


def _refuse(router: BaseListener, text: str, trainers: int, deadline: float) -> set[int]:
    told: set[int] = set()
    listening: set[bytes] = set()
    while (now := time.monotonic()) < deadline and (len(told) < trainers or listening):
        router.poller.wait(deadline - now)
        while (received := router.receive()) is not None:
            address, frames = received
            try:
                asked = decode(frames)
            except WireError:
                continue
            was_sent = router.send(address, _refusal(asked, text))
            if was_sent and asked.verb is Verb.HELLO and asked.trainer < trainers:
                told.add(asked.trainer)
                listening.add(address)
                # A trainer whose connection breaks before it looks at what came over it takes us for dead.
                deadline = min(deadline, time.monotonic() + _READING_S) if len(told) == trainers else deadline
        listening.difference_update(router.lost())
    return told


def _refusal(asked: Message, text: str) -> Message:
    return error_message(text).numbered(asked.trainer, asked.session, asked.request, _STAMP)
