# SPDX-License-Identifier: Apache-2.0
"""A server of a program that is killed after any request: the next one answers as the first would have."""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import CheckpointError, PserverError
from paddle.pserver.durable.program_copy import newest_copy
from paddle.pserver.program_server import ProgramKeeper
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.program_service import ProgramService
from paddle.pserver.server.service import EngineInterface, EngineOptions
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.named_values import (
    Rows,
    Value,
    fingerprint,
    from_sections,
    names_of,
    parcels,
    to_sections,
    wish,
)
from paddle.pserver.wire.verbs import Begin, Fetch, Hello, Step, Verb
from tests.runtime.pserver.in_process_job import Clock
from tests.runtime.pserver.recorded_program import Recorder

TRAINERS, ROUNDS, STAMP = 2, 12, 9


class Life:
    """One process of a server."""

    def __init__(
        self, folder: Path, journal_bytes: int, is_sync: bool, program: Recorder | None = None
    ) -> None:
        self.program, self.clock = program or Recorder(), Clock()
        self.keeper = ProgramKeeper(folder, self.program, journal_bytes=journal_bytes, clock=self.clock)
        services: list[ProgramService] = []

        def serve(desk: EngineInterface) -> ProgramService:
            services.append(ProgramService(desk, self.program, is_sync=is_sync))
            return services[0]

        self.engine = Engine(EngineOptions(TRAINERS), STAMP, keeper=self.keeper, serve=serve)
        self.keeper.recover(self.engine, services[0])

    def ask(self, message: Message) -> dict[int, Message]:
        return {
            reply.message.trainer: reply.message
            for reply in self.engine.handle(b"%d" % message.trainer, message)
        }


def requests() -> Iterator[Message]:
    """What two trainers ask for, in an order in which neither waits for ever."""
    rng = np.random.default_rng(3)
    for trainer in range(TRAINERS):
        yield Message(Hello(TRAINERS), trainer, trainer + 1, request=1)
    for number in range(2, 3 * ROUNDS, 3):
        for trainer in (0, 1) if number % 2 else (1, 0):
            ours = {"trainer": trainer, "session": trainer + 1, "stamp": STAMP}
            rows = Rows(rng.integers(0, 3, 4), rng.standard_normal((4, 1)).astype(np.float32), 3)
            part: dict[str, Value] = {f"g.{trainer}": rng.standard_normal(3).astype(np.float32)}
            yield Message(Step(is_last=False), request=number, sections=tuple(to_sections(part)), **ours)
            rest = (wish([("w", 0)]), *to_sections({f"g_rows.{trainer}": rows}))
            yield Message(Step(), request=number + 1, sections=rest, **ours)
        for trainer in range(TRAINERS):
            ours = {"trainer": trainer, "session": trainer + 1, "stamp": STAMP}
            yield Message(Fetch(), request=number + 2, sections=(wish([("w", 0)]),), **ours)


def overlapping_requests() -> Iterator[Message]:
    """What two trainers ask for that are never both between two steps, in parts of rows."""
    rng = np.random.default_rng(4)
    for trainer in range(TRAINERS):
        yield Message(Hello(TRAINERS), trainer, trainer + 1, request=1)
    waiting: list[deque[Message]] = [deque() for _ in range(TRAINERS)]
    asked = [1] * TRAINERS
    for number in range(2 * ROUNDS):
        trainer = number % TRAINERS
        rows = Rows(rng.integers(0, 3, 4), rng.standard_normal((4, 1)).astype(np.float32), 3)
        step: dict[str, Value] = {
            f"g.{trainer}": rng.standard_normal(3).astype(np.float32),
            f"g_rows.{trainer}": rows,
        }
        for sections in (parts := parcels(step, 8)):
            asked[trainer] += 1
            is_last = sections is parts[-1]
            waiting[trainer].append(
                Message(
                    Step(is_last),
                    trainer,
                    trainer + 1,
                    asked[trainer],
                    STAMP,
                    sections=((wish([("w", 0)]), *sections) if is_last else tuple(sections)),
                )
            )
        # so far that the other one can end its step while this one is in the middle
        while len(waiting[trainer]) > 2 + number % 2:
            yield waiting[trainer].popleft()
        yield from waiting[1 - trainer]
        waiting[1 - trainer].clear()
    for each in waiting:
        yield from each


def values(message: Message) -> list[float]:
    return [
        float(x) for value in from_sections(message.sections).values() for x in np.ravel(np.asarray(value))
    ]


@pytest.mark.parametrize("journal_bytes", [1, 700, 1 << 20])
@pytest.mark.parametrize("is_sync", [True, False])
def test_whenever_it_is_killed_the_next_process_gives_the_same_answers(
    tmp_path: Path, is_sync: bool, journal_bytes: int
) -> None:
    undisturbed = Life(tmp_path / "undisturbed", 1 << 20, is_sync)
    life = Life(tmp_path / "killed", journal_bytes, is_sync)
    chance = random.Random(journal_bytes)
    for message in requests():
        expected, got = undisturbed.ask(message), life.ask(message)
        if chance.random() < 0.3:
            life = Life(tmp_path / "killed", journal_bytes, is_sync)
            again = life.ask(message)
            assert set(again) <= set(got)
            assert (message.trainer in again) == (message.trainer in got)
            got |= again
        assert {trainer: values(reply) for trainer, reply in got.items()} == {
            trainer: values(reply) for trainer, reply in expected.items()
        }
    np.testing.assert_array_equal(life.program.w, undisturbed.program.w)
    assert life.engine.version == undisturbed.engine.version == (ROUNDS if is_sync else ROUNDS * TRAINERS)


