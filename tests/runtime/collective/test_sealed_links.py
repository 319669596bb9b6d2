# SPDX-License-Identifier: Apache-2.0
"""Sealed links between ranks: what somebody between two of them can do, which is to end the job with its cause."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paddle.collective import CollectiveError, PeerLost, connect
from paddle.collective.connection.calls import Callers, call, listen
from paddle.collective.connection.mesh import SealedLink, key_of, sealing, token_of
from paddle.collective.connection.rendezvous import Hello
from paddle.collective.connection.stream import Stream, finish, prepare
from paddle.collective.exchange.inter_node import InterNode
from paddle.collective.exchange.task import Kind, Pieces, Task, dtype_code
from paddle.collective.exchange.watch import Watch
from paddle.errors import WireError
from paddle.sealed_stream import SealedSink, SealedSource
from paddle.sealing import (
    CALLED,
    CALLER,
    GREETING_BYTES,
    HEADER_BYTES,
    MOST_PIECES,
    OVERHEAD,
    REKEY_EVERY,
    Opener,
    Sealer,
    piece_of,
)
from tests.runtime.collective.ranks import KEY, PATIENCE_S, failure, members

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
LINKS_KEY, TOKEN = b"s" * 32, b"l" * 16
SMALL, LARGE = 1000, 500_000  # elements: in rounds, and round the ring
WITHOUT_CRYPTOGRAPHY = """
import sys
sys.modules["cryptography"] = None
import numpy as np
from paddle.collective import Membership, connect
key, *everyone = sys.argv[1:]
with connect(Membership.of(1, everyone, job_key=key, timeout_s=30, way="tcp")) as group:
    array = np.ones(100_000)
    group.all_reduce(array)
    sys.exit(0 if (array == 2).all() else 1)
"""


def connection() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), PATIENCE_S)
        return near, listener.accept()[0]


def link(sock: socket.socket, token: bytes = b"", key: bytes = LINKS_KEY) -> Stream:
    """One side's link, after its handshake."""
    steps = sealing(sock, key, token, lambda asked: asked == TOKEN)
    return finish(steps, sock.fileno(), time.monotonic() + PATIENCE_S)


def total(place: int, stream: Stream, size: int) -> float:
    """Sum ones with the other rank, and return what all elements are then."""
    array = np.ones(size, np.float32)
    task = Task(0, Kind.SUM, dtype_code(array.dtype), array.nbytes)
    watch = Watch(place, {}, ("near", "far"), PATIENCE_S)
    watch.begin(0)
    with closing(stream):
        InterNode([0, 1], place, {1 - place: stream}, watch).sum(Pieces([array]), task)
    (found,) = set(array.tolist())
    return float(found)


def taken(sock: socket.socket, count: int) -> bytes:
    """So many bytes of a connection, or as many as there are to its end."""
    found = b""
    while len(found) < count and (data := sock.recv(count - len(found))):
        found += data
    return found


def pieces(sock: socket.socket) -> Iterator[bytes]:
    """What a rank sends, piece by piece."""
    while len(header := taken(sock, HEADER_BYTES)) == HEADER_BYTES:
        yield header + taken(sock, piece_of(memoryview(header), 0)[0] + OVERHEAD - HEADER_BYTES)


Attack = Callable[[list[bytes]], list[bytes]]
ATTACKS: dict[str, Attack] = {
    "a flipped bit": lambda two: [two[0][:-1] + bytes([two[0][-1] ^ 1]), two[1]],
    "repeated": lambda two: [two[0], *two],
    "swapped": lambda two: two[::-1],
    "left out": lambda two: two[1:],
    "a longer one": lambda two: [b"\x01" + two[0][1:], two[1]],
}


def between(near: socket.socket, far: socket.socket, attack: Attack) -> None:
    """Pass on what comes from `near`, and attack the first two pieces of messages."""
    with suppress(OSError):
        far.sendall(taken(near, GREETING_BYTES))
        found = pieces(near)
        far.sendall(next(found))
        if attack is not pass_on:
            two = [next(found), next(found)]
            for each in attack(two):
                far.sendall(each)
        for each in found:
            far.sendall(each)
    with suppress(OSError):
        far.shutdown(socket.SHUT_WR)


def pass_on(two: list[bytes]) -> list[bytes]:
    return two


def through(attack: Attack, size: int) -> list[float | CollectiveError]:
    """Let two ranks sum, with somebody between them who attacks what rank 0 sends."""
    (near, at_near), (at_far, far) = connection(), connection()

    def act(place: int) -> float | CollectiveError:
        sock, token = ((near, TOKEN), (far, b""))[place]
        try:
            return total(place, link(sock, token), size)
        except CollectiveError as error:
            return error

    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        for sock in (near, at_near, at_far, far):
            stack.enter_context(sock)
            sock.settimeout(PATIENCE_S)
        passing = [
            threads.submit(between, at_near, at_far, attack),
            threads.submit(between, at_far, at_near, pass_on),
        ]
        found = [each.result(2 * PATIENCE_S) for each in [threads.submit(act, place) for place in (0, 1)]]
        for each in passing:
            each.result(PATIENCE_S)
    return found


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["in rounds", "round the ring"])
def test_somebody_between_two_ranks_passes_on_what_they_say(size: int) -> None:
    assert through(pass_on, size) == [2.0, 2.0]


