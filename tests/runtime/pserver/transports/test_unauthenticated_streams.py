# SPDX-License-Identifier: Apache-2.0
"""A port for sealed streams: who comes in, who is sent away and counted, and that neither takes a plain stream."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paddle.errors import WireError
from paddle.pserver.transports.tcp import TcpConnection
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Invited, Ping, Verb
from paddle.sealing import CALLED, CALLER, NONCE_BYTES, OVERHEAD, Greeting, SealError
from tests.runtime.pserver.stream_port import Beside

KEYS, OTHER_KEYS = WireKeys.of("5a" * 32), WireKeys.of("6b" * 32)
ENDPOINT = "127.0.0.1:7164"
ANSWER_S = 60.0


@pytest.fixture
def beside() -> Iterator[Beside]:
    port = Beside(KEYS)
    yield port
    port.door.close()


def come(beside: Beside, invitation: Message, keys: WireKeys | None) -> TcpConnection:
    """Return a trainer's stream, the port at work meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        coming = pool.submit(TcpConnection, ENDPOINT, invitation, lambda header: None, keys)
        while not coming.done():
            beside.serve_one(0.05)
        return coming.result()


def where(invitation: Message) -> tuple[str, int]:
    return "127.0.0.1", invitation.expect(Invited).port


def stranger(beside: Beside, invitation: Message, said: bytes) -> socket.socket:
    """Return one who said something and was let in as far as the door."""
    sock = socket.create_connection(where(invitation), ANSWER_S)
    sock.sendall(said)
    beside.serve_one()
    return sock


def test_who_has_the_word_and_the_key_is_heard(beside: Beside) -> None:
    link = come(beside, beside.invite(), KEYS)
    with contextlib.closing(link):
        assert link.send(Message(Ping()))
        while not beside.heard:
            beside.serve_one()
        ((address, message),) = beside.heard
        assert message.verb is Verb.PING
        assert beside.door.send(address, Message(Ping()))
        while (answer := link.take()) is None:
            pass
        assert answer.verb is Verb.PING
        beside.door.lose_host(b"host")
        assert beside.lost == [address]
        assert beside.door.rejected == 0


def test_the_word_is_good_once_and_lasts_until_its_owner_came(beside: Beside) -> None:
    invitation = beside.invite()
    word = bytes(invitation.section("word").array)
    greeting = Greeting(CALLER, word, bytes(NONCE_BYTES)).to_bytes()
    with stranger(beside, invitation, greeting + bytes(OVERHEAD)):  # saw the word on its way
        come(beside, invitation, KEYS).close()
    with pytest.raises((WireError, ConnectionError)):
        come(beside, invitation, KEYS)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(16),
        np.random.default_rng(1).bytes(1 << 12),
        b"PDSS\xff" + bytes(60),
        Greeting(CALLER, bytes(16), bytes(NONCE_BYTES)).to_bytes(),
        Greeting(CALLED, bytes(16), bytes(NONCE_BYTES)).to_bytes(),
    ],
    ids=["HTTP", "a plain word", "noise", "another version", "a word of nobody", "a server's"],
)
def test_a_stranger_is_sent_away_at_once_counted_and_not_complained_of(
    beside: Beside, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with stranger(beside, beside.invite(), said) as sock:
        while not beside.lost:
            beside.serve_one()
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    assert (beside.door.rejected, beside.heard) == (1, [])
    assert not caplog.records


def test_a_plain_stream_with_the_right_token_is_refused(beside: Beside) -> None:
    invitation = beside.invite()
    with contextlib.closing(come(beside, invitation, None)) as link:
        link.send(Message(Ping()))
        while not beside.lost:
            beside.serve_one()
    assert (beside.door.rejected, beside.heard) == (1, [])


@pytest.mark.parametrize("servers", [None, OTHER_KEYS], ids=["no key", "another key"])
def test_a_trainer_with_a_key_takes_no_stream_of_who_does_not_know_it(servers: WireKeys | None) -> None:
    beside = Beside(servers)
    with contextlib.closing(beside.door), pytest.raises((SealError, ConnectionError)):
        come(beside, beside.invite(), KEYS)
    assert beside.heard == []


@pytest.mark.parametrize("said", [b"\0" * 200, b"PDPS" + bytes(200)], ids=["nothing", "a plain message"])
def test_a_trainer_with_a_key_reads_no_unencrypted_data(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        word = Beside(None)
        invitation = word.invite()._replace(record=Invited(listener.getsockname()[1], 7164))
        word.door.close()

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(said)
                sock.recv(1 << 10)

        talking = threading.Thread(target=answer)
        talking.start()
        with pytest.raises(SealError, match="not a sealed stream"):
            TcpConnection(ENDPOINT, invitation, lambda header: None, KEYS)
        talking.join(ANSWER_S)


@pytest.mark.parametrize("said", [b"", b"PDSS\x01"], ids=["nothing", "half a greeting"])
def test_a_crowd_that_never_finishes_its_greeting_does_not_shut_the_door_to_who_was_invited(
    beside: Beside, said: bytes
) -> None:
    invitation = beside.invite()
    with contextlib.ExitStack() as crowd:
        for _ in range(300):
            crowd.enter_context(stranger(beside, invitation, said))
        crowd.enter_context(contextlib.closing(come(beside, invitation, KEYS)))
        assert beside.door.rejected == len(beside.lost) >= 300 - 128


def test_who_takes_too_long_is_sent_away_and_who_only_looked_is_not_counted() -> None:
    beside = Beside(KEYS, within_s=0.0)
    with contextlib.closing(beside.door):
        invitation = beside.invite()
        with stranger(beside, invitation, b""):
            beside.door.tick()
            assert (beside.door.rejected, len(beside.lost)) == (1, 1)
        stranger(beside, invitation, b"").close()
        while len(beside.lost) < 2:
            beside.serve_one()
        assert beside.door.rejected == 1


def test_damage_on_the_way_is_told_with_its_cause(
    beside: Beside, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: list[socket.socket] = []
    connect = socket.create_connection

    def noted(*more: Any) -> socket.socket:
        ours.append(connect(*more))
        return ours[-1]

    monkeypatch.setattr(socket, "create_connection", noted)
    with contextlib.closing(come(beside, beside.invite(), KEYS)):
        ours[0].sendall(bytes([4, 0, 0, 0, 1]) + bytes(20))
        while not beside.lost:
            beside.serve_one()
    assert "a stream connection was closed: cannot decrypt piece 1 of a stream" in caplog.text
