# SPDX-License-Identifier: Apache-2.0
"""Connections beside ZeroMQ: what goes over them, plain or sealed, what they refuse, and going on without."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from paddle.errors import PserverLost, WireError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.transports.byte_stream import PlainSink, PlainSource, StreamReader, StreamWriter
from paddle.pserver.transports.tcp import TcpConnection
from paddle.pserver.wire.codec import decode
from paddle.pserver.wire.message import CHUNK, MAX_HEADER_BYTES, Message, Section
from paddle.pserver.wire.verbs import Invited, Ping, Values, Verb
from tests.cluster.proxy import Faults, Proxy
from tests.cluster.zmtp import ZmtpMessages
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.pserver_process import KEY, PserverProcess
from tests.runtime.pserver.stream_port import Beside

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

SGD = OptimizerSpec("momentum", learning_rate=0.1)
LARGE = Model({"a": (2 * CHUNK + 7,), "b": (31,)})
KEYS, IDS = (None, KEY), ("plain", "sealed")
HEADER_AND_COUNT = struct.Struct("<IH")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


def through(writer: StreamWriter, reader: StreamReader) -> Message:
    while (frames := reader.read()) is None:
        writer.flush()
    return decode(frames)


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (70_000,), (3, 0, 300_000, 1)])
def test_messages_of_any_size_arrive_whole_and_in_order(
    ends: tuple[socket.socket, socket.socket], sizes: tuple[int, ...]
) -> None:
    writer, reader = StreamWriter(PlainSink(ends[0])), StreamReader(PlainSource(ends[1]))
    arrays = [np.random.default_rng(n).standard_normal(n).astype(np.float32) for n in sizes]
    for number in range(3):
        sections = tuple(Section(f"s{i}", array) for i, array in enumerate(arrays))
        assert writer.put(Message(Values(number), sections=sections))
    for number in range(3):
        message = through(writer, reader)
        assert message.expect(Values).number == number
        assert all(np.array_equal(s.array, a) for s, a in zip(message.sections, arrays, strict=True))
    assert writer.is_empty


def test_an_array_is_written_where_it_belongs_if_it_fits(ends: tuple[socket.socket, socket.socket]) -> None:
    home = np.zeros(50_000, np.float32)
    writer = StreamWriter(PlainSink(ends[0]))
    reader = StreamReader(PlainSource(ends[1]), lambda header: home.data.cast("B"))
    for array in (np.ones(50_000, np.float32), np.ones(49_999, np.float32)):
        writer.put(Message(Values(), sections=(Section("", array),)))
        got = through(writer, reader).sections[0].array
        assert np.array_equal(got, array)
        assert np.shares_memory(got, home) == (array.size == home.size)
    assert home.all()


@pytest.mark.parametrize(
    "start",
    [
        HEADER_AND_COUNT.pack(MAX_HEADER_BYTES + 1, 0),
        HEADER_AND_COUNT.pack(0, 0),
        HEADER_AND_COUNT.pack(64, 5000),
        HEADER_AND_COUNT.pack(4, 1) + struct.pack("<Q", 1 << 62) + b"head",
    ],
    ids=["long header", "no header", "many arrays", "huge array"],
)
def test_lengths_beyond_all_limits_are_refused_before_anything_is_allocated(
    ends: tuple[socket.socket, socket.socket], start: bytes
) -> None:
    ends[0].sendall(start)
    with pytest.raises(WireError):
        StreamReader(PlainSource(ends[1])).read()


@pytest.fixture
def beside() -> Iterator[Beside]:
    port = Beside()
    yield port
    port.door.close()


def test_a_door_admits_each_word_once(beside: Beside) -> None:
    invitation = beside.invite()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            link = TcpConnection("127.0.0.1:7164", invitation, lambda header: None)
            stack.callback(link.close)
            assert link.send(Message(Ping()))
        for _ in range(10):
            if not (beside.heard and beside.lost):
                beside.serve_one()
        ((first, message),), (second,) = beside.heard, beside.lost
        assert message.verb is Verb.PING
        assert first != second
        assert beside.door.send(first, Message(Ping()))
        assert beside.door.send(second, Message(Ping())) is None
        beside.door.lose_host(b"host")
        assert beside.lost == [second, first]


def test_a_crowd_that_says_no_word_does_not_shut_the_door_to_who_was_invited(beside: Beside) -> None:
    invitation = beside.invite()
    where = ("127.0.0.1", invitation.expect(Invited).port)
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(socket.create_connection(where, 20.0))
            beside.serve_one()
        link = TcpConnection("127.0.0.1:7164", invitation, lambda header: None)
        stack.callback(link.close)
        assert link.send(Message(Ping()))
        for _ in range(10):
            if not beside.heard:
                beside.serve_one()
        assert len(beside.heard) == 1, "the guest who has the word was not let in"
        beside.door.lose_host(b"host")
        assert beside.lost[-1] == beside.heard[0][0]


def test_an_invitation_to_another_port_than_ours_is_not_taken() -> None:
    with pytest.raises(WireError, match=r"7164.*port 9"):
        TcpConnection("127.0.0.1:9", Message(Invited(5, 7164)), lambda header: None)


def streams(server: PserverProcess) -> list[socket.socket]:
    """Connections of this process to ports of a server's machine, other than the one it publishes, as duplicates."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    ours = {}
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            ours[os.readlink(link)] = int(link.name)
    ports = listening - {int(server.endpoints[0].rpartition(":")[2])}
    found = [
        ours[f"socket:[{row[9]}]"]
        for row in rows
        if row[3] == "01" and int(row[2].rpartition(":")[2], 16) in ports and f"socket:[{row[9]}]" in ours
    ]
    return [socket.socket(fileno=os.dup(descriptor)) for descriptor in found]