@pytest.mark.parametrize("is_another_process", [False, True])
def test_a_trainer_that_lost_the_answer_to_begin_learns_what_trainer_0_gave(
    tmp_path: Path, is_another_process: bool
) -> None:
    life = Life(tmp_path, 1, False)
    first: dict[str, Value] = {"w": np.ones(3, np.float32)}
    digest = fingerprint(first["w"])
    for trainer in range(TRAINERS):
        life.ask(Message(Hello(TRAINERS), trainer, trainer + 1, request=1))
    life.ask(Message(Begin(), 0, 1, 2, STAMP, sections=tuple(to_sections(first))))

    def step(trainer: int, request: int) -> None:
        gradient: dict[str, Value] = {f"g.{trainer}": np.ones(3, np.float32)}
        sections = (wish([("w", 0)]), *to_sections(gradient))
        life.ask(Message(Step(), trainer, trainer + 1, request, STAMP, sections=sections))

    session = 2
    if is_another_process:  # one before it trained
        step(1, 2)
        session = 3
        life.ask(Message(Hello(TRAINERS, takes_over=True), 1, session, request=1))
    begin = Message(Begin(), 1, session, 2, STAMP)
    life.ask(begin)
    before = newest_copy(tmp_path)
    for request in range(3, 3 + ROUNDS):
        step(0, request)
    assert newest_copy(tmp_path) != before, "the answer must be in a copy: a journal makes it again"
    life = Life(tmp_path, 1, False)
    assert names_of(life.ask(begin)[1].sections) == [f"{digest} w"]


@pytest.mark.parametrize("journal_bytes", [1, 700])
def test_trainers_that_always_overlap_keep_no_copy_from_being_made_and_lose_nothing(
    tmp_path: Path, journal_bytes: int
) -> None:
    undisturbed = Life(tmp_path / "undisturbed", 1 << 20, False)
    life = Life(tmp_path / "killed", journal_bytes, False)
    longest, copies, chance = 0, set[str](), random.Random(journal_bytes)
    for message in overlapping_requests():
        expected, got = undisturbed.ask(message), life.ask(message)
        assert list(got) == [message.trainer]
        assert got[message.trainer].verb is Verb.OK
        copies.update(path.name for path in (tmp_path / "killed").glob("copy-*"))
        longest = max(longest, sum(path.stat().st_size for path in (tmp_path / "killed").glob("journal-*")))
        if chance.random() < 0.15:
            life = Life(tmp_path / "killed", journal_bytes, False)
            got = life.ask(message)
        assert values(got[message.trainer]) == values(expected[message.trainer])
    assert life.engine.version == ROUNDS * TRAINERS
    np.testing.assert_array_equal(life.program.w, undisturbed.program.w)
    assert len(copies) > ROUNDS / 2
    assert longest < 8000, "journals pile up"


def test_copies_replace_each_other_and_journals_do_not_pile_up(tmp_path: Path) -> None:
    life = Life(tmp_path, 700, True)
    for message in requests():
        life.ask(message)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name.partition("-")[0] for name in names] in (["copy", "journal"], ["copy", "journal", "journal"])
    assert not names[0].endswith("0" * 16)


def test_a_damaged_copy_is_refused(tmp_path: Path) -> None:
    Life(tmp_path, 1, True)
    (copy,) = tmp_path.glob("copy-*")
    data = bytearray(copy.read_bytes())
    data[data.index(np.zeros(3, np.float32).tobytes())] ^= 1
    copy.write_bytes(data)
    with pytest.raises(CheckpointError, match="is damaged"):
        Life(tmp_path, 1, True)


class Full(Recorder):
    """A program whose state finds room only when `has_room`."""

    has_room = True

    def kept(self) -> Iterator[tuple[str, Value]]:
        if not self.has_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        yield from super().kept()


def test_without_room_training_goes_on_and_a_next_process_says_what_is_lost(tmp_path: Path) -> None:
    program = Full()
    life = Life(tmp_path, 1, True, program)
    asked = requests()
    for _ in range(2):
        life.ask(next(asked))
    program.has_room = False
    for _ in range(6):
        life.ask(next(asked))
    assert life.engine.version == 1
    with pytest.raises(
        PserverError, match=r"cannot save the state .* \(No space left on device; \d+ bytes are free\)"
    ):
        Life(tmp_path, 1, True)
    program.has_room = True
    life.clock.now += 61.0
    for message in asked:
        life.ask(message)
    np.testing.assert_array_equal(Life(tmp_path, 1, True).program.w, program.w)
