# SPDX-License-Identifier: Apache-2.0
"""The service of programs: each step once, when all trainers' gradients are there, in the order of trainers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.pserver.client.program_client import ProgramClient
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.program_service import ProgramService
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.named_values import Rows
from paddle.pserver.wire.verbs import Hello, Step, Verb
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.in_process_job import DEADLINE_S, Clock
from tests.runtime.pserver.inproc import InprocLinks, InprocServers
from tests.runtime.pserver.recorded_program import Recorder


class Job:
    """One server without sockets, and clients of it."""

    def __init__(self, trainers: int = 2, sync: bool = True, **options: Any) -> None:
        self.program, self.clock, self.trainers = Recorder(), Clock(), trainers
        self.over = threading.Event()
        self.engine = Engine(
            EngineOptions(trainers, barrier_timeout_s=10.0),
            1,
            self.clock,
            serve=lambda desk: ProgramService(
                desk, self.program, is_sync=sync, on_over=self.over.set, **options
            ),
        )
        self.servers = InprocServers({"s": self.engine})
        self.links: list[InprocLinks] = []

    def client(self, trainer: int, **options: Any) -> ProgramClient:
        self.links.append(self.servers.connect(["s"]))
        return ProgramClient(
            self.links[-1], trainer_id=trainer, num_trainers=self.trainers, timeout_s=DEADLINE_S, **options
        )


def meanwhile(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start work in a thread; return what waits for its result, or raises its error."""
    found: list[Any] = []

    def body() -> None:
        try:
            found.append(work())
        except PserverError as error:
            found.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(DEADLINE_S)
        assert found, "it still waits"
        if isinstance(found[0], PserverError):
            raise found[0]
        return found[0]

    return result


def ones(value: float = 1.0) -> np.ndarray:
    return np.full(3, value, np.float32)


def test_a_step_is_computed_when_all_are_there_in_the_order_of_trainers() -> None:
    job = Job()
    with_0, with_1 = job.client(0), job.client(1)
    late = meanwhile(lambda: with_1.step({0: {"g.1": ones(2)}}, {0: ["w"]}))
    early = with_0.step({0: {"g.0": ones()}}, {0: ["w"]})
    for found in (early, late()):
        np.testing.assert_array_equal(found[0]["w"], ones(3))
    assert job.program.steps == [["g.0", "g.1"]]
    with_0.close()
    assert not job.over.is_set()
    with_1.close()
    assert job.over.is_set()


def test_rows_travel_with_their_numbers_and_may_be_none() -> None:
    job = Job(trainers=1)
    client = job.client(0)
    rows = Rows(np.array([2, 0, 2]), np.ones((3, 1), np.float32), 3)
    none = Rows(np.zeros(0, np.int64), np.zeros((0, 1), np.float32), 3)
    client.step({0: {"g": rows, "g2": none}}, {})
    np.testing.assert_array_equal(client.fetch({0: ["w"]})[0]["w"], [1, 0, 2])
    np.testing.assert_array_equal(client.lookup({0: {"w": np.array([2, 2])}})[0]["w"], [[2], [2]])
    client.close()


def test_a_large_step_goes_in_several_messages_and_is_one_step() -> None:
    job = Job(trainers=1)
    client = job.client(0, parcel_bytes=20)
    client.step({0: {f"g{at}": ones(at) for at in range(4)}}, {})
    assert job.program.steps == [["g0", "g1", "g2", "g3"]]
    client.close()


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("limit", [1, 4, 11, 12, 13, 24, 1000])
def test_gradients_that_are_too_large_for_a_message_come_in_parts(sync: bool, limit: int) -> None:
    job = Job(trainers=1, sync=sync)
    client = job.client(0, parcel_bytes=limit)
    rows = Rows(np.array([2, 0, 2]), np.array([[1], [10], [100]], np.float32), 3)
    none = Rows(np.zeros(0, np.int64), np.zeros((0, 1), np.float32), 3)
    dense = np.array([1, 2, 3], np.float32)
    found = client.step({0: {"g": dense, "g2": rows, "g3": none}}, {0: ["w"]})
    np.testing.assert_array_equal(found[0]["w"], [1 + 10, 2, 3 + 101])
    assert job.program.steps == [["g", "g2", "g3"]]
    client.close()


