# SPDX-License-Identifier: Apache-2.0
"""What is kept of a server whose trainers always are in the middle of pushes: it stays short, each counts once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from paddle.pserver.durable import memory_copy
from paddle.pserver.durable.journal import Journal
from paddle.pserver.recovery import Safekeeper, Safety
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import (
    Chunk,
    Configure,
    Hello,
    Pull,
    PushPull,
    Ready,
    Record,
    SetValues,
    StartPass,
    Verb,
)
from tests.runtime.pserver.client.simulated_wire import SMALL_CHUNK, small_chunks
from tests.runtime.pserver.push_ports import asynchronous, bits_of, parameters

COUNT, TRAINERS, PUSHES = 5, 2, 20
SIZE = COUNT * SMALL_CHUNK
STAMP = 7
FIRST_PUSH = 6  # requests before it open the pass


class Killed(BaseException):
    """The process ends here, as with -9."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small chunks, and another copy as soon as the journal is longer than the state."""
    monkeypatch.setattr(memory_copy, "MIN_JOURNAL_BYTES", 0)
    with small_chunks():
        yield


class Process:
    """One process of a server."""

    def __init__(self, state: Path, checkpoints: Path | None = None) -> None:
        self._now = 0.0
        safety = Safety(state=state, checkpoints=checkpoints, period=3 if checkpoints else 0)
        self.keeper = Safekeeper(safety, self._clock)
        self.engine = Engine(EngineOptions(TRAINERS), STAMP, self._clock, keeper=self.keeper)
        self.keeper.recover(self.engine)

    def _clock(self) -> float:
        self._now += 1.0  # so that it is always time for a little of what can wait
        return self._now

    def ask(self, message: Message) -> list[Message]:
        """Carry out a request; a little of the copy goes on beside it."""
        replies = self.engine.handle(b"%d" % message.trainer, message)
        self.engine.background()
        return [reply.message for reply in replies if reply.message.trainer == message.trainer]

    def begin(self) -> None:
        """Bring both trainers into a pass."""
        text = Configuration(tuple(parameters(SIZE)[:1]), asynchronous(), 1, 0, 0).to_text()
        zeros = Section("", np.zeros(SIZE, np.float32))
        for trainer in range(TRAINERS):
            self.ask(numbered(trainer, 1, Hello(TRAINERS)))
            self.ask(numbered(trainer, 2, Configure(), Section.text("", text)))
        self.ask(numbered(0, 3, SetValues(), zeros))
        self.ask(numbered(0, 4, Ready()))
        for trainer in range(TRAINERS):
            self.ask(numbered(trainer, 5, StartPass()))

    def bits(self) -> int:
        """Which pushes the values are made of."""
        (reply,) = self.ask(numbered(0, 1000, Pull()))
        return bits_of(reply.section("").array)


def numbered(trainer: int, request: int, record: Record, *sections: Section) -> Message:
    return Message(record, trainer, trainer + 1, request, STAMP, sections)


def push(trainer: int, request: int, bit: int) -> list[Message]:
    """Return the head of a push and its chunks."""
    array = np.full(SMALL_CHUNK, bit, np.float32)
    every = [numbered(trainer, request, Chunk(i), Section("", array)) for i in range(COUNT)]
    return [numbered(trainer, request, PushPull(1, COUNT)), *every]


def overlapping() -> Iterator[list[Message]]:
    """Yield single messages beside all of their push; one trainer is always in the middle of one."""
    ways: list[list[list[Message]]] = [
        [
            push(trainer, FIRST_PUSH + number, 1 << number * TRAINERS + trainer)
            for number in range(PUSHES // 2)
        ]
        for trainer in range(TRAINERS)
    ]
    flat = [[(message, each) for each in way for message in each] for way in ways]
    ahead = (COUNT + 1) // 2
    order = flat[0][:ahead]
    for one, other in zip_longest(flat[0][ahead:], flat[1]):
        order += [other] if one is None else [one, other]
    for message, whole in order:
        yield [message, *whole]


def nbytes_of_journals(state: Path) -> int:
    return sum(path.stat().st_size for path in state.glob("journal-*"))


@pytest.mark.parametrize("records", range(COUNT + 2))
def test_a_server_killed_between_two_records_of_a_push_counts_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    process = Process(tmp_path)
    process.begin()
    for message in push(0, FIRST_PUSH, 1):
        process.ask(message)
    append, written = Journal.append, 0

    def dies(journal: Journal, message: Message) -> None:
        nonlocal written
        if written == records:
            raise Killed
        written += 1
        append(journal, message)

    monkeypatch.setattr(Journal, "append", dies)
    second = push(1, FIRST_PUSH, 2)
    try:
        for message in second:
            process.ask(message)
    except Killed:
        assert written == records < COUNT + 1
    monkeypatch.setattr(Journal, "append", append)
    for _ in range(2):  # the second one knows all
        process = Process(tmp_path)
        replies = [reply for message in second for reply in process.ask(message)]
        assert [reply.request for reply in replies if reply.verb is Verb.OK] == [FIRST_PUSH]
        assert process.bits() == 0b11


@pytest.mark.parametrize("seed", range(4))
def test_copies_are_made_beside_pushes_that_always_overlap_and_kills_lose_nothing(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    state, checkpoints = tmp_path / "state", tmp_path / "checkpoints"
    state.mkdir()
    process = Process(state, checkpoints)
    process.begin()
    longest, copies = 0, set[str]()
    sent: dict[int, list[Message]] = {}
    for message, *whole in overlapping():
        process.ask(message)
        sent[message.trainer] = whole[: whole.index(message) + 1] if message is not whole[-1] else []
        if chance.random() < 0.05 * (seed > 0):
            process.keeper.close()  # threads that would end with the process
            process = Process(state, checkpoints)
            for each in [one for messages in sent.values() for one in messages]:
                process.ask(each)
        longest = max(longest, nbytes_of_journals(state))
        copies.update(path.name for path in state.glob("v*"))
    assert process.bits() == (1 << PUSHES) - 1
    assert len(copies) > PUSHES / 4
    # No copy begins while a checkpoint is copied, and how long that takes is the disk's affair: never all of them.
    assert longest < PUSHES * 3 // 4 * 4 * SIZE, "journals pile up"
    process.keeper.close()  # what is being written appears under its name before this returns
    assert list(checkpoints.rglob("part-*")), "no checkpoint was made"
    assert Process(state).bits() == (1 << PUSHES) - 1
