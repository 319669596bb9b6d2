# SPDX-License-Identifier: Apache-2.0
"""Pushes that end before they are whole: given up for another request, found strange late, broken off on a stream."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import zmq

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.request import Request
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.durable.journal import Journal
from paddle.pserver.recovery import Safekeeper, Safety
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.transports.tcp import TcpConnection
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import CHUNK, Message, Section
from paddle.pserver.wire.verbs import (
    Chunk,
    Configure,
    Error,
    Hello,
    Leave,
    Ok,
    Pull,
    PullRows,
    PullTable,
    PushPull,
    Ready,
    Record,
    SetValues,
    StartPass,
    Values,
    Verb,
)
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.pserver_process import PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

SGD = OptimizerSpec("momentum", learning_rate=0.1)
COUNT = 3
LARGE = Model({"a": ((COUNT - 1) * CHUNK + 7,)})
SIZE = LARGE.values()["a"].size
ASYNC = OptimizerSpec("momentum", learning_rate=0.1, is_async=True)
WITH_ROWS = Model({"a": (SIZE,), "table": (300, 8)}, sparse=["table"], l2=1e-3)
OVER_TWO = Model({"a": (12 * CHUNK,), "table": (300, 8)}, sparse=["table"])


class Kept:
    """One engine and two trainers' raw messages; `again` is the next process with what this one kept."""

    def __init__(self, state: Path, count: int = 2, rule: OptimizerSpec = SGD, model: Model = LARGE) -> None:
        self.now, self.count = 0.0, count
        self.configuration = Configuration(tuple(model.parameters), rule, 1, 0, 0)
        self.sessions = list(range(1, count + 1))
        self.engine = self.next_process(state)
        for trainer in range(count):
            self.come(trainer)
        self.send(0, SetValues(), 3, Section("", np.ones(SIZE, np.float32)))
        self.send(0, Ready(), 4)
        for trainer in range(count):
            self.send(trainer, StartPass(), 5)

    def next_process(self, state: Path) -> Engine:
        keeper = Safekeeper(Safety(state=state))
        options = EngineOptions(self.count, barrier_timeout_s=1.0)
        engine = Engine(options, 7, lambda: self.now, keeper=keeper)
        keeper.recover(engine)
        return engine

    def come(self, trainer: int) -> None:
        text = self.configuration.to_text()
        self.send(trainer, Hello(self.count), 1)
        self.send(trainer, Configure(), 2, Section.text("", text))

    def come_again(self, trainer: int) -> None:
        """As another process, into the pass that is open."""
        self.engine.lose(b"%d" % trainer)
        self.sessions[trainer] += 100
        self.come(trainer)
        self.send(trainer, StartPass(), 5)

    def values(self, request: int) -> np.ndarray:
        found: np.ndarray = self.send(0, Pull(), request)[0].section("").array
        return found

    def send(self, trainer: int, record: Record, request: int, *sections: Section) -> list[Message]:
        message = Message(record, trainer, self.sessions[trainer], request, 7, sections)
        return [reply.message for reply in self.engine.handle(b"%d" % trainer, message)]

    def push(self, trainer: int, request: int, numbers: Sequence[int], value: float) -> list[Message]:
        replies = self.send(trainer, PushPull(1, chunks=COUNT), request)
        for number in numbers:
            size = min(CHUNK, SIZE - number * CHUNK)
            section = Section("", np.full(size, value, np.float32))
            replies += self.send(trainer, Chunk(number), request, section)
        return replies


@pytest.mark.parametrize("reads", [0, 2])
def test_a_push_given_up_is_so_in_the_next_process_too_whatever_was_read_between(
    reads: int, tmp_path: Path
) -> None:
    kept = Kept(tmp_path)
    kept.push(0, 6, [0], 1.0)
    kept.push(1, 6, [0], 9.0)  # and then finds something strange in its gradient
    request = 6
    for request in range(7, 7 + reads):
        (answer,) = kept.send(1, Pull(), request)
        assert np.all(answer.section("").array == 1.0)
    replies = kept.send(1, PushPull(1, chunks=COUNT), request + 1)
    assert [(m.verb, m.trainer) for m in replies] == [(Verb.REPEAT, 0)]
    replies = kept.push(0, 6, range(COUNT), 1.0) + kept.push(1, request + 1, range(COUNT), 3.0)
    assert [m.trainer for m in replies if m.verb is Verb.OK] == [0, 1]
    after = kept.next_process(tmp_path)
    assert after.version == kept.engine.version == 1


