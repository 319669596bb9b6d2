# SPDX-License-Identifier: Apache-2.0
"""What readers cost a server: copies of one moment, a bounded number, nothing in the journal."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.optim.spec import OptimizerSpec
from paddle.pserver import Reader
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.program_service import ProgramService
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import READ_PART, READER, Message, Section, reader_stamp
from paddle.pserver.wire.verbs import (
    Configure,
    Describe,
    Hello,
    Ok,
    PullRows,
    PullTable,
    Ready,
    Record,
    Status,
    Verb,
    View,
)
from tests.runtime.pserver.in_process_job import LOOKED_AT, SGD, InProcessJob, Model
from tests.runtime.pserver.recorded_program import Recorder

LARGE = Model({"a": (2 * READ_PART + 7,), "b": (READ_PART,)})


class Stepping:
    """A network that takes a step of training before every request of a reader."""

    def __init__(self, inner: Any, step: Any) -> None:
        self._inner, self._step = inner, step
        self.endpoints = inner.endpoints

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, index: int, message: Message) -> None:
        self._step()
        self._inner.send(index, message)


def test_dense_values_of_a_server_are_of_one_moment_however_training_goes_on() -> None:
    job = InProcessJob(1, num_dense=1)
    taken = 0
    with job.client(0) as client:
        start = {name: np.zeros_like(value) for name, value in LARGE.values().items()}
        client.configure(LARGE.parameters, OptimizerSpec("momentum", learning_rate=1.0), start)
        client.start_pass()
        ones = {name: np.full_like(value, -1.0) for name, value in start.items()}

        def step() -> None:
            nonlocal taken
            client.push_pull(ones, 1, {})
            taken += 1

        with Reader(Stepping(job.servers.connect(job.endpoints), step)) as reader:
            for _ in range(3):
                out = LARGE.empty()
                before = taken
                version = reader.pull(out)
                assert before < version < taken
                assert all((value == version).all() for value in out.values())


def test_a_server_keeps_two_copies_at_most_and_readers_of_a_lost_one_begin_again() -> None:
    job = InProcessJob(1, num_dense=1)
    with job.client(0) as client:
        client.configure(LARGE.parameters, SGD, LARGE.values())
        client.start_pass()
        slow = [Exchange(job.servers.connect(job.endpoints), READER, 5.0) for _ in range(3)]

        def begun(which: int, start: int = 0, moment: int = 0) -> tuple[int, bool]:
            request = Message(View(start, moment))
            reply = slow[which].run({0: request})[0]
            return reply.expect(Ok).version, bool(reply.sections)

        for exchange in slow:
            exchange.hello(0)
        found = []
        for which in range(3):
            found.append(begun(which))
            client.push_pull(LARGE.gradients(0, which), 1, {})
        assert found == [(0, True), (1, True), (1, True)]  # two copies are being read: no third is made
        assert begun(0, READ_PART, 0) == (0, True)
        job.clock.now += 121.0  # and still it is the first one's turn to go
        assert begun(1) == (3, True)
        assert begun(0, READ_PART, 0) == (3, False)
        assert begun(2, READ_PART, 1) == (1, True)


def test_readers_are_bounded_and_one_that_vanished_makes_room() -> None:
    engine = Engine(EngineOptions(1), 5)

    def hello(number: int) -> Message:
        return engine.handle(b"%d" % number, Message(Hello(), READER, session=1))[0].message

    assert {hello(number).verb for number in range(1024)} == {Verb.OK}
    refusal = hello(1024)
    assert (refusal.verb, refusal.section("").as_text()) == (
        Verb.ERROR,
        "this pserver already has the maximum of 1024 readers: close some, or share one",
    )
    assert hello(7).verb is Verb.OK
    engine.lose(b"3")
    assert hello(1024).verb is Verb.OK
    assert hello(3).verb is Verb.ERROR
    assert not engine.is_over


class Noting:
    """A keeper that only counts."""

    doing = ""

    def __init__(self) -> None:
        self.noted: list[Verb] = []

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        return False

    def record(self, message: Message) -> None:
        self.noted.append(message.verb)

    def background(self) -> float:
        return 1.0


def test_nothing_that_a_reader_asks_goes_into_the_journal() -> None:
    keeper = Noting()
    engine = Engine(EngineOptions(1), 5, keeper=keeper)
    trainer = Message(Hello(1), 0, session=1)
    configuration = Configuration(tuple(LOOKED_AT.parameters), SGD, 1, 0, 0).to_text()
    engine.handle(b"t", trainer)
    text = Section.text("", configuration)
    engine.handle(b"t", Message(Configure(), 0, 1, 1, 5, (text,)))
    engine.handle(b"t", Message(Ready(), 0, 1, 2, 5))
    assert keeper.noted == [Verb.HELLO, Verb.CONFIGURE, Verb.READY]
    emb = Section.text("name", "emb")
    asked: tuple[tuple[Record, tuple[Section, ...]], ...] = (
        (Hello(), ()),
        (Describe(), ()),
        (Status(), ()),
        (View(), ()),
        (PullTable(), (emb,)),
        (PullRows(), (Section("emb", np.arange(3)),)),
    )
    for record, sections in asked:
        asks = Message(record, READER, session=2, stamp=reader_stamp(5), sections=sections)
        assert engine.handle(b"r", asks)[0].message.verb in (Verb.OK, Verb.REPEAT)
    assert len(keeper.noted) == 3


def test_a_server_of_a_program_has_nothing_for_readers() -> None:
    engine = Engine(EngineOptions(1), 5, serve=lambda desk: ProgramService(desk, Recorder(), is_sync=True))
    (reply,) = engine.handle(b"a", Message(Describe(), READER, stamp=reader_stamp(5)))
    assert reply.message.verb is Verb.ERROR
    assert reply.message.section("").as_text() == (
        "this server holds the variables of a program; readers can only read tensors"
    )


def test_a_reader_is_told_when_a_server_has_lost_what_it_looked_at() -> None:
    (reply,) = Engine(EngineOptions(1), 99).handle(b"a", Message(Describe(), READER, stamp=5))
    assert (reply.message.verb, reply.message.section("").as_text()) == (
        Verb.STATE_LOST,
        "this pserver was restarted and lost its parameters: connect again",
    )