GRADIENT = Section("=g", np.ones(2, np.float32))
WRONG_PARTS = {
    "begins in the middle": [(1, 3)],
    "leaves rows out": [(0, 5), (3, 5)],
    "comes twice": [(0, 5), (0, 5)],
    "has more rows than the whole": [(0, 4), (2, 3)],
    "goes on when all is there": [(0, 2), (2, 2)],
    "is of another whole": [(0, 5), (2, 6)],
    "ends early": [(0, 5)],
    "is larger than any memory": [(0, 2**62)],
}


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("what", WRONG_PARTS)
def test_a_gradient_whose_parts_make_no_whole_is_refused_and_the_next_step_counts(
    what: str, sync: bool
) -> None:
    job = Job(trainers=1, sync=sync)
    parts = [(Section("~g", np.array(each)), GRADIENT) for each in WRONG_PARTS[what]]
    last = len(parts) - 1
    job.engine.handle(b"0", Message(Hello(1), session=7))
    for at, sections in enumerate(parts):
        message = Message(Step(is_last=at == last), sections=sections)
        (reply,) = job.engine.handle(b"0", message._replace(session=7, request=at + 1, stamp=1))
        assert reply.message.verb is (Verb.ERROR if at == last else Verb.OK)
    assert not job.program.steps
    job.engine.lose(b"0")
    client = job.client(0)
    client.step({0: {"g": ones()}}, {})
    assert job.program.steps == [["g"]]
    client.close()


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("limit", [4, 8, 16, 1000])
def test_values_that_are_too_large_for_an_answer_come_in_parts(sync: bool, limit: int) -> None:
    job = Job(trainers=1, sync=sync, answer_bytes=limit)
    client = job.client(0)
    names = [f"w{at}" for at in range(3)]
    found = client.step({0: {"g": np.array([1, 2, 3], np.float32)}}, {0: names})
    assert list(found[0]) == names
    for value in found[0].values():
        np.testing.assert_array_equal(value, [1, 2, 3])
    assert len(job.program.steps) == 1
    client.close()


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("limit", [4, 1000])
def test_what_was_pushed_before_is_part_of_the_step(sync: bool, limit: int) -> None:
    job = Job(trainers=1, sync=sync)
    client = job.client(0, parcel_bytes=limit)
    for step in range(2):
        client.push({0: {"g0": ones()}})
        client.push({0: {"g1": ones()}})
        found = client.step({0: {"g2": ones()}}, {0: ["w"]})
        np.testing.assert_array_equal(found[0]["w"], ones(3 + 3 * step))
    assert job.program.steps == [["g0", "g1", "g2"]] * 2
    client.close()


@pytest.mark.parametrize("sync", [True, False])
def test_a_server_that_got_all_its_gradients_before_and_gives_none_takes_part_in_the_step(sync: bool) -> None:
    job = Job(trainers=1, sync=sync)
    client = job.client(0)
    for _ in range(2):
        client.begin_step()
        client.push({0: {"g": ones()}})
        client.step({}, {})
    assert job.program.steps == [["g"]] * 2
    client.close()


@pytest.mark.parametrize("last", [{"g1": ones()}, {}])
@pytest.mark.parametrize("sync", [True, False])
def test_a_step_that_never_ended_does_not_count(sync: bool, last: dict[str, np.ndarray]) -> None:
    job = Job(trainers=1, sync=sync)
    client = job.client(0, parcel_bytes=4)
    client.push({0: {"g0": ones()}})
    client.begin_step()
    client.step({0: last}, {})
    assert job.program.steps == [list(last)]
    client.push({0: {"g0": ones()}})
    client.begin_step()
    client.push({0: {"g1": ones()}})
    client.step({}, {0: []})
    assert job.program.steps[1:] == [["g1"]]
    client.close()


def test_what_an_earlier_process_pushed_of_a_step_does_not_count() -> None:
    job = Job(trainers=1)
    job.client(0).push({0: {"g0": ones()}})
    client = job.client(0, takes_over=True)
    client.step({0: {"g1": ones()}}, {})
    assert job.program.steps == [["g1"]]
    client.close()


def test_what_a_trainer_that_leaves_pushed_of_a_step_does_not_count() -> None:
    job = Job()
    with_0, with_1 = job.client(0), job.client(1)
    with_0.push({0: {"g.0": ones()}})
    waiting = meanwhile(lambda: with_1.step({0: {"g.1": ones()}}, {0: ["w"]}))
    with_0.close()
    np.testing.assert_array_equal(waiting()[0]["w"], ones())
    assert job.program.steps == [["g.1"]]
    with_1.close()


