# SPDX-License-Identifier: Apache-2.0
"""Where callback agents call: who is let in, and that strangers get nothing and hold up nobody."""

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
from paddle_cluster.engines.porter_engine import AT_ONCE, Rendezvous
from paddle_cluster.system import job_certificate

Came = tuple[int, str, TlsStream]
LATE_S = 30.0


class Door:
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
def door() -> Iterator[Door]:
    made = Door()
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
def test_who_knows_the_word_is_let_in_and_bytes_go_both_ways(door: Door, limit: int) -> None:
    porter = door.call()
    rank, host, stream = door.came.get(timeout=LATE_S)
    assert (rank, host) == (1, "node-b")
    assert stream.write(b"x" * 1000) == 1000
    assert len(porter.recv(1000)) == 1000
    sent = bytes(range(256)) * (8 if limit < PIECE else 600)
    porter.sendall(sent)
    assert read_all(stream, len(sent), limit) == sent


def test_an_end_is_told_from_a_cut(door: Door) -> None:
    says_so, cut = door.call(rank=0), door.call(rank=1)
    streams = {rank: stream for rank, _, stream in (door.came.get(timeout=LATE_S) for _ in range(2))}
    cut.shutdown(socket.SHUT_RDWR)
    says_so.setblocking(False)
    with contextlib.suppress(ssl.SSLWantReadError):  # it has said so, and would wait for the answer
        says_so.unwrap()
    for rank, may_live_on in ((0, False), (1, True)):
        assert until_end(streams[rank]) == b""
        assert streams[rank].may_live_on is may_live_on


@pytest.mark.parametrize(
    "said", [{"word": "0" * 64}, {"word": None}, {"rank": "1"}, {"rank": True}, {"host": 3}, {"word": "é"}]
)
def test_who_says_anything_else_is_shown_the_door(door: Door, said: dict[str, Any]) -> None:
    stranger = door.call(**said)
    assert stranger.recv(1) == b""
    door.call()
    assert door.came.get(timeout=LATE_S)[1] == "node-b"
    assert door.came.empty()


def test_a_launcher_with_another_certificate_is_not_trusted(door: Door) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        door.call(certificate=job_certificate.make().certificate)


def test_silent_strangers_hold_up_nobody(door: Door) -> None:
    for _ in range(AT_ONCE - 1):
        door.raw()
    door.call()
    assert door.came.get(timeout=LATE_S)[0] == 1


def test_of_a_range_of_ports_the_first_free_one_is_taken(door: Door) -> None:
    _, taken = door.invitation["addresses"][0]
    with pytest.raises(OSError, match="Address already in use"):
        Rendezvous(lambda *came: None, range(taken, taken + 1))
    other = Rendezvous(lambda *came: None, range(taken, taken + 100))
    _, port = other.invitation(["127.0.0.1"], ["RANK"], 30.0)["addresses"][0]
    other.close()
    assert taken < port < taken + 100
