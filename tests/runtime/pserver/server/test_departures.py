# SPDX-License-Identifier: Apache-2.0
"""Trainers that leave at an awkward moment, and steps that fail for all: nobody is left waiting."""

from __future__ import annotations

import threading

import pytest

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Hello, Leave, Pull, Verb
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.in_process_job import SGD, InProcessJob, Model

MODEL = Model({"w": (30, 40)})


def _is_told(job: InProcessJob, caplog: pytest.LogCaptureFixture, text: str) -> bool:
    job.servers.tick()
    job.clock.now += 61
    return text in caplog.text


def test_a_trainer_that_waits_for_values_hears_that_trainer_0_left_without_giving_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = InProcessJob(2, num_dense=1)
    first = job.client(0)
    found: list[PserverError] = []

    def configure() -> None:
        with job.client(1) as client, pytest.raises(PserverError) as caught:
            client.configure(MODEL.parameters, SGD, {})
        found.append(caught.value)

    other = threading.Thread(target=configure, daemon=True)
    other.start()
    wait_for("trainer 1 at the barrier", lambda: _is_told(job, caplog, "waiting for the initial values"), 10)
    first.close()
    other.join(10)
    assert "trainer 0 left before it initialized the parameters" in str(found[0])
    with job.client(1) as late, pytest.raises(PserverError, match="trainer 0 left before"):
        late.configure(MODEL.parameters, SGD, {})


def test_every_trainer_of_a_step_hears_why_it_could_not_be_taken() -> None:
    endless = OptimizerSpec("momentum", learning_rate=1.0, schedule="exp", decay_a=2.0, decay_b=1.0)

    def train(client: TrainerSession, trainer: int) -> str:
        client.configure(MODEL.parameters, endless, MODEL.values() if trainer == 0 else {})
        client.start_pass()
        with pytest.raises(PserverError) as caught:
            client.push_pull(MODEL.gradients(trainer), 4000, {})
        return str(caught.value)

    for text in InProcessJob(3).run(train):
        assert "expected a finite rate, got inf after 12000 samples" in text


def test_an_old_hello_that_comes_late_does_not_bring_a_trainer_back() -> None:
    engine = Engine(EngineOptions(2), stamp=7)
    hello = Message(Hello(2), session=1, request=1)
    engine.handle(b"a", hello)
    engine.handle(b"a", Message(Leave(), session=1, request=9, stamp=7))
    (reply,) = engine.handle(b"b", hello)
    assert reply.message.verb is Verb.ERROR
    (reply,) = engine.handle(b"b", Message(Pull(), session=1, request=10, stamp=7))
    assert "no session" in reply.message.section("").as_text()


def test_another_process_leaves_for_a_trainer_that_vanished_without_breaking_its_connection() -> None:
    job = InProcessJob(2)
    vanished = job.client(1)

    def train(client: TrainerSession, trainer: int) -> None:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        client.start_pass()
        client.push_pull(MODEL.gradients(trainer), 4, {})
        client.finish_pass()

    try:
        with pytest.raises(PserverError, match="used by another process"):
            job.client(1)
        servant = TrainerSession(
            job.servers.connect(job.endpoints), 0, trainer_id=1, num_trainers=2, takes_over=True
        )
        servant.leave(5.0)
        job.run(train, [0])
    finally:
        vanished.close()