def test_a_table_read_after_a_push_began_changes_nothing_here_and_in_the_next_process(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, ASYNC, WITH_ROWS)
    rows = [Section("table", np.array([3, 5])), Section("table", np.ones((2, 8), np.float32))]
    for request in (6, 7):
        kept.send(0, PushPull(1, chunks=COUNT), request, *rows)
        for number in range(COUNT):
            size = min(CHUNK, SIZE - number * CHUNK)
            kept.send(0, Chunk(number), request, Section("", np.ones(size, np.float32)))
        rows = []
    kept.push(0, 8, [0], 1.0)  # and then finds something strange in its gradient
    every = Section("table", np.arange(300))
    (before,) = kept.send(0, PullRows(), 9, every)
    (table,) = kept.send(0, PullTable(0, 300), 10, Section.text("name", "table"))
    (after,) = kept.send(0, PullRows(), 11, every)
    assert not np.array_equal(table.section("").array, before.section("table").array)  # it has decayed
    assert np.array_equal(after.section("table").array, before.section("table").array)
    written = [(message.verb, message.request) for message in Journal(tmp_path).read(0)]
    assert written[-1] == (Verb.CHUNK, 7)
    for number in range(1, COUNT):  # too late
        kept.send(0, Chunk(number), 8, Section("", np.ones(CHUNK, np.float32)))
    assert kept.next_process(tmp_path).version == kept.engine.version == 2


