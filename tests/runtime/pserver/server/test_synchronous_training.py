# SPDX-License-Identifier: Apache-2.0
"""Synchronous training without sockets: N trainers do what one process does on their batches together."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from paddle.optim.dense import DenseUpdater
from paddle.optim.learning_rate import LearningRate
from paddle.optim.rules.table import RULES
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from tests.runtime.pserver.in_process_job import SGD, InProcessJob
from tests.runtime.pserver.synchronous_trainers import MODEL, STEPS, train


def train_alone(optimizer: OptimizerSpec, num_trainers: int) -> dict[str, np.ndarray]:
    values = {name: value.reshape(-1) for name, value in MODEL.values().items()}
    updaters = {p.name: DenseUpdater(optimizer, p, p.size) for p in MODEL.parameters}
    rate, samples = LearningRate(optimizer), 0
    for step in range(STEPS):
        samples += sum(10 + trainer for trainer in range(num_trainers))
        for name, value in values.items():
            total = sum(MODEL.gradients(t, step)[name].astype(np.float64) for t in range(num_trainers))
            grad = np.asarray(total, np.float32).reshape(-1)
            updaters[name].update(value, grad, rate.at(samples, 0))
    return values


@pytest.mark.parametrize("num_trainers", [1, 2, 3])
@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if not rule.row_keeps])
def test_trainers_together_equal_one_process_on_the_joined_batches(rule: str, num_trainers: int) -> None:
    optimizer = OptimizerSpec(rule, learning_rate=0.01, schedule="poly", decay_a=0.01, decay_b=0.5)
    found = InProcessJob(num_trainers, num_dense=3).run(lambda c, t: train(c, t, optimizer))
    expected = train_alone(optimizer, num_trainers)
    for out in found:
        for name, value in expected.items():
            np.testing.assert_allclose(out[name].reshape(-1), value, rtol=1e-4, atol=1e-5)


def test_two_runs_agree_bit_by_bit_whatever_the_order_of_arrival() -> None:
    rng = random.Random(1)

    def with_pauses(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        out = MODEL.empty()
        client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else {})
        client.start_pass()
        for step in range(STEPS):
            threading.Event().wait(rng.random() / 500)
            client.push_pull(MODEL.gradients(trainer, step), 1, out)
        return out

    runs = [InProcessJob(4, num_dense=2).run(with_pauses) for _ in range(3)]
    for run in runs:
        for out in run:
            assert all(np.array_equal(out[name], runs[0][0][name]) for name in out)


def test_a_trainer_with_fewer_batches_does_not_stop_the_others() -> None:
    steps, followed = {0: 3, 1: 8, 2: 5}, {}

    def follow(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        out = MODEL.empty()
        client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else {})
        client.start_pass()
        for step in range(steps[trainer]):
            client.push_pull(MODEL.gradients(trainer, step), 1, out)
        followed[trainer] = 0
        while client.follow():
            followed[trainer] += 1
            client.pull(out)
        client.finish_pass()
        return out

    found = InProcessJob(3, num_dense=2).run(follow)
    assert followed == {0: 5, 1: 0, 2: 3}
    found += InProcessJob(3).run(lambda c, t: train(c, t, SGD, steps[t]))
    values = {name: value.astype(np.float64) for name, value in MODEL.values().items()}
    for step in range(8):
        for name in values:
            grad = sum(MODEL.gradients(t, step)[name].astype(np.float64) for t in range(3) if step < steps[t])
            values[name] -= 0.1 * (np.clip(grad, -2, 2) + 1e-3 * values[name])
    for out in found:
        for name, value in values.items():
            np.testing.assert_allclose(out[name], value, rtol=1e-4, atol=1e-5)


def test_a_trainer_that_leaves_early_does_not_stop_the_others() -> None:
    def work(client: TrainerSession, trainer: int) -> int:
        out = MODEL.empty()
        client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else {})
        for _ in range(2):
            client.start_pass()
            for step in range(2 if trainer == 1 else 6):
                client.push_pull(MODEL.gradients(trainer, step), 1, out)
            if trainer == 1:
                return 1  # leaves in the middle of the first pass
            client.finish_pass()
        return 2

    assert InProcessJob(3).run(work) == [2, 1, 2]


def test_a_trainer_that_runs_more_passes_than_the_others_finishes_alone() -> None:
    def work(client: TrainerSession, trainer: int) -> int:
        client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else {})
        passes = 3 if trainer == 0 else 1
        for _ in range(passes):
            client.start_pass()
            client.push_pull(MODEL.gradients(trainer, 0), 1, MODEL.empty())
            client.finish_pass()
        return passes

    assert InProcessJob(2).run(work) == [3, 1]


def test_everybody_starts_from_trainer_0s_values() -> None:
    def work(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        out = MODEL.values(seed=100 + trainer)
        client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else out)
        client.pull(out)
        return out

    for out in InProcessJob(3).run(work):
        assert all(np.array_equal(out[name], value) for name, value in MODEL.values().items())


def test_a_request_sent_twice_is_carried_out_once() -> None:
    job = InProcessJob(1, num_dense=2)
    twice = InProcessJob(1, num_dense=2)

    def work(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        return train(client, trainer, SGD)

    links = twice.servers.connect(twice.endpoints)
    client = TrainerSession(links, 0, trainer_id=0, num_trainers=1)
    out = MODEL.empty()
    with client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        client.start_pass()
        for step in range(STEPS):
            # A healed connection makes the client send its request again.
            links.reconnect(step % 2)
            client.push_pull(MODEL.gradients(0, step), 10, out)
        client.finish_pass()
        client.pull(out)
    expected = job.run(work)[0]
    assert all(np.array_equal(out[name], expected[name]) for name in out)


def test_parameters_without_a_gradient_only_decay() -> None:
    def work(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        out = MODEL.empty()
        client.configure(MODEL.parameters, SGD, MODEL.values())
        client.start_pass()
        client.push_pull({"_fc1.w0": MODEL.gradients(0)["_fc1.w0"]}, 1, out)
        return out

    out = InProcessJob(1).run(work)[0]
    np.testing.assert_allclose(out["_fc0.w0"], MODEL.values()["_fc0.w0"] * (1 - 0.1 * 1e-3), rtol=1e-6)


def test_a_new_process_of_trainer_0_finds_the_values_kept() -> None:
    job = InProcessJob(1)
    trained = job.run(lambda c, t: train(c, t, SGD))[0]

    def again(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        out = MODEL.empty()
        client.configure(MODEL.parameters, SGD, MODEL.values(seed=9))
        client.pull(out)
        client.start_pass()
        client.push_pull(MODEL.gradients(0, 0), 1, MODEL.empty())
        return out

    out = job.run(again)[0]
    assert all(np.array_equal(out[name], trained[name]) for name in out)


def test_a_trainer_that_was_lost_may_come_back_as_a_new_process() -> None:
    job = InProcessJob(2)
    links = job.servers.connect(job.endpoints)
    dying = TrainerSession(links, 0, trainer_id=1, num_trainers=2)
    links.close()  # the process is gone without a word
    results = job.run(lambda c, t: train(c, t, SGD))
    assert np.array_equal(results[0]["_fc0.w0"], results[1]["_fc0.w0"])
    dying.close()