def test_a_client_that_leaves_ends_the_exchange_of_another_thread() -> None:
    job = Job()
    with_0, with_1 = job.client(0), job.client(1)
    waiting = meanwhile(lambda: with_0.step({0: {"g.0": ones()}}, {0: ["w"]}))
    wait_for("the request", lambda: job.engine.facts()["sessions"]["all"][0]["last"] > 1, DEADLINE_S)
    with_0.close()
    with pytest.raises(PserverError, match="closed in the middle"):
        waiting()
    with_1.step({0: {"g.1": ones()}}, {})
    with_1.close()
    assert job.over.is_set()


@pytest.mark.parametrize("limit", [1, 4, 8, 12, 16, 1000])
def test_rows_that_are_too_many_for_an_answer_come_in_parts(limit: int) -> None:
    job = Job(trainers=1, answer_bytes=limit)
    client = job.client(0)
    client.step({0: {"g": np.array([1, 2, 3], np.float32)}}, {})
    ids = {"w0": np.array([2, 0, 2, 1]), "none": np.zeros(0, np.int64), "w1": np.array([1])}
    found = client.lookup({0: ids})[0]
    assert list(found) == list(ids)
    for name, rows in found.items():
        np.testing.assert_array_equal(rows, ids[name][:, None] + np.float32(1))
    client.close()


def test_a_step_that_is_sent_again_after_a_broken_connection_counts_once() -> None:
    job = Job()
    with_0, with_1 = job.client(0), job.client(1)
    waiting = meanwhile(lambda: with_0.step({0: {"g.0": ones()}}, {0: ["w"]}))
    wait_for("the request", lambda: job.engine.facts()["sessions"]["all"][0]["last"] > 1, DEADLINE_S)
    job.links[0].reconnect(0)
    with_1.step({0: {"g.1": ones()}}, {})
    np.testing.assert_array_equal(waiting()[0]["w"], ones(2))
    assert len(job.program.steps) == 1
    with_0.close()
    with_1.close()


def test_those_who_wait_hear_who_is_missing_and_go_on_when_that_one_leaves() -> None:
    job = Job()
    with_0, with_1 = job.client(0), job.client(1)
    waiting = meanwhile(lambda: with_0.step({0: {"g.0": ones()}}, {0: ["w"]}))
    with_1.close()
    np.testing.assert_array_equal(waiting()[0]["w"], ones())
    with_0.close()


def test_a_trainer_that_lost_its_connection_is_given_up_by_name() -> None:
    job = Job()
    for trainer in range(2):
        job.engine.handle(b"%d" % trainer, Message(Hello(2), trainer, session=7))
    job.engine.lose(b"1")
    job.engine.handle(b"0", Message(Step(), 0, session=7, request=1, stamp=1))
    job.engine.tick()
    job.clock.now += 51.0
    (reply,) = job.engine.tick()
    assert reply.address == b"0"
    assert "missing: trainer 1 (connection lost)" in reply.message.section("").as_text()


@pytest.mark.parametrize("sync", [True, False])
def test_a_gradient_that_is_refused_changes_nothing(sync: bool) -> None:
    job = Job(trainers=1, sync=sync)
    client = job.client(0)
    with pytest.raises(PserverError, match="no gradient 'x'"):
        client.step({0: {"g": ones(), "x": ones()}}, {})
    np.testing.assert_array_equal(job.program.w, np.zeros(3))
    client.close()


def test_all_who_sent_hear_that_a_step_failed() -> None:
    job = Job()
    clients = [job.client(0), job.client(1)]
    late = meanwhile(lambda: clients[1].step({0: {"g.1": ones(np.nan)}}, {}))
    with pytest.raises(PserverError, match="not finite"):
        clients[0].step({0: {"g.0": ones()}}, {})
    with pytest.raises(PserverError, match="not finite"):
        late()
    for client in clients:
        client.close()


def test_asynchronous_gradients_are_applied_when_they_come() -> None:
    job = Job(sync=False)
    with_0, with_1 = job.client(0), job.client(1)
    for count in (1, 2):
        found = with_0.step({0: {"g": ones()}}, {0: ["w"]})
        np.testing.assert_array_equal(found[0]["w"], ones(count))
    with_0.close()
    with_1.close()