def test_a_refused_chunk_takes_the_batch_back_in_the_next_process_too(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.push(0, 6, [0], 1.0)
    kept.push(1, 6, [0], 9.0)
    strange = Section("", np.full(CHUNK, np.nan, np.float32))
    replies = kept.send(1, Chunk(1), 6, strange)
    assert {(m.verb, m.trainer) for m in replies} == {(Verb.ERROR, 1), (Verb.REPEAT, 0)}
    replies = kept.push(0, 6, range(COUNT), 1.0) + kept.push(1, 7, range(COUNT), 3.0)
    assert [m.trainer for m in replies if m.verb is Verb.OK] == [0, 1]
    assert kept.next_process(tmp_path).version == kept.engine.version == 1


def test_a_batch_that_nobody_came_to_the_end_of_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.push(0, 6, [0, 1], 1.0)
    kept.push(1, 6, [0], 9.0)
    kept.engine.lose(b"1")
    failed: list[Message] = []
    for _ in range(30):
        kept.now += 1.0
        failed += [reply.message for reply in kept.engine.tick()]
    assert {m.verb for m in failed} == {Verb.ERROR}
    for trainer in (0, 1):
        kept.come_again(trainer)
    replies = kept.push(0, 6, range(COUNT), 1.0) + kept.push(1, 6, range(COUNT), 3.0)
    assert [m.trainer for m in replies if m.verb is Verb.OK] == [0, 1]
    assert np.allclose(kept.values(7), 0.6)


def test_who_comes_back_halfway_through_a_batch_is_part_of_the_next(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 3)
    kept.send(2, Leave(), 6)
    kept.push(0, 6, [0], 1.0)
    kept.push(1, 6, [0], 1.0)
    kept.come_again(2)
    assert kept.push(2, 6, range(COUNT), 4.0) == []
    halfway = [
        reply
        for trainer in (0, 1)
        for reply in kept.push(trainer, 6, range(1, COUNT), 1.0)
        if reply.verb is Verb.OK
    ]
    assert [m.trainer for m in halfway] == [0, 1]
    assert np.allclose(kept.values(7), 0.8)
    replies = kept.push(0, 8, range(COUNT), 1.0) + kept.push(1, 8, range(COUNT), 1.0)
    assert [m.trainer for m in replies if m.verb is Verb.OK] == [0, 1, 2]
    assert np.allclose(kept.values(9), 0.2)


def over_two(server: PserverProcess) -> TrainerSession:
    client = TrainerSession.connect(
        server.endpoints,
        [],
        trainer_id=0,
        num_trainers=1,
        job_key=None,
        wire="plain",
        timeout_s=20.0,
        within_node=False,
    )
    client.configure(OVER_TWO.parameters, SGD, OVER_TWO.values())
    client.start_pass()
    return client


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[TcpConnection]:
    """Streams that were opened, in their order."""
    found: list[TcpConnection] = []

    class Noted(TcpConnection):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            found.append(self)

    monkeypatch.setattr("paddle.pserver.transports.tcp.TcpConnection", Noted)
    return found


def test_every_one_of_several_servers_gets_a_stream(opened: list[TcpConnection]) -> None:
    with PserverProcess("--port=0", "--ports_num=2", key=None) as server:
        for number in range(1, 4):
            with over_two(server):
                assert len(opened) == 2 * number


@pytest.mark.parametrize("is_mended", [True, False])
def test_what_is_strange_on_one_server_changes_nothing_on_another_whatever_comes_next(
    is_mended: bool,
) -> None:
    with PserverProcess("--port=0", "--ports_num=2", key=None) as server, over_two(server) as client:
        gradient = np.ones(12 * CHUNK, np.float32)
        out = {"a": np.empty(12 * CHUNK, np.float32)}
        client.pull(out)
        for at in (0, 7 * CHUNK, 12 * CHUNK - 1):
            gradient[...] = 1.0
            gradient[at] = np.inf
            with pytest.raises(ConfigError, match="nothing was changed"):
                client.push_pull({"a": gradient}, 1, out)
            if is_mended:
                gradient[at] = 1.0
            before = out["a"].copy()
            for row in range(0, 300, 30):
                client.pull_rows("table", np.array([row]))
            assert np.array_equal(out["a"], before)  # nothing of the dead push comes after it
            assert np.array_equal(before, OVER_TWO.values()["a"])
        client.pull(out)
        assert np.array_equal(out["a"], OVER_TWO.values()["a"])
        client.push_pull({"a": np.ones(12 * CHUNK, np.float32)}, 1, out)
        assert np.allclose(out["a"], OVER_TWO.values()["a"] - 0.1)


def test_what_was_on_a_stream_when_it_broke_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    put = TcpConnection.send
    chunks = itertools.count()

    def breaks_with_the_second_chunk(stream: TcpConnection, message: Message) -> bool:
        if message.verb is not Verb.CHUNK:
            return put(stream, message)
        return next(chunks) == 0  # which nobody ever sees

    with PserverProcess("--port=0", key=None) as server:
        client = TrainerSession.connect(
            server.endpoints, [], trainer_id=0, num_trainers=1, job_key=None, wire="plain", within_node=False
        )
        with client:
            client.configure(LARGE.parameters, SGD, LARGE.values())
            client.start_pass()
            client.wait_at_most(30.0)
            monkeypatch.setattr(TcpConnection, "send", breaks_with_the_second_chunk)
            out = LARGE.empty()
            client.push_pull({"a": np.ones(SIZE, np.float32)}, 1, out)
    assert next(chunks) == 2
    assert np.allclose(out["a"], LARGE.values()["a"] - 0.1)


def test_a_transfer_that_stops_anywhere_sends_each_chunk_once_and_ends_with_the_last() -> None:
    one = Section("", np.zeros(1, np.float32))
    delivered: list[int] = []
    transfer = Request(
        Message(PushPull(), 0, 1, 1),
        8,
        lambda number: one,
        lambda number, section: delivered.append(number),
    )
    sent = [chunk_of(m) for m in transfer.begin() if m.verb is Verb.CHUNK]
    sent.append(
        chunk_of(next(iter(transfer.take(values(0, one)))))
    )  # a stream breaks while it takes this one
    assert {chunk_of(m) for m in transfer.again() if m.verb is Verb.CHUNK} == set(sent) - {0}
    for number in (4, 1, 2, 3, 5, 6):
        sent += [chunk_of(m) for m in transfer.take(values(number, one))]
    list(transfer.take(Message(Ok())))
    over = [transfer.is_over]
    list(transfer.take(values(7, one)))
    assert [*over, transfer.is_over] == [False, True]
    assert sorted(delivered) == sorted(sent) == list(range(8))


def test_values_that_come_with_the_reply_go_where_they_belong_until_it_is_here() -> None:
    home = memoryview(bytearray(4))
    transfer = Request(Message(PushPull(), 0, 1, 2), place=lambda number: home)
    due = Message(Ok(), 0, 1, 2)
    assert transfer.place(due) is home
    for other in (due._replace(request=1), due._replace(session=2), due._replace(record=Error())):
        assert transfer.place(other) is None
    list(transfer.take(due))
    assert transfer.place(due) is None  # a second one must not change what the program goes on with


def chunk_of(message: Message) -> int:
    return message.expect(Chunk).number


def values(number: int, section: Section) -> Message:
    return Message(Values(number), 0, 1, 1, sections=(section,))