@pytest.mark.parametrize("attack", ATTACKS)
def test_tampering_between_two_ranks_ends_the_sum_without_a_result(attack: str) -> None:
    hurt = through(ATTACKS[attack], LARGE)[1]
    assert isinstance(hurt, PeerLost)
    assert "rank 0 (near) was lost: cannot decrypt piece" in str(hurt)
    assert "cannot decrypt piece" in str(hurt)


def test_a_link_that_is_cut_off_is_a_lost_rank() -> None:
    (near, far) = connection()
    with closing(near), closing(far), ThreadPoolExecutor(1) as threads:
        called = threads.submit(link, far)
        link(near, TOKEN).sock.sendall(b"\0\4\0\0" + bytes(100))  # of a piece that would be longer
        with closing(called.result(PATIENCE_S)) as theirs:
            near.close()
            lost = failure(lambda: total(1, theirs, LARGE))
    assert isinstance(lost, PeerLost)
    assert "closed in the middle" in str(lost)


@pytest.mark.parametrize(
    ("token", "key"), [(b"x" * 16, LINKS_KEY), (TOKEN, b"o" * 32)], ids=["another token", "another key"]
)
def test_an_unexpected_peer_gets_no_link(token: bytes, key: bytes) -> None:
    near, far = connection()
    with closing(near), closing(far), ThreadPoolExecutor(2) as threads:
        for each in (threads.submit(link, near, token, key), threads.submit(link, far)):
            with pytest.raises((WireError, ConnectionError)):
                each.result(PATIENCE_S)


@pytest.mark.parametrize("seals", [True, False])
def test_a_rank_accepts_only_links_with_the_agreed_encryption(
    seals: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = members(2, way="tcp")
    deadline = time.monotonic() + PATIENCE_S
    calling, called = partial(sealing, key=LINKS_KEY, token=TOKEN), partial(sealing, key=LINKS_KEY)
    hello = Hello(1, "a node", "a digest")
    right, wrong = (calling, None) if seals else (None, calling)
    with (
        listen(one) as listener,
        Callers(one, listener, deadline, Hello, called if seals else None) as callers,
        ThreadPoolExecutor(1) as threads,
    ):
        taking = threads.submit(callers.next, str)
        with pytest.raises(CollectiveError, match="rank 0 at"):
            call(other, 0, time.monotonic() + 0.1, wrong)
        with closing(call(other, 0, deadline, right)) as stream:
            stream.send_note(hello, deadline)
            found = taking.result(PATIENCE_S)
            assert found is not None
            with closing(found[0]):
                assert found[1] == hello
    assert ("not a sealed stream" if seals else "cannot encrypt") in caplog.text


def test_a_lane_is_one_sessions_and_one_pairs() -> None:
    tokens = {
        token_of(key_of(secret, session), caller, called)
        for secret in (b"s" * 32, b"o" * 32)
        for session in (b"m" * 16, b"n" * 16)
        for caller, called in ((0, 1), (1, 0), (0, 2), (256, 1))
    }
    assert len(tokens) == 16


def counted(count: int, rekey_every: int) -> tuple[Stream, Stream]:
    """Both ends of a link on which so many pieces went."""
    ends = connection()
    keys = [b"k" * 32, b"c" * 32]

    def end(ours: int) -> Stream:
        prepare(ends[ours])
        theirs = 1 - ours
        opener = Opener(keys[theirs], theirs, TOKEN, count=count, rekey_every=rekey_every)
        sealer = Sealer(keys[ours], ours, TOKEN, count=count, rekey_every=rekey_every)
        return SealedLink(ends[ours], SealedSource(ends[ours], opener), SealedSink(ends[ours], sealer))

    return end(CALLER), end(CALLED)


def test_keys_change_in_the_middle_of_a_sum() -> None:
    ends = counted(REKEY_EVERY - 2, REKEY_EVERY)
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(total, place, end, LARGE) for place, end in enumerate(ends)]
        assert [each.result(PATIENCE_S) for each in found] == [2.0, 2.0]


def test_a_key_that_is_used_up_ends_the_sum() -> None:
    near, far = counted(MOST_PIECES - 1, 1 << 40)
    with closing(far):
        assert "must not be used again" in str(failure(lambda: total(0, near, LARGE)))


def test_where_one_rank_lacks_what_seals_all_use_tls_and_the_log_says_which(
    caplog: pytest.LogCaptureFixture,
) -> None:
    me = members(2, way="tcp")[0]
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_CRYPTOGRAPHY, KEY, *me.endpoints],
        env={**os.environ, "PYTHONPATH": str(RUNTIME)},
    ) as other:
        try:
            with caplog.at_level(logging.INFO), connect(me) as group:
                array = np.ones(100_000)
                group.all_reduce(array)
            assert other.wait(PATIENCE_S) == 0
        finally:
            other.kill()
    assert (array == 2).all()
    assert "rank 1 lacks cryptography" in caplog.text
