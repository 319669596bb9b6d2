# SPDX-License-Identifier: Apache-2.0
"""Reconnecting to an agent that lives on after its connection was lost: who proves to be whom, and who has what.

The agent is given a key with the first frame. A new login starts a small process on the node that hands its standard
input and output to the agent (paddle_node.agent.reconnect); then both sides know what the other one has, and go on.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from paddle_cluster.connection.carrier import Decoder, Stream
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.frames import MAX_HEADER, FrameError, encode
from paddle_node.contract.records import Bytes, read_text
from paddle_node.contract.to_agent import ReconnectKey

WORD_BYTES = 32
PINGS_A_LEASE = 6
LONGEST_PING_S = 5.0
LOGIN_S = 3.0  # what a login may take once there is a way to the node again
HANDOVER_S = 10.0  # from the login to the agent's answer
NOISE_SIZE = 4096
_PREFIX = struct.Struct("!IQ")


def ping_s(lease_s: float) -> float:
    """How often a node is asked for a word."""
    return min(lease_s / PINGS_A_LEASE, LONGEST_PING_S)


def new_key(lease_s: float) -> ReconnectKey:
    """A key that nobody else has."""
    at = f"paddle-agent-{os.urandom(16).hex()}"
    return ReconnectKey(at, os.urandom(WORD_BYTES).hex(), ping_s(lease_s) + LOGIN_S)


class _Answer(NamedTuple):
    """`reconnected`, with the bytes that the agent has; or `failed`."""

    kind: Literal["reconnected", "failed"]
    position: Bytes | None = None
    reason: str = ""
    detail: str = ""


class ReconnectError(Exception):
    """The agent did not take the connection.

    Attributes:
        is_final: there is no agent any more that could.
    """

    def __init__(self, what: str, is_final: bool) -> None:
        super().__init__(visible(what))
        self.is_final = is_final


def hand_over(stream: Stream, key: ReconnectKey, release: Callable[[], int]) -> int:
    """Have the agent take a new connection; blocks for HANDOVER_S at most.

    Args:
        release: called once the node has answered: lets go of the old connection; how many bytes have come over it.

    Returns:
        How many bytes of our stream the agent has.

    Raises:
        ReconnectError: it did not.
    """
    deadline = time.monotonic() + HANDOVER_S
    try:
        _write(stream, stream.bootstrap.first_bytes, deadline)
        decoder = Decoder(stream.bootstrap.nonce)
        while not decoder.started:
            decoder.feed(_read(stream, NOISE_SIZE, deadline))  # nothing follows its marker unasked
        _write(stream, encode("reconnect", {"at": key.at, "word": key.word, "received": release()}), deadline)
        header_size, body_size = _PREFIX.unpack(_read_all(stream, _PREFIX.size, deadline))
        if header_size > MAX_HEADER or body_size:
            raise ReconnectError(f"a frame says {header_size} + {body_size} bytes", is_final=False)
        answer = read_text(_Answer, _read_all(stream, header_size, deadline), "reconnect", "the node agent")
        if answer.kind == "reconnected":
            if answer.position is None:
                raise ReconnectError("the agent did not say how many bytes it has", is_final=False)
            return answer.position
        raise ReconnectError(answer.detail[:500], is_final=answer.reason == "gone")
    except (OSError, ValueError, FrameError) as error:
        raise ReconnectError(f"{type(error).__name__}: {error}", is_final=False) from error


def _write(stream: Stream, data: bytes, deadline: float) -> None:
    while data:
        if time.monotonic() >= deadline:
            raise TimeoutError("the node accepts no data")
        data = data[stream.write(data) :]


def _read_all(stream: Stream, size: int, deadline: float) -> bytes:
    """Exactly so many bytes: what follows belongs to the conversation."""
    data = b""
    while len(data) < size:
        data += _read(stream, size - len(data), deadline)
    return data


def _read(stream: Stream, limit: int, deadline: float) -> bytes:
    with_deadline = select.poll()
    with_deadline.register(stream.fileno(), select.POLLIN)
    while (data := stream.read(limit)) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no answer within {HANDOVER_S:.0f} s")
        with_deadline.poll(left_s * 1000)
    if not data:
        raise ConnectionError(stream.end())
    return data