def connected(
    endpoint: str, trainer: int = 0, count: int = 1, key: str | None = None, **more: Any
) -> TrainerSession:
    return TrainerSession.connect(
        [endpoint],
        [],
        trainer_id=trainer,
        num_trainers=count,
        job_key=key,
        wire="curve" if key else "plain",
        timeout_s=20.0,
        **({"within_node": False} | more),
    )


def begin(client: TrainerSession) -> None:
    client.configure(LARGE.parameters, SGD, LARGE.values())
    client.start_pass()


def trained(client: TrainerSession, before: Callable[[int], None]) -> dict[str, np.ndarray]:
    out = LARGE.empty()
    client.configure(LARGE.parameters, SGD, LARGE.values())
    client.start_pass()
    for step in range(4):
        before(step)
        client.push_pull(LARGE.gradients(0, step), 1, out)
    client.finish_pass()
    return out


@pytest.mark.parametrize("key", KEYS, ids=IDS)
def test_a_stream_that_breaks_changes_no_number(key: str | None) -> None:
    def cut(step: int) -> None:
        for sock in streams(server):
            with sock:
                seen.append(step)
                if step == 1:
                    sock.shutdown(socket.SHUT_RDWR)

    results, seen = [], list[int]()
    for at in (cut, lambda step: None):
        with PserverProcess("--port=0", key=key) as server, connected(server.endpoints[0], key=key) as client:
            results.append(trained(client, at))
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])
    assert seen == [0, 1]


@pytest.mark.parametrize("key", KEYS, ids=IDS)
def test_callers_that_no_descriptor_is_left_for_end_no_server(key: str | None) -> None:
    with PserverProcess("--port=0", key=key) as server, connected(server.endpoints[0], key=key) as client:
        pid = server.process.pid
        client.configure(LARGE.parameters, SGD, LARGE.values())
        client.start_pass()
        (stream,) = streams(server)
        with stream:
            door = stream.getpeername()
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), hard))
        with socket.create_connection(door, 5) as stranger:
            client.push_pull(LARGE.gradients(0, 0), 1, LARGE.empty())
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
            # it is let in after all, and sent away as it says no word
            stranger.settimeout(20)
            stranger.sendall(bytes(16))
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
        client.push_pull(LARGE.gradients(0, 1), 1, LARGE.empty())
        client.finish_pass()


@pytest.mark.parametrize("key", KEYS, ids=IDS)
def test_through_a_forwarded_port_everything_goes_the_way_that_is_forwarded(key: str | None) -> None:
    with PserverProcess("--port=0", key=key) as server:
        host, _, port = server.endpoints[0].rpartition(":")
        with Proxy((host, int(port)), Faults(), seed=1, splitter=ZmtpMessages) as proxy:
            with connected("{}:{}".format(*proxy.address), key=key) as client:
                trained(client, lambda step: None)
            # each of four pushes is a message and three chunks, at the least
            assert proxy.done["unit"] >= 4 * 4


@pytest.mark.parametrize("within_node", [True, False])
@pytest.mark.parametrize("key", KEYS, ids=IDS)
def test_a_server_that_is_killed_while_a_push_waits_is_named_at_once(
    within_node: bool, key: str | None
) -> None:
    with PserverProcess("--port=0", "--num_gradient_servers=2", key=key) as server:
        ends = [connected(server.endpoints[0], i, 2, key, within_node=within_node) for i in range(2)]
        pool = concurrent.futures.ThreadPoolExecutor(2)
        with ends[0], ends[1], pool:
            list(pool.map(begin, ends))
            push = pool.submit(ends[0].push_pull, LARGE.gradients(0, 0), 1, LARGE.empty())
            assert not concurrent.futures.wait([push], 0.2).done, "it waits for the other trainer"
            server.end(signal.SIGKILL)
            with pytest.raises(PserverLost) as raised:
                push.result(15)
            assert raised.value.endpoint == server.endpoints[0]


@pytest.mark.parametrize("key", KEYS, ids=IDS)
def test_a_push_on_a_stream_goes_on_with_the_next_process_of_a_killed_server(
    tmp_path: Path, key: str | None
) -> None:
    flags = ("--port=0", "--num_gradient_servers=2", f"--state_dir={tmp_path}")
    with PserverProcess(*flags, key=key) as server:
        ends = [connected(server.endpoints[0], i, 2, key, patience_s=20.0) for i in range(2)]
        outs = [LARGE.empty(), LARGE.empty()]
        pool = concurrent.futures.ThreadPoolExecutor(2)
        with ends[0], ends[1], pool:
            list(pool.map(begin, ends))
            early = pool.submit(ends[0].push_pull, LARGE.gradients(0, 0), 1, outs[0])
            server.end(signal.SIGKILL)
            server.start()
            ends[1].push_pull(LARGE.gradients(1, 0), 1, outs[1])
            early.result(20)
    for name, before in LARGE.values().items():
        total = LARGE.gradients(0, 0)[name] + LARGE.gradients(1, 0)[name]
        for out in outs:
            assert np.array_equal(out[name], before - np.float32(0.1) * total)
