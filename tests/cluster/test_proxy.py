# SPDX-License-Identifier: Apache-2.0
"""The spoiling proxy: it changes what it is told to change, nothing else, and the same with the same seed."""

from __future__ import annotations

import errno
import queue
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import zmq

from tests.cluster.proxy import UP, Faults, Proxy
from tests.cluster.zmtp import GREETING_BYTES, Unit, ZmtpMessages

SENT = bytes(range(256)) * 40


class Received(queue.Queue[bytes]):
    """What came over one connection after the other."""

    def next(self) -> bytes:
        """What came over the next connection that ended; it may end a moment after its proxy."""
        return self.get(timeout=10)


@pytest.fixture
def sink() -> Iterator[tuple[tuple[str, int], Received]]:
    """A server that stores what each connection sent, until it ends."""
    received = Received()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    got = b""
                    try:
                        while data := connection.recv(65536):
                            got += data
                    except ConnectionResetError:
                        got += b"<reset>"
                received.put(got)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname(), received
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def send_through(proxy: Proxy, pieces: list[bytes]) -> bytes:
    """Sends the pieces and returns what came back until the end, which is the sink's end."""
    with socket.create_connection(proxy.address, timeout=10) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
            return client.recv(1)
        except (ConnectionResetError, BrokenPipeError):
            return b"<reset>"
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # shutdown of a connection that is reset already
                raise
            return b"<reset>"


def test_a_proxy_without_faults_changes_nothing(sink: tuple[tuple[str, int], Received]) -> None:
    address, received = sink
    with Proxy(address) as proxy:
        send_through(proxy, [SENT])
    assert received.next() == SENT


def test_a_flipped_bit_is_one_bit_and_the_same_with_the_same_seed(
    sink: tuple[tuple[str, int], Received],
) -> None:
    address, received = sink
    for seed in (1, 1, 2):
        with Proxy(address, Faults(flip=1.0), seed=seed) as proxy:
            send_through(proxy, [SENT[:100]])
            assert proxy.done["flip"] == 1
    first, again, other = (
        int.from_bytes(got, "big") ^ int.from_bytes(SENT[:100], "big")
        for got in (received.next() for _ in range(3))
    )
    assert first == again != other
    assert first.bit_count() == other.bit_count() == 1


def test_a_dropped_connection_is_reset_on_both_sides(sink: tuple[tuple[str, int], Received]) -> None:
    address, received = sink
    with Proxy(address, Faults(drop_after=0)) as proxy:
        assert send_through(proxy, [SENT]) in (b"<reset>", b"")
        assert proxy.done["drop"] >= 1
    assert received.next() == b"<reset>"


def test_a_delayed_unit_comes_late_and_whole(sink: tuple[tuple[str, int], Received]) -> None:
    address, received = sink
    begun = time.monotonic()
    with Proxy(address, Faults(delay_s=0.3)) as proxy:
        send_through(proxy, [b"x"])
    assert time.monotonic() - begun >= 0.3
    assert received.next() == b"x"


def test_a_paused_proxy_passes_nothing_until_it_is_resumed(
    sink: tuple[tuple[str, int], Received],
) -> None:
    address, received = sink
    with Proxy(address) as proxy:
        proxy.pause()
        with socket.create_connection(proxy.address, timeout=0.3) as client:
            client.sendall(b"late")
            client.shutdown(socket.SHUT_WR)
            with pytest.raises(TimeoutError):
                client.recv(1)
            proxy.resume()
            client.settimeout(5)
            assert client.recv(1) == b""
    assert received.next() == b"late"


def frame(body: bytes, flags: int = 0) -> bytes:
    return bytes([flags, len(body)]) + body


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_zmtp_messages_are_found_however_the_stream_is_cut(step: int) -> None:
    greeting = bytes(GREETING_BYTES)
    long_frame = bytes([2]) + (300).to_bytes(8, "big") + b"y" * 300
    units = [frame(b"READY", 4), frame(b"head", 1) + frame(b"body"), long_frame, frame(b"")]
    splitter = ZmtpMessages()
    stream = greeting + b"".join(units)
    got = [unit for at in range(0, len(stream), step) for unit in splitter.feed(stream[at : at + step])]
    messages = [Unit(units[0], False), *(Unit(data, True) for data in units[1:])]
    assert got[-len(messages) :] == messages
    assert b"".join(unit.data for unit in got[: -len(messages)]) == greeting


def exchange_zmq(faults: Faults, seed: int) -> list[bytes]:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        pull.rcvtimeo, push.linger = 500, 0
        with Proxy(("127.0.0.1", port), faults, seed=seed, splitter=ZmtpMessages) as proxy:
            push.connect(f"tcp://127.0.0.1:{proxy.address[1]}")
            for number in range(50):
                push.send_multipart([b"head", b"%d" % number])
            got = []
            while pull.poll(500):
                got.append(pull.recv_multipart()[1])
    return got


def test_zmq_messages_are_repeated_and_swapped_whole_and_repeatably() -> None:
    faults = Faults(repeat=0.2, swap=0.2, directions=(UP,))
    got = exchange_zmq(faults, seed=5)
    plain = [b"%d" % number for number in range(50)]
    assert sorted(set(got)) == sorted(plain)
    assert len(got) > 50
    assert got != sorted(got, key=int)
    assert got[:40] == exchange_zmq(faults, seed=5)[:40]
