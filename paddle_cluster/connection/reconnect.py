# SPDX-License-Identifier: Apache-2.0
"""Reconnects to an agent whose connection was lost: authenticates both ends and compares their stream positions.

The first frame gives the agent a key. A new login starts a small process on the node that passes its standard input and
output to the agent (paddle_node.agent.reconnect). Then each end reports how many bytes it has received, and both
continue from there.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable
from typing import Literal

from paddle_cluster.connection.carrier import Decoder, Stream
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.frames import MAX_HEADER, FrameError, encode
from paddle_node.contract.records import Bytes, read_text
from paddle_node.contract.to_agent import ReconnectKey

WORD_BYTES = 32
PINGS_A_LEASE = 6
LONGEST_PING_S = 5.0
LOGIN_S = 3.0  # maximum duration of a login once the node is reachable again
HANDOVER_S = 10.0  # from the login to the agent's answer
NOISE_SIZE = 4096
_PREFIX = struct.Struct("!IQ")


def ping_s(lease_s: float) -> float:
    """Return the interval at which the launcher pings a node, in seconds."""
    return min(lease_s / PINGS_A_LEASE, LONGEST_PING_S)


def new_key(lease_s: float) -> ReconnectKey:
    """Return a new random key for reconnecting."""
    at = f"paddle-agent-{os.urandom(16).hex()}"
    return ReconnectKey(at, os.urandom(WORD_BYTES).hex(), ping_s(lease_s) + LOGIN_S)


class _Answer(NamedTuple):
    """The node's answer: `reconnected`, with the number of bytes that the agent has received, or `failed`."""

    kind: Literal["reconnected", "failed"]
    position: Bytes | None = None
    reason: str = ""
    detail: str = ""


class ReconnectError(Exception):
    """Raised when the agent did not accept the new connection.

    Attributes:
        is_final: whether the agent no longer exists.
    """

    def __init__(self, what: str, is_final: bool) -> None:
        super().__init__(visible(what))
        self.is_final = is_final


def hand_over(stream: Stream, key: ReconnectKey, release: Callable[[], int]) -> int:
    """Have a running agent take over a new connection; block for at most HANDOVER_S seconds.

    Args:
        release: function that is called after the node has answered; it releases the old connection and returns the
            number of bytes received over it.

    Returns:
        The number of bytes of this side's stream that the agent has received.

    Raises:
        ReconnectError: the agent did not accept the connection.
    """
    deadline = time.monotonic() + HANDOVER_S
    try:
        _write(stream, stream.bootstrap.first_bytes, deadline)
        decoder = Decoder(stream.bootstrap.nonce)
        while not decoder.started:
            decoder.feed(_read(stream, NOISE_SIZE, deadline))  # nothing follows its marker without a request
        _write(stream, encode("reconnect", {"at": key.at, "word": key.word, "received": release()}), deadline)
        header_size, body_size = _PREFIX.unpack(_read_all(stream, _PREFIX.size, deadline))
        if header_size > MAX_HEADER or body_size:
            raise ReconnectError(
                f"the agent's answer is too long: a header of {header_size} bytes and a body of {body_size}",
                is_final=False,
            )
        answer = read_text(_Answer, _read_all(stream, header_size, deadline), "reconnect", "the node agent")
        if answer.kind == "reconnected":
            if answer.position is None:
                raise ReconnectError(
                    "the agent did not report how many bytes it has received", is_final=False
                )
            return answer.position
        raise ReconnectError(answer.detail[:500], is_final=answer.reason == "gone")
    except (OSError, ValueError, FrameError) as error:
        raise ReconnectError(f"{type(error).__name__}: {error}", is_final=False) from error


def _write(stream: Stream, data: bytes, deadline: float) -> None:
    while data:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"the node accepted no data within {HANDOVER_S:g} s")
        data = data[stream.write(data) :]


def _read_all(stream: Stream, size: int, deadline: float) -> bytes:
    """Read exactly `size` bytes and no more, because the following bytes belong to the conversation."""
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
