# SPDX-License-Identifier: Apache-2.0
"""Models whose values come from whichever trainer is first, and parameters that must not be cut."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.wire.placement import place
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.in_process_job import DEADLINE_S, SGD, InProcessJob, Model

MODEL = Model({"w": (60, 50), "b": (1, 50), "emb": (40, 3)}, sparse=["emb"])


def configured(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
    client.configure(MODEL.parameters, SGD, MODEL.values(trainer), first_comes=True)
    out = MODEL.empty()
    client.pull(out)
    return out


@pytest.mark.parametrize("run", range(5))
def test_all_parameters_on_all_servers_come_from_one_trainer(run: int) -> None:
    found = InProcessJob(4, num_dense=3, num_sparse=2).run(configured)
    winners = [t for t in range(4) if all(np.array_equal(found[0][n], v) for n, v in MODEL.values(t).items())]
    assert len(winners) == 1
    assert all(np.array_equal(out[name], found[0][name]) for out in found for name in out)


def test_a_trainer_other_than_0_may_come_first_and_need_not_wait_for_it() -> None:
    job = InProcessJob(2, num_dense=2)
    with job.client(1) as client:
        assert np.array_equal(configured(client, 1)["w"], MODEL.values(1)["w"])


def test_who_waits_for_values_hears_that_the_first_comer_left(caplog: pytest.LogCaptureFixture) -> None:
    job = InProcessJob(2, num_dense=1)
    first = job.client(1)
    errors: list[PserverError] = []

    def wait() -> None:
        with job.client(0) as client, pytest.raises(PserverError) as caught:
            configured(client, 0)
        errors.append(caught.value)

    def is_told() -> bool:
        job.clock.now += 61
        job.servers.tick()
        return "waiting for the initial values; missing: trainer 1" in caplog.text

    with pytest.raises(ConfigError, match="value of parameter w is missing"):
        first.configure(MODEL.parameters, SGD, {}, first_comes=True)
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_for("trainer 0 at the barrier", is_told, 10)
    first.close()
    thread.join(DEADLINE_S)
    assert "trainer 1 left before it initialized the parameters" in str(errors[0])


def test_a_rule_that_takes_norms_gets_its_parameters_uncut() -> None:
    parameters = [ParameterSpec("w", (300, 50)), ParameterSpec("b", (50,)), ParameterSpec("v", (9000,))]
    shares = [part for server in place(parameters, 3, 0, whole=True) for part in server.dense]
    assert sorted(part.parameter.name for part in shares) == ["b", "v", "w"]
    assert all(part.stop - part.start == part.parameter.size for part in shares)


@pytest.mark.parametrize("rule", ["lamb", "lars_momentum"])
def test_uncut_parameters_travel_whole(rule: str) -> None:
    optimizer = OptimizerSpec(rule, learning_rate=0.0)

    def train(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        out = MODEL.empty()
        dense = [p for p in MODEL.parameters if not p.sparse]
        client.configure(dense, optimizer, MODEL.values(), first_comes=True)
        client.start_pass()
        del out["emb"]
        client.push_pull(MODEL.gradients(trainer, 0), 1, out)
        return out

    for out in InProcessJob(2, num_dense=3).run(train):
        assert all(np.array_equal(out[name], MODEL.values()[name]) for name in out)
