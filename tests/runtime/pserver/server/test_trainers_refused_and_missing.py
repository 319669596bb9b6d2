# SPDX-License-Identifier: Apache-2.0
"""Trainers that do not fit their job are refused with the reason; those that do not come are named."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from paddle.errors import PserverError, PserverLost
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.in_process_job import SGD, InProcessJob, Model
from tests.runtime.pserver.synchronous_trainers import MODEL, train

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "another shape": (
        {"parameters": Model({"_fc0.w0": (60, 51)}).parameters},
        "parameter _fc0.w0: .*60, 50.*60, 51",
    ),
    "another rule": (
        {"optimizer": OptimizerSpec("adam")},
        "optimizer: rule='momentum', hyper.* here, rule='adam'",
    ),
    "fewer parameters": ({"parameters": MODEL.parameters[:1]}, "parameter _fc0.wbias: .*absent"),
    "another order": ({"parameters": MODEL.parameters[::-1]}, "order: parameter "),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_second_model_is_refused_with_the_first_difference(what: str) -> None:
    change, why = REFUSALS[what]
    job = InProcessJob(1, num_dense=1)
    job.run(lambda c, t: train(c, t, SGD, 1))

    def other(client: TrainerSession, trainer: int) -> None:
        given: dict[str, Any] = {"parameters": MODEL.parameters, "optimizer": SGD, **change}
        client.configure(given["parameters"], given["optimizer"], {})

    with pytest.raises(PserverError, match=f"configured for .* model.*{why}"):
        job.run(other)


def test_a_trainer_with_another_model_is_refused_whoever_comes_first() -> None:
    for first in (0, 1):
        job = InProcessJob(2, num_dense=1)
        come = threading.Event()

        def work(
            client: TrainerSession, trainer: int, first: int = first, come: threading.Event = come
        ) -> str:
            if trainer != first:
                come.wait(10)
            optimizer = OptimizerSpec(learning_rate=0.1 * (trainer + 1))
            threading.Timer(0.05, come.set).start()
            try:
                client.configure(MODEL.parameters, optimizer, MODEL.values())
            except PserverError as error:
                return str(error)
            return "accepted"

        accepted, refused = job.run(work)
        assert accepted == "accepted"
        assert "learning_rate=0.2" in refused
        assert "All trainers must build the same network" in refused
        assert "restart" not in refused


def test_trainers_with_different_shapes_are_named_with_both() -> None:
    job = InProcessJob(2, num_dense=1)

    def work(client: TrainerSession, trainer: int) -> str:
        try:
            client.configure(
                Model({"emb": (8 - trainer, 8)}).parameters, SGD, {"emb": np.zeros((8 - trainer, 8), "f")}
            )
        except PserverError as error:
            return str(error)
        return ""

    accepted, refused = job.run(work)
    assert not accepted
    assert "trainer 1 is configured for a different model than trainer 0: parameter emb: " in refused
    assert "shape=(8, 8) on trainer 0, shape=(7, 8) on trainer 1" in refused


def test_a_wrong_number_of_trainers_is_refused_with_both_numbers() -> None:
    job = InProcessJob(3)
    with pytest.raises(PserverError, match=r"--num_gradient_servers=3, but trainer 0 has 2"):
        TrainerSession(job.servers.connect(job.endpoints), 0, trainer_id=0, num_trainers=2)


def test_a_trainer_id_that_lives_already_is_refused() -> None:
    job = InProcessJob(2)
    with (
        job.client(1),
        pytest.raises(
            PserverError, match=r'trainer_id 1 is used by another process.*os.environ."PADDLE_TRAINER_ID"'
        ),
    ):
        job.client(1)


def test_missing_trainers_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    job = InProcessJob(3, num_dense=1, barrier_timeout_s=60.0)
    with job.client(0) as zero, job.client(1) as one:
        zero.configure(MODEL.parameters, SGD, MODEL.values())
        one.configure(MODEL.parameters, SGD, {})
        waiter = threading.Thread(target=_start_and_fail, args=(zero,), daemon=True)
        waiter.start()
        _tick_until(
            job, caplog, r"trainer 0 waiting at the start of a pass; missing: trainers 1, 2 (never seen)", 61
        )
        _tick_until(job, caplog, "gave up waiting", 300)
        waiter.join(10)
        assert not waiter.is_alive()


def _start_and_fail(client: TrainerSession) -> None:
    with pytest.raises(
        PserverError, match=r"gave up waiting at the start of a pass; missing: trainer 2 .never seen."
    ):
        client.start_pass()


def _tick_until(job: InProcessJob, caplog: pytest.LogCaptureFixture, text: str, seconds: float) -> None:
    def seen() -> bool:
        job.servers.tick()
        job.clock.now += seconds
        return text in caplog.text

    wait_for(text, seen, 10.0)


def test_a_connected_trainer_is_waited_for_however_long_it_takes() -> None:
    job = InProcessJob(2, num_dense=1, barrier_timeout_s=1.0)
    slow = threading.Event()

    def work(client: TrainerSession, trainer: int) -> str:
        client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else {})
        if trainer == 1:
            for _ in range(50):
                job.clock.now += 10
                job.servers.tick()
            slow.set()
        client.start_pass()
        return "started"

    assert job.run(work) == ["started", "started"]
    assert slow.is_set()


def test_a_server_that_is_gone_is_named() -> None:
    job = InProcessJob(1, num_dense=2)
    with job.client(0, timeout_s=1.0) as client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        client.start_pass()
        job.servers.kill("d1")
        with pytest.raises(PserverLost, match="pserver d1 is gone") as caught:
            client.push_pull(MODEL.gradients(0), 1, MODEL.empty())
    assert caught.value.endpoint == "d1"
