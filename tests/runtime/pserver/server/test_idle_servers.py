# SPDX-License-Identifier: Apache-2.0
"""Servers on one machine that a small model does not need: they see trainers join and leave, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.optim.spec import ParameterSpec, RowGradient
from paddle.pserver import Reader
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions, of_all
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import READER, Message
from paddle.pserver.wire.placement import SERVER_BYTES
from paddle.pserver.wire.verbs import Describe, Hello, Record, Status
from paddle_node.contract.facts import Queue
from tests.runtime.pserver.in_process_job import DEADLINE_S, LOOKED_AT, SGD, SMALL, InProcessJob, Model

HOST = "127.0.0.1:"
BATCHES = (3, 5)  # of each trainer in a pass: the first one follows
ROWS = np.arange(0, 20, 3)


def train(client: TrainerSession, trainer: int, *, first_comes: bool = False) -> dict[str, np.ndarray]:
    client.configure(SMALL.parameters, SGD, SMALL.values(), first_comes=first_comes)
    out = SMALL.empty()
    dense = {name: array for name, array in out.items() if name != "emb"}
    for number in range(2):
        client.start_pass()
        for batch in range(BATCHES[trainer]):
            rows = client.pull_rows("emb", ROWS)
            gradients: dict[str, Any] = SMALL.gradients(trainer, number, batch)
            gradients["emb"] = RowGradient(ROWS, rows + trainer)
            client.push_pull(gradients, 4, dense)
        while client.follow():
            pass
        client.finish_pass()
    client.pull(out)
    return out


@pytest.mark.parametrize("num_sparse", [0, 2])
@pytest.mark.parametrize("first_comes", [False, True])
def test_idle_servers_get_four_messages_of_each_trainer_and_the_bits_are_those_of_many_machines(
    num_sparse: int, *, first_comes: bool
) -> None:
    one = InProcessJob(2, 3, num_sparse, HOST)
    many = InProcessJob(2, 3, num_sparse)
    found, expected = (
        job.run(lambda client, trainer: train(client, trainer, first_comes=first_comes))
        for job in (one, many)
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert all(np.array_equal(mine[name].view(np.uint32), theirs[name].view(np.uint32)) for name in mine)
    handled = [engine.handled for engine in one.servers.engines.values()]
    assert handled[0] > 20
    assert all(count == 8 for count in handled[1:])
    assert all(engine.handled > 20 for engine in many.servers.engines.values())
    assert all(engine.is_over for engine in one.servers.engines.values())


def test_a_model_of_more_than_one_server_uses_a_second_one_in_every_step() -> None:
    job = InProcessJob(1, 3, host=HOST)
    model = Model({"w": (SERVER_BYTES // 4 + 1,)})
    with job.client(0) as client:
        client.configure(model.parameters, SGD, model.values())
        client.start_pass()
        before = [engine.handled for engine in job.servers.engines.values()]
        out = model.empty()
        client.push_pull(model.gradients(1), 1, out)
        after = [engine.handled for engine in job.servers.engines.values()]
        assert np.allclose(out["w"], model.values()["w"] - 0.1 * model.gradients(1)["w"])
    assert [new > old for new, old in zip(after, before, strict=True)] == [True, True, False]


def test_asynchronous_training_uses_one_server_too() -> None:
    job = InProcessJob(1, 3, host=HOST)

    def work(client: TrainerSession, trainer: int) -> np.ndarray:
        client.configure(SMALL.parameters, replace(SGD, is_async=True), SMALL.values())
        client.start_pass()
        for batch in range(4):
            client.push(SMALL.gradients(batch), 1)
        out = {"fc.b": np.zeros(50, np.float32)}
        client.pull(out)
        return out["fc.b"]

    (found,) = job.run(work)
    assert np.allclose(
        found, SMALL.values()["fc.b"] - 0.1 * sum(SMALL.gradients(batch)["fc.b"] for batch in range(4))
    )
    assert [engine.version for engine in job.servers.engines.values()] == [4, 0, 0]


def test_a_trainer_whose_list_has_the_servers_on_other_machines_is_refused() -> None:
    job = InProcessJob(2, 2, host=HOST)
    other = TrainerSession(_Renamed(job, "10.0.0.1:d0", "10.0.0.2:d1"), 0, trainer_id=1, num_trainers=2)
    with job.client(0) as first, other:
        first.configure(SMALL.parameters, SGD, SMALL.values())
        with pytest.raises(
            PserverError,
            match=r"servers: server 0 of 1 \+ 0 without \(1,\).* 0 of 2 \+ 0 .*; give every trainer the same list",
        ):
            other.configure(SMALL.parameters, SGD, {})


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("first_comes", [False, True])
@pytest.mark.parametrize("theirs", [[1, 0, 2], [0, 2, 1], [1, 2], [1]])
def test_trainers_that_list_servers_of_one_machine_differently_are_refused(
    theirs: list[int], *, first_comes: bool, is_async: bool
) -> None:
    job = InProcessJob(2, 3, host=HOST)
    links = job.servers.connect([job.endpoints[index] for index in theirs])
    other = TrainerSession(links, 0, trainer_id=1, num_trainers=2)
    optimizer = replace(SGD, is_async=is_async)
    with job.client(0) as first, other:
        first.configure(SMALL.parameters, optimizer, SMALL.values(), first_comes=first_comes)
        with pytest.raises(PserverError, match=r"trainer 1 lists this pserver as number .*the same list"):
            other.configure(SMALL.parameters, optimizer, SMALL.values(), first_comes=first_comes)


def test_the_next_process_of_an_idle_server_knows_its_number_in_the_list() -> None:
    job = InProcessJob(2, 2, host=HOST)
    with job.client(0) as first:
        first.configure(SMALL.parameters, SGD, SMALL.values())
        facts = json.loads(json.dumps(job.servers.engines[job.endpoints[1]].facts()))
        job.servers.engines[job.endpoints[1]] = engine = Engine(EngineOptions(2), 2)
        engine.take_up_sessions(facts)
        other = TrainerSession(job.servers.connect(job.endpoints[1:]), 0, trainer_id=1, num_trainers=2)
        with other, pytest.raises(PserverError, match="number 0 of 1, but it is already number 1 of 2"):
            other.configure(SMALL.parameters, SGD, {})


def test_readers_ask_only_the_servers_that_hold_the_model() -> None:
    job = InProcessJob(1, 3, host=HOST)
    with job.client(0) as client:
        client.configure(LOOKED_AT.parameters, SGD, LOOKED_AT.values())
        client.start_pass()
        client.push(LOOKED_AT.gradients(0), 1)
        expected, out = LOOKED_AT.empty(), LOOKED_AT.empty()
        client.pull({name: array for name, array in expected.items() if name != "emb"})
        expected["emb"] = client.pull_rows("emb", np.arange(30))
        with Reader(job.servers.connect(job.endpoints)) as reader:
            assert reader.version() == 1
            assert reader.pull(out) == 1
            assert np.array_equal(reader.pull_rows("emb", ROWS), expected["emb"][ROWS])
        assert all(np.array_equal(out[name], expected[name]) for name in out)
        with pytest.raises(PserverError, match="is number 0 of 3 in its job, but is listed as number 0 of 1"):
            Reader(job.servers.connect(job.endpoints[:1]))
        with pytest.raises(PserverError, match="is number 2 of 3 in its job, but is listed as number 0: use"):
            Reader(job.servers.connect(job.endpoints[::-1]))


def test_a_reader_that_waits_at_an_idle_server_is_refused_when_trainers_come() -> None:
    job = InProcessJob(1, 2, host=HOST)
    idle = job.servers.engines[job.endpoints[1]]

    def ask(record: Record, stamp: int = 0) -> Message | None:
        replies = idle.handle(b"reader", Message(record, READER, session=1, stamp=stamp))
        return replies[0].message if replies else None

    hello = ask(Hello())
    assert hello is not None
    assert ask(Describe(), hello.stamp) is None
    with job.client(0) as client:
        client.configure(SMALL.parameters, SGD, SMALL.values())
        answer = ask(Status(), hello.stamp)
    assert answer is not None
    assert "is number 1 of 2 in its job, but is listed as number 0" in answer.section("").as_text()


def test_an_idle_server_hears_of_a_connection_that_was_made_anew() -> None:
    job = InProcessJob(1, 2, host=HOST)
    links = job.servers.connect(job.endpoints)
    with TrainerSession(links, 0, trainer_id=0, num_trainers=1) as client:
        client.configure(SMALL.parameters, SGD, SMALL.values())
        client.start_pass()
        idle = job.servers.engines[job.endpoints[1]]
        links.reconnect(1)
        job.clock.now += 1000
        assert idle.is_deserted(0.0)
        client.push(SMALL.gradients(0), 1)
        assert not idle.is_deserted(0.0)


def test_an_idle_server_that_was_restarted_without_its_state_lost_nothing() -> None:
    job = InProcessJob(1, 2, host=HOST)
    links = job.servers.connect(job.endpoints)
    with TrainerSession(links, 0, trainer_id=0, num_trainers=1) as client:
        client.configure(SMALL.parameters, SGD, SMALL.values())
        client.start_pass()
        job.servers.engines[job.endpoints[1]] = engine = Engine(EngineOptions(1), stamp=7)
        links.reconnect(1)
        client.push(SMALL.gradients(0), 1)
        client.finish_pass()
        client.leave(DEADLINE_S)
    assert engine.is_over


def test_a_process_that_was_replaced_does_not_take_an_idle_server_back() -> None:
    job = InProcessJob(1, 2, host=HOST)
    links = job.servers.connect(job.endpoints)
    before = TrainerSession(links, 0, trainer_id=0, num_trainers=1, takes_over=True)
    before.configure(SMALL.parameters, SGD, SMALL.values())
    now = job.servers.connect(job.endpoints)
    with TrainerSession(now, 0, trainer_id=0, num_trainers=1, takes_over=True) as client:
        links.reconnect(1)
        with before, pytest.raises(PserverError, match="no session"):
            before.start_pass()
        client.leave(DEADLINE_S)
    assert job.servers.engines[job.endpoints[1]].is_over


def test_a_report_of_several_ports_has_the_batches_of_those_in_use() -> None:
    assert of_all([Queue(7, 20), Queue(0, 3), Queue(8, 20)]).version == 7
    assert of_all([Queue(0, 3), Queue()]).version == 0


@pytest.mark.parametrize("idle", ["[0]", "[2, 1]", "[1, 1]", "[3]", "[-1]", "7", '["1"]'])
def test_a_configuration_with_wrong_idle_servers_is_refused(idle: str) -> None:
    text = Configuration((ParameterSpec("w", (3,)),), SGD, 1, 0, 0, (), (1, 2)).to_text()
    assert Configuration.from_text(text).used == [0]
    assert '"idle": [1, 2]' in text
    with pytest.raises(PserverError, match="configuration"):
        Configuration.from_text(text.replace("[1, 2]", idle))


class _Renamed:
    """Links to a job's servers under other names."""

    def __init__(self, job: InProcessJob, *names: str) -> None:
        self._links = job.servers.connect(job.endpoints)
        self.endpoints = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._links, name)
