# SPDX-License-Identifier: Apache-2.0
"""The queue of tasks without processes: leases, returns, failures, passes, and its journal."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from paddle.errors import ConfigError
from paddle.reader.leases import MOST_FAILURES, Holder
from paddle.reader.tasks import LEASE_S, LOST_S, TaskQueues

FILES = [["/data/a", [0, 100]], ["/data/b", [0]]]
FIRST, SECOND = Holder(0, 11), Holder(1, 22)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def queues_of(clock: Clock, files: list[Any] = FILES, journal: Path | None = None) -> TaskQueues:
    queues = TaskQueues(num_trainers=2, clock=clock)
    if journal is not None:
        queues.keep(journal)
    queues.ask(FIRST, {"ask": "dataset", "name": "d", "files": files}, b"first")
    return queues


def get(queues: TaskQueues, holder: Holder, pass_id: int = 0, address: bytes = b"") -> dict[str, Any]:
    return queues.ask(holder, {"ask": "get", "name": "d", "pass": pass_id}, address)


def report(queues: TaskQueues, holder: Holder, task: dict[str, Any], ask: str = "read", read: int = 1) -> Any:
    about = {"number": task["number"], "epoch": task["epoch"], "read": read}
    return queues.ask(holder, {"ask": ask, "name": "d", **about}).get("held")


def test_two_trainers_get_each_piece_one_time_in_each_pass(clock: Clock) -> None:
    queues = queues_of(clock)
    for pass_id in range(3):
        seen = []
        tasks = {each: get(queues, each, pass_id) for each in (FIRST, SECOND)}
        assert get(queues, FIRST, pass_id) == tasks[FIRST]  # asked again
        for holder in (SECOND, FIRST, FIRST):
            task = tasks[holder] if holder in tasks else get(queues, holder, pass_id)
            seen += task["pieces"]
            assert report(queues, holder, task)
            tasks.pop(holder, None)
        assert sorted(seen) == [("/data/a", 0), ("/data/a", 100), ("/data/b", 0)]
        assert get(queues, SECOND, pass_id) == {"state": "over"}


def test_the_next_pass_waits_for_tasks_that_are_leased(clock: Clock) -> None:
    queues = queues_of(clock, [["/data/a", [0]]])
    task = get(queues, FIRST)
    assert get(queues, SECOND, 0) == {"state": "over"}
    assert get(queues, SECOND, 1) == {"state": "wait"}
    report(queues, FIRST, task)
    assert get(queues, SECOND, 1)["state"] == "task"


def test_a_task_returns_when_its_lease_is_over_and_late_reports_count_no_more(clock: Clock) -> None:
    queues = queues_of(clock, [["/data/a", [0]]])
    late = get(queues, FIRST)
    clock.now = LEASE_S - 1
    queues.tick()
    assert get(queues, SECOND, 0) == {"state": "over"}
    clock.now = LEASE_S
    queues.tick()
    task = get(queues, SECOND, 0)
    assert (task["number"], task["epoch"]) == (late["number"], late["epoch"] + 1)
    assert report(queues, FIRST, late) is False
    assert report(queues, SECOND, task) is True


@pytest.mark.parametrize("returns", ["lost", "replaced", "released"])
def test_a_trainer_that_exits_returns_its_task_from_the_first_unread_piece_on(
    clock: Clock, returns: str
) -> None:
    queues = queues_of(clock, [["/data/a", list(range(16))]])
    task = get(queues, FIRST, address=b"first")
    assert len(task["pieces"]) == 2
    report(queues, FIRST, task, read=1)
    if returns == "lost":
        queues.ask(FIRST, {"ask": "save", "name": "d", "trainer": "0", "block_s": 1}, b"first")
        queues.lose(b"first")
        queues.tick()
        assert get(queues, SECOND)["number"] != task["number"]
        report(queues, SECOND, get(queues, SECOND), read=2)
        clock.now += LOST_S
        queues.tick()
    elif returns == "replaced":
        get(queues, Holder(0, 99))
        queues.ask(Holder(0, 99), {"ask": "release", "name": "d"})
    else:
        queues.ask(FIRST, {"ask": "release", "name": "d"})
    again = get(queues, SECOND)
    assert (again["number"], again["read"], again["pieces"]) == (task["number"], 1, task["pieces"])


def test_a_connection_that_comes_back_keeps_its_lease(clock: Clock) -> None:
    queues = queues_of(clock, [["/data/a", [0]]])
    task = get(queues, FIRST, address=b"first")
    queues.lose(b"first")
    assert get(queues, FIRST, address=b"again") == task
    clock.now = LOST_S
    queues.tick()
    assert report(queues, FIRST, task)


def test_two_clients_of_one_process_have_a_task_each(clock: Clock) -> None:
    queues = queues_of(clock)
    tasks = [get(queues, Holder(0, 11, number)) for number in range(3)]
    assert len({task["number"] for task in tasks}) == 3


def test_a_task_that_fails_often_is_given_up_for_the_pass(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    queues = queues_of(clock, [["/data/a", [0]]])
    for number in range(MOST_FAILURES):
        task = get(queues, (FIRST, SECOND)[number % 2])
        assert task["state"] == "task"
        report(queues, (FIRST, SECOND)[number % 2], task, "failed")
    assert get(queues, FIRST) == {"state": "over"}
    assert "task 0 of d failed 3 times and is skipped for this pass" in caplog.text
    assert get(queues, FIRST, 1)["state"] == "task"


def test_one_trainer_saves_the_model_for_a_while(clock: Clock) -> None:
    queues = queues_of(clock)

    def approved(trainer: str) -> bool:
        return bool(queues.ask(FIRST, {"ask": "save", "trainer": trainer, "block_s": 5})["approved"])

    assert [approved("a"), approved("b"), approved("a")] == [True, False, True]
    clock.now = 5
    assert approved("b")
    for block_s in (math.inf, math.nan):
        with pytest.raises(ConfigError, match=r"expected a finite time, got (inf|nan)"):
            queues.ask(SECOND, {"ask": "save", "trainer": "b", "block_s": block_s})
    clock.now = 10
    assert approved("a")


def test_other_files_malformed_questions_and_empty_data_are_refused(clock: Clock) -> None:
    queues = queues_of(clock)
    other = {"ask": "dataset", "name": "d", "files": [["/data/a", [0]]]}
    with pytest.raises(
        ConfigError, match="differs between trainers: trainer 1 has 1 chunks, but the first trainer had 3"
    ):
        queues.ask(SECOND, other)
    with pytest.raises(ConfigError, match="has no records"):
        queues.ask(FIRST, {"ask": "dataset", "name": "empty", "files": [["/data/c", []]]})
    for question in (
        {},
        {"ask": "gone"},
        {"ask": "get", "name": "unknown", "pass": 0},
        {"ask": "get", "name": "d"},
        {"ask": "get", "name": "d", "pass": math.inf},
        {"ask": "read", "name": "d", "number": math.inf, "epoch": 1, "read": 1},
    ):
        with pytest.raises(ConfigError, match="malformed request"):
            queues.ask(FIRST, question)


def test_the_journal_is_shortened_with_each_pass_and_says_the_same(clock: Clock, tmp_path: Path) -> None:
    queues = queues_of(clock, journal=tmp_path / "log")
    queues.ask(SECOND, {"ask": "dataset", "name": "other", "files": [["/data/c", [0, 5, 9]]]})
    other = queues.ask(SECOND, {"ask": "get", "name": "other", "pass": 0})
    report(queues, FIRST, get(queues, FIRST), "failed")
    sizes = []
    for pass_id in range(4):
        while (task := get(queues, FIRST, pass_id))["state"] == "task":
            report(queues, FIRST, task)
        sizes.append(len((tmp_path / "log").read_text().splitlines()))
    assert sizes == [2, 2, 2, 2]
    queues.close()
    again = TaskQueues(num_trainers=2, clock=clock)
    again.keep(tmp_path / "log")
    assert again.ask(SECOND, {"ask": "get", "name": "other", "pass": 0}) == other
    assert get(again, FIRST, 3) == {"state": "over"}
    assert get(again, FIRST, 4)["state"] == "task"
    again.close()


def test_another_process_continues_from_the_journal_at_any_moment(clock: Clock, tmp_path: Path) -> None:
    files = [["/data/a", list(range(9))], ["/data/b", list(range(14))]]
    for seed in range(20):
        random.seed(seed)
        journal = tmp_path / str(seed)
        queues = queues_of(clock, files, journal)
        read: list[tuple[str, int]] = []
        holders = [FIRST, SECOND]
        over: set[Holder] = set()
        while len(over) < 2:
            holder = random.choice(holders)
            task = get(queues, holder)
            if task["state"] != "task":
                over.add(holder)
            elif random.random() < 0.03:
                report(queues, holder, task, "failed")
            else:
                done = task["read"] + 1
                assert report(queues, holder, task, read=done)
                read.append(task["pieces"][done - 1])
            if random.random() < 0.2:
                queues.close()
                if random.random() < 0.5:
                    journal.write_text(journal.read_text() + '["lease", "d"')  # killed while it wrote
                queues = TaskQueues(num_trainers=2, clock=clock)
                queues.keep(journal)
            if random.random() < 0.1:
                index = random.randrange(2)
                holders[index] = Holder(holders[index].trainer, random.getrandbits(40))
                over.discard(holders[index])
        queues.close()
        assert sorted(read) == sorted((path, at) for path, places in files for at in places)
