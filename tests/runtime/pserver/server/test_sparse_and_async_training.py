# SPDX-License-Identifier: Apache-2.0
"""Sparse tables over several servers, and asynchronous training."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.client.session import TrainerSession
from tests.runtime.pserver.in_process_job import InProcessJob, Model

HEIGHT, WIDTH, STEPS = 23, 4, 12
MODEL = Model({"fc.w": (30,), "emb": (HEIGHT, WIDTH)}, sparse=["emb"], l2=0.01)
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.05)


def row_gradient(trainer: int, step: int) -> RowGradient:
    rng = np.random.default_rng((trainer, step))
    rows = np.flatnonzero(rng.random(HEIGHT) < 0.3).astype(np.int64)
    return RowGradient(rows, rng.standard_normal((len(rows), WIDTH)).astype(np.float32))


def train(client: TrainerSession, trainer: int, optimizer: OptimizerSpec = ADAGRAD) -> dict[str, np.ndarray]:
    client.configure(MODEL.parameters, optimizer, MODEL.values() if trainer == 0 else {})
    dense = {"fc.w": np.zeros(30, np.float32)}
    client.start_pass()
    for step in range(STEPS):
        rows = row_gradient(trainer, step)
        client.pull_rows("emb", rows.rows)
        later = np.array([*row_gradient(trainer, step + 1).rows[::-1], 3, 3], np.int64)
        came = client.push_pull({**MODEL.gradients(trainer, step), "emb": rows}, 8, dense, {"emb": later})
        assert np.array_equal(came["emb"], client.pull_rows("emb", later))
    client.finish_pass()
    out = MODEL.empty()
    client.pull(out)
    return out


def train_table_alone(num_trainers: int) -> np.ndarray:
    table = MODEL.values()["emb"]
    updater = SparseUpdater.of(ADAGRAD, MODEL.parameters[1], HEIGHT, WIDTH)
    for step in range(STEPS):
        total = np.zeros((HEIGHT, WIDTH))
        touched = np.zeros(HEIGHT, bool)
        for trainer in range(num_trainers):
            rows, values = row_gradient(trainer, step)
            total[rows] += values
            touched[rows] = True
        ids = np.flatnonzero(touched)
        updater.update(table, RowGradient(ids, total[ids].astype(np.float32)), 0.05)
    updater.catch_up(table, 0.05)
    return table


@pytest.mark.parametrize(("num_dense", "num_sparse"), [(1, 1), (2, 3), (3, 0)])
@pytest.mark.parametrize("num_trainers", [1, 3])
def test_a_table_over_several_servers_learns_like_one_table(
    num_trainers: int, num_dense: int, num_sparse: int
) -> None:
    found = InProcessJob(num_trainers, num_dense, num_sparse).run(train)
    for out in found:
        np.testing.assert_allclose(out["emb"], train_table_alone(num_trainers), rtol=1e-4, atol=1e-6)


def test_pulled_rows_come_in_the_order_asked_for_and_may_repeat() -> None:
    def work(client: TrainerSession, trainer: int) -> None:
        client.configure(MODEL.parameters, ADAGRAD, MODEL.values())
        ids = np.array([22, 0, 7, 7, 3], np.int64)
        assert np.array_equal(client.pull_rows("emb", ids), MODEL.values()["emb"][ids])
        assert client.pull_rows("emb", ids[:0]).shape == (0, WIDTH)

    InProcessJob(1, 1, 3).run(work)


def test_a_table_larger_than_one_message_travels_in_parts() -> None:
    model = Model({"fc.w": (1,), "emb": (70_000, 128)}, sparse=["emb"])

    def work(client: TrainerSession, trainer: int) -> None:
        values = model.values()
        client.configure(model.parameters, ADAGRAD, values)
        out = model.empty()
        client.pull(out)
        assert np.array_equal(out["emb"], values["emb"])

    InProcessJob(1, 1, 1).run(work)


def test_one_asynchronous_trainer_learns_from_every_gradient() -> None:
    optimizer = OptimizerSpec("momentum", learning_rate=0.1, is_async=True)
    model = Model({"w": (5,)})

    def work(client: TrainerSession, trainer: int) -> np.ndarray:
        client.configure(model.parameters, optimizer, model.values())
        out = model.empty()
        client.start_pass()
        for _ in range(4):
            client.push_pull({"w": np.ones(5, np.float32)}, 1, out)
        client.finish_pass()
        return out["w"]

    found = InProcessJob(1).run(work)[0]
    np.testing.assert_allclose(found, model.values()["w"] - 0.4, rtol=1e-6)


def test_an_asynchronous_schedule_counts_the_samples_before_the_batch() -> None:
    optimizer = OptimizerSpec(
        "momentum", learning_rate=1.0, schedule="manual", schedule_args="9:1.0,100:0.5", is_async=True
    )
    model = Model({"w": (1,)})

    def work(client: TrainerSession, trainer: int) -> list[float]:
        client.configure(model.parameters, optimizer, {"w": np.zeros(1, np.float32)})
        out = model.empty()
        client.start_pass()
        seen = []
        for _ in range(3):
            client.push_pull({"w": np.ones(1, np.float32)}, 8, out)
            seen.append(float(out["w"][0]))
        return seen

    assert InProcessJob(1).run(work)[0] == [-1.0, -2.0, -2.5]


def test_a_lagging_gradient_is_dropped_and_counted_and_values_still_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    optimizer = OptimizerSpec("momentum", learning_rate=1.0, is_async=True)
    model = Model({"w": (1,)})
    job = InProcessJob(2, num_dense=1, log_period=5)
    one = {"w": np.ones(1, np.float32)}
    with caplog.at_level(logging.INFO, "paddle"), job.client(0) as fast, job.client(1) as slow:
        fast.configure(model.parameters, optimizer, {"w": np.zeros(1, np.float32)})
        slow.configure(model.parameters, optimizer, {})
        _start_both(fast, slow)
        out = model.empty()
        slow.push_pull(one, 1, out)
        for _ in range(3):
            fast.push_pull(one, 1, out)
        assert out["w"][0] == -4.0
        slow.push_pull(one, 1, out)
        assert out["w"][0] == -4.0
    assert "asyncLaggedhreshold: 3" in caplog.text
    assert "discarded 1 of 5 gradients" in caplog.text
    assert "discarded by trainer 1:1" in caplog.text


def test_a_discard_ratio_that_is_too_small_is_replaced_and_told(caplog: pytest.LogCaptureFixture) -> None:
    optimizer = OptimizerSpec("momentum", is_async=True, discard_ratio=0.5)
    with InProcessJob(4, num_dense=1).client(0) as client, caplog.at_level(logging.WARNING, "paddle"):
        client.configure(MODEL.parameters[:1], optimizer, MODEL.values())
    assert "async_lagged_grad_discard_ratio 0.5 is too small; using 1.5" in caplog.text


def test_asynchronous_trainers_do_not_wait_for_each_other_inside_a_pass() -> None:
    optimizer = OptimizerSpec("adagrad", is_async=True, discard_ratio=100.0)

    def work(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        client.configure(MODEL.parameters, optimizer, MODEL.values() if trainer == 0 else {})
        client.start_pass()
        for step in range(3 * (trainer + 1)):
            gradients: dict[str, Any] = {**MODEL.gradients(trainer, step), "emb": row_gradient(trainer, step)}
            client.push_pull(gradients, 1, {})
        client.finish_pass()
        out = MODEL.empty()
        client.pull(out)
        return out

    found = InProcessJob(3, 2, 1).run(work)
    for out in found:
        assert all(np.array_equal(out[name], found[0][name]) for name in out)


def _start_both(first: TrainerSession, second: TrainerSession) -> None:
    thread = threading.Thread(target=first.start_pass, daemon=True)
    thread.start()
    second.start_pass()
    thread.join(10)
    assert not thread.is_alive()
