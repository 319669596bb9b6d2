# SPDX-License-Identifier: Apache-2.0
"""The listener for callback agents: which peers it accepts; unauthenticated ones get nothing and delay no agent."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest

from paddle_cluster.connection.bootstrap import agent_bootstrap
from paddle_cluster.connection.tls_stream import PIECE, TlsStream
from paddle_cluster.engines.callback_engine import AT_ONCE, Rendezvous
from paddle_cluster.system import job_certificate

Came = tuple[int, str, TlsStream]
LATE_S = 30.0


class RendezvousPeer:
    """A rendezvous, what it let in, and a caller's side."""

    def __init__(self) -> None:
        self.came: queue.SimpleQueue[Came] = queue.SimpleQueue()
        self.streams: list[TlsStream] = []
        self.rendezvous = Rendezvous(self._comes)
        self.invitation = self.rendezvous.invitation(["127.0.0.1"], ["RANK"], 30.0)
        self.open: list[socket.socket] = []

    def _comes(self, rank: int, host: str, stream: TlsStream) -> None:
        stream.begin(agent_bootstrap(), str)
        self.streams.append(stream)
        self.came.put((rank, host, stream))

    def raw(self) -> socket.socket:
        """A connection without a word."""
        _, port = self.invitation["addresses"][0]
        made = socket.create_connection(("127.0.0.1", port), LATE_S)
        self.open.append(made)
        return made

    def call(self, certificate: str = "", **said: Any) -> ssl.SSLSocket:
        """A callback agent's call."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=certificate or self.invitation["certificate"])
        made = context.wrap_socket(self.raw())
        self.open.append(made)
        word = {"word": self.invitation["word"], "rank": 1, "host": "node-b", **said}
        made.sendall(json.dumps(word).encode() + b"\n")
        return made


@pytest.fixture
def rendezvous_peer() -> Iterator[RendezvousPeer]:
    made = RendezvousPeer()
    yield made
    made.rendezvous.close()
    for one in made.open:
        one.close()
    for stream in made.streams:
        stream.end()


def read_all(stream: TlsStream, size: int, limit: int) -> bytes:
    """So many bytes, in reads of a limit each."""
    data, deadline = b"", time.monotonic() + LATE_S
    while len(data) < size and time.monotonic() < deadline:
        piece = stream.read(limit)
        assert piece != b""
        assert piece is None or len(piece) <= limit
        data += piece or b""
    return data


def until_end(stream: TlsStream) -> bytes:
    """All that comes until the stream says that it has ended."""
    data, deadline = b"", time.monotonic() + LATE_S
    while (piece := stream.read(PIECE)) != b"":
        assert time.monotonic() < deadline, "no end"
        data += piece or b""
    return data


@pytest.mark.parametrize("limit", [1, 12, PIECE, 4 * PIECE])
def test_authenticated_peer_exchanges_bytes(rendezvous_peer: RendezvousPeer, limit: int) -> None:
    callback_agent = rendezvous_peer.call()
    rank, host, stream = rendezvous_peer.came.get(timeout=LATE_S)
    assert (rank, host) == (1, "node-b")
    assert stream.write(b"x" * 1000) == 1000
    assert len(callback_agent.recv(1000)) == 1000
    sent = bytes(range(256)) * (8 if limit < PIECE else 600)
    callback_agent.sendall(sent)
    assert read_all(stream, len(sent), limit) == sent


def test_close_is_distinguished_from_lost_connection(rendezvous_peer: RendezvousPeer) -> None:
    closed, cut = rendezvous_peer.call(rank=0), rendezvous_peer.call(rank=1)
    streams = {
        rank: stream for rank, _, stream in (rendezvous_peer.came.get(timeout=LATE_S) for _ in range(2))
    }
    cut.shutdown(socket.SHUT_RDWR)
    closed.setblocking(False)
    with contextlib.suppress(ssl.SSLWantReadError):  # it has said so, and would wait for the answer
        closed.unwrap()
    for rank, may_live_on in ((0, False), (1, True)):
        assert until_end(streams[rank]) == b""
        assert streams[rank].may_live_on is may_live_on


@pytest.mark.parametrize(
    "said", [{"word": "0" * 64}, {"word": None}, {"rank": "1"}, {"rank": True}, {"host": 3}, {"word": "é"}]
)
def test_malformed_greeting_is_rejected(rendezvous_peer: RendezvousPeer, said: dict[str, Any]) -> None:
    unauthenticated_peer = rendezvous_peer.call(**said)
    assert unauthenticated_peer.recv(1) == b""
    rendezvous_peer.call()
    assert rendezvous_peer.came.get(timeout=LATE_S)[1] == "node-b"
    assert rendezvous_peer.came.empty()


def test_a_launcher_with_another_certificate_is_not_trusted(rendezvous_peer: RendezvousPeer) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        rendezvous_peer.call(certificate=job_certificate.make().certificate)


def test_silent_peers_do_not_delay_others(rendezvous_peer: RendezvousPeer) -> None:
    for _ in range(AT_ONCE - 1):
        rendezvous_peer.raw()
    rendezvous_peer.call()
    assert rendezvous_peer.came.get(timeout=LATE_S)[0] == 1


def test_of_a_range_of_ports_the_first_free_one_is_taken(rendezvous_peer: RendezvousPeer) -> None:
    _, taken = rendezvous_peer.invitation["addresses"][0]
    with pytest.raises(OSError, match="Address already in use"):
        Rendezvous(lambda *came: None, range(taken, taken + 1))
    other = Rendezvous(lambda *came: None, range(taken, taken + 100))
    _, port = other.invitation(["127.0.0.1"], ["RANK"], 30.0)["addresses"][0]
    other.close()
    assert taken < port < taken + 100
