# SPDX-License-Identifier: Apache-2.0
"""Chunks as a server sees them: answered when all are there, taken back when one trainer ends, never counted twice."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import CHUNK, WINDOW, Message, Section
from paddle.pserver.wire.verbs import (
    Chunk,
    Configure,
    Hello,
    Leave,
    Pull,
    PushPull,
    Ready,
    Record,
    SetValues,
    StartPass,
    Status,
    Values,
    Verb,
)
from tests.runtime.pserver.in_process_job import LARGE, SGD


class Bench:
    """One engine and two trainers' raw messages."""

    def __init__(self) -> None:
        self.engine = Engine(EngineOptions(2), stamp=7)
        self.size = LARGE.values()["a"].size + 31 + CHUNK + 15
        self.count = -(-self.size // CHUNK)
        text = Configuration(tuple(LARGE.parameters), SGD, 1, 0, 0).to_text()
        for trainer in (0, 1):
            self.send(trainer, Hello(2), 1)
            self.send(trainer, Configure(), 2, Section.text("", text))
        self.send(0, SetValues(), 3, Section("", np.ones(self.size, np.float32)))
        self.send(0, Ready(), 4)
        for trainer in (0, 1):
            self.send(trainer, StartPass(), 5)

    def send(self, trainer: int, record: Record, request: int, *sections: Section) -> list[Message]:
        message = Message(record, trainer, trainer + 1, request, 7, sections)
        return [reply.message for reply in self.engine.handle(b"%d" % trainer, message)]

    def head(self, trainer: int, request: int = 6) -> list[Message]:
        return self.send(trainer, PushPull(1, chunks=self.count), request)

    def chunk(self, trainer: int, index: int, value: float, request: int = 6) -> list[Message]:
        size = min(CHUNK, self.size - index * CHUNK)
        array = np.full(size, value, np.float32)
        return self.send(trainer, Chunk(index), request, Section("", array))

    def asks(self, trainer: int) -> Verb:
        (reply,) = self.send(trainer, Status(), 6)
        return reply.verb

    def values(self) -> np.ndarray:
        found: np.ndarray = self.send(1, Pull(), 99)[0].section("").array
        return found


def test_a_chunk_is_answered_as_soon_as_every_trainers_is_there() -> None:
    bench = Bench()
    assert bench.head(0) == bench.head(1) == bench.chunk(0, 1, 1.0) == []
    replies = bench.chunk(1, 1, 2.0)
    assert [(m.expect(Values).number, m.trainer) for m in replies] == [(1, 0), (1, 1)]
    assert np.allclose(replies[0].section("").array, 0.7)


def test_a_push_refused_in_its_middle_takes_the_batch_back() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(1, 0, 1.0)
    replies = bench.chunk(1, 1, np.nan)
    assert {(m.verb, m.trainer) for m in replies} == {(Verb.REPEAT, 0), (Verb.ERROR, 1)}
    assert bench.head(1, 7) == []
    for index in range(bench.count):
        bench.chunk(0, index, 1.0)
        last = bench.chunk(1, index, 3.0, 7)
    assert sorted(m.verb for m in last) == [Verb.OK, Verb.OK, Verb.VALUES, Verb.VALUES]
    assert np.allclose(bench.values(), 0.6)


def test_a_push_that_is_given_up_for_another_request_takes_the_batch_back() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(1, 0, 9.0)
    assert [(m.verb, m.trainer) for m in bench.head(1, 7)] == [(Verb.REPEAT, 0)]
    assert bench.chunk(1, 1, 9.0) == []  # of the push that is over
    for index in range(bench.count):
        bench.chunk(0, index, 1.0)
        last = bench.chunk(1, index, 3.0, 7)
    assert sorted(m.verb for m in last) == [Verb.OK, Verb.OK, Verb.VALUES, Verb.VALUES]
    assert np.allclose(bench.values(), 0.6)


def test_a_trainer_that_dies_in_the_middle_of_a_push_leaves_no_half_of_it() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(1, 0, 9.0)
    replies = [reply.message for reply in bench.engine.handle(b"2", Message(Leave(), 1, 2, 7, 7))]
    assert Verb.REPEAT in [m.verb for m in replies if m.trainer == 0]
    for index in range(bench.count):
        last = bench.chunk(0, index, 1.0)
    assert last[-1].verb is Verb.OK
    found = bench.send(0, Pull(), 99)[0].section("").array
    assert np.allclose(found, 0.9)


@pytest.mark.parametrize("sent_again", [[], [1]])
def test_a_trainer_that_did_not_hear_that_it_must_repeat_hears_it_when_it_asks(sent_again: list[int]) -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(0, 1, 1.0), bench.chunk(1, 0, 9.0)
    bench.engine.handle(
        b"3", Message(Hello(2, takes_over=True), 1, 3, 0, 0)
    )  # whatever it tells others is lost
    for index in sent_again:
        bench.chunk(0, index, 1.0)
    assert bench.asks(0) == Verb.REPEAT
    for index in range(bench.count):
        bench.chunk(0, index, 1.0)
    assert bench.asks(0) == Verb.WAITING  # for the other one, and told so once


def test_a_chunk_sent_twice_counts_once_and_is_answered_again() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(0, 0, 1.0)
    first = bench.chunk(1, 0, 1.0)[0].section("").array.copy()
    (again,) = bench.chunk(0, 0, 5.0)
    assert (again.expect(Values).number, again.trainer) == (0, 0)
    assert np.array_equal(again.section("").array, first)


@pytest.mark.parametrize("index", [2**40, 5])
def test_a_chunk_that_is_none_refuses_the_push(index: int) -> None:
    bench = Bench()
    bench.head(0)
    (reply,) = bench.send(0, Chunk(index), 6, Section("", np.zeros(1, np.float32)))
    assert reply.verb is Verb.ERROR
    assert f"chunk {index} is out of range: a push has {bench.count} chunks" in reply.section("").as_text()


def test_a_server_refuses_wrong_shapes_of_chunks() -> None:
    bench = Bench()
    bench.head(0)
    (reply,) = bench.send(0, Chunk(0), 6, Section("", np.zeros(9, np.float32)))
    assert reply.verb is Verb.ERROR
    assert f"expected ({CHUNK},) float32" in reply.section("").as_text()


def test_the_window_bounds_what_a_server_keeps_for_a_trainer_that_is_early() -> None:
    assert WINDOW * CHUNK * 4 <= 16 << 20
