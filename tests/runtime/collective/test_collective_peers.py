# SPDX-License-Identifier: Apache-2.0
"""Whoever calls a rank and is none of the job: the job starts all the same, and the log stays short."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.collective import Membership, connect
from paddle.collective.connection import calls
from paddle.collective.connection.calls import Callers, call, listen
from paddle.collective.connection.rendezvous import Hello
from paddle.collective.connection.stream import Greet
from tests.runtime.collective.ranks import KEY, PATIENCE_S, members

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
# Less than two strangers took who were heard one after another, ten seconds each.
SOON_S = 15.0
SUMS = """
import resource, sys
import numpy as np
from paddle.collective import Membership, connect
key, *everyone = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
with connect(Membership.of(0, everyone, job_key=key, timeout_s=30, way="tcp")) as group:
    group.all_reduce(np.ones(4))
    group.all_reduce(np.ones(100_000))
"""


def tls_hello() -> bytes:
    """What a client of TLS says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_ciphers("ADH-AES256-GCM-SHA384:@SECLEVEL=0")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    said = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


WORDS = {
    "curve": (b"", tls_hello(), b"PDSS\2\0" + bytes(48), b"GET / HTTP/1.1\r\n\r\n", os.urandom(300)),
    "plain": (b"", b"PADDLE-COLLECTIVE-1\nK" + bytes(32), b"GET / HTTP/1.1\r\n\r\n", os.urandom(300)),
}


@contextmanager
def crowd(endpoints: tuple[str, ...], count: int, words: tuple[bytes, ...]) -> Iterator[list[socket.socket]]:
    """So many connections with each endpoint, each of which says one of the words and then nothing more."""
    with ExitStack() as stack:
        found = []
        for endpoint in endpoints:
            host, port = endpoint.split(":")
            first = stack.enter_context(once_there(host, int(port)))
            found.append(first)
            for number in range(1, count):
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex((host, int(port)))  # beyond the backlog it comes about later, or never
                found.append(sock)
                try:
                    sock.sendall(words[number % len(words)])
                except OSError:
                    continue  # sent away, or not let in yet
        yield found


def once_there(host: str, port: int) -> socket.socket:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.01)


def sums(me: Membership) -> tuple[float, float]:
    """Connect, and sum a little (in rounds) and much (round the ring)."""
    with connect(me) as group:
        little, much = np.ones(4), np.ones(100_000)
        group.all_reduce(little)
        group.all_reduce(much)
        return float(little[0]), float(much[-1])


@pytest.mark.parametrize("wire", ["curve", "plain"])
@pytest.mark.parametrize("count", [2, 50, 500])
@pytest.mark.parametrize("strangers_at", [(0,), (1, 2)], ids=["meeting", "mesh"])
def test_silent_or_malformed_peers_cannot_block_the_start(
    strangers_at: tuple[int, ...], count: int, wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    everyone = members(3, way="tcp", wire=wire, timeout_s=SOON_S)
    waited_for = 2 if strangers_at == (0,) else 0
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(3) as threads:
        early = [threads.submit(sums, me) for me in everyone if me.rank != waited_for]
        with crowd(tuple(everyone[0].endpoints[rank] for rank in strangers_at), count, WORDS[wire]):
            late = threads.submit(sums, everyone[waited_for])
            assert [each.result(2 * PATIENCE_S) for each in (*early, late)] == [(3.0, 3.0)] * 3
    lines = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert len([line for line in lines if "a connection from" in line]) <= 3, "told one by one"


@pytest.mark.parametrize("wire", ["curve", "plain"])
def test_of_very_many_connections_few_are_kept_and_the_rest_is_counted(
    wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    me, other = members(2, wire=wire)
    deadline, hello = time.monotonic() + PATIENCE_S, Hello(1, "a node", "a digest")

    def take_call() -> Hello:
        with listen(me) as listener, Callers(me, listener, deadline, Hello) as callers:
            caller = callers.next(str)
            assert caller is not None
            with closing(caller[0]):
                return caller[1]

    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as threads:
        called = threads.submit(take_call)
        with ExitStack() as stack:
            host, port = me.endpoints[0].split(":")
            clients = [stack.enter_context(once_there(host, int(port))) for _ in range(400)]
            for client in clients:  # the kernel may keep silent connections that it admitted by SYN cookies
                with suppress(OSError):
                    client.sendall(WORDS[wire][1])
            while sum(map(is_closed, clients)) < 400 - (128 + me.size):
                assert time.monotonic() < deadline, "more are kept"
                time.sleep(0.01)
            assert not called.done()
            with closing(call(other, 0, deadline)) as stream:
                stream.send_note(hello, deadline)
                assert called.result(PATIENCE_S) == hello
    lines = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert lines[-1].endswith("connections from outside this job have been refused so far")
    assert len(lines) <= 6, "told one by one"


def test_a_rank_with_few_descriptors_lets_strangers_go() -> None:
    me = members(2, way="tcp")[1]
    with subprocess.Popen(
        [sys.executable, "-c", SUMS, KEY, *me.endpoints],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(RUNTIME)},
        text=True,
    ) as first:
        try:
            with crowd(me.endpoints[:1], 90, WORDS["curve"]):
                assert sums(me) == (2.0, 2.0)
            assert first.wait(PATIENCE_S) == 0
        finally:
            first.kill()


def is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        while sock.recv(4096):
            continue
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("place", [1, 3], ids=["meeting", "mesh"])
@pytest.mark.parametrize("wire", ["curve", "plain"])
def test_a_rank_that_had_to_make_room_for_strangers_calls_again(
    wire: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, came = calls._introduction, []

    def first_one_goes(sock: socket.socket, greet: Greet, says: Any) -> Any:
        stream, note = yield from plain(sock, greet, says)
        came.append(note.rank)
        if len(came) == place:  # two meet rank 0 first
            stream.close()
            raise OSError("no room")
        return stream, note

    monkeypatch.setattr(calls, "_introduction", first_one_goes)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(sums, members(3, way="tcp", wire=wire, timeout_s=SOON_S)))
    assert found == [(3.0, 3.0)] * 3
    assert len(came) == 6
