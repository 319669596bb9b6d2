# SPDX-License-Identifier: Apache-2.0
"""Slabs of several chunks, over sockets and through shared memory: the numbers of one process, bit for bit."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import zmq

from paddle.errors import ConfigError
from paddle.optim.dense import DenseUpdater
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.wire.message import PART
from tests.cluster.proxy import Faults, Proxy
from tests.cluster.zmtp import ZmtpMessages
from tests.runtime.pserver.in_process_job import LARGE, SGD, InProcessJob, Model
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)


STEPS = 3


ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1)


RULES = {"plain": SGD, "with state": ADAGRAD}


def expected(optimizer: OptimizerSpec, num_trainers: int) -> dict[str, np.ndarray]:
    values = {name: array.reshape(-1).copy() for name, array in LARGE.values().items()}
    updaters = {p.name: DenseUpdater(optimizer, p, p.size) for p in LARGE.parameters}
    for step in range(STEPS):
        gradients = [LARGE.gradients(trainer, step) for trainer in range(num_trainers)]
        for name, updater in updaters.items():
            total = gradients[0][name].reshape(-1).copy()
            for other in gradients[1:]:
                total += other[name].reshape(-1)
            updater.update(values[name], total, optimizer.learning_rate)
    return values


def train(optimizer: OptimizerSpec, client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
    client.configure(LARGE.parameters, optimizer, LARGE.values())
    client.start_pass()
    return push_all(client, trainer)


def push_all(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
    out = LARGE.empty()
    for step in range(STEPS):
        client.push_pull(LARGE.gradients(trainer, step), 1, out)
    client.finish_pass()
    return out


def same(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(got[name].reshape(-1), wanted[name]) for name in wanted)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("num_dense", [1, 2])
@pytest.mark.parametrize("num_trainers", [1, 3])
def test_chunks_give_the_numbers_of_one_process(rule: str, num_dense: int, num_trainers: int) -> None:
    job = InProcessJob(num_trainers, num_dense=num_dense)
    wanted = expected(RULES[rule], num_trainers)
    for got in job.run(lambda client, trainer: train(RULES[rule], client, trainer)):
        assert same(got, wanted)


def test_asynchronous_training_takes_chunks_too() -> None:
    optimizer = OptimizerSpec("momentum", learning_rate=0.1, is_async=True)
    (got,) = InProcessJob(1, num_dense=1).run(lambda client, trainer: train(optimizer, client, trainer))
    assert same(got, expected(SGD, 1))


def connected(
    server: PserverProcess, trainer: int, count: int, key: str | None, **more: Any
) -> TrainerSession:
    return TrainerSession.connect(
        more.pop("endpoints", server.endpoints),
        [],
        trainer_id=trainer,
        num_trainers=count,
        job_key=key,
        wire="curve" if key else "plain",
        timeout_s=30.0,
        **more,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("within_node", [True, False])
@pytest.mark.parametrize("key", [KEY, None])
def test_processes_of_one_node_get_the_same_numbers_either_way(
    rule: str, within_node: bool, key: str | None
) -> None:
    results: dict[int, dict[str, np.ndarray]] = {}
    with PserverProcess("--port=0", "--num_gradient_servers=2", key=key) as server:

        def work(trainer: int) -> None:
            # one of them is always on the wire: both ways meet in one batch
            with connected(server, trainer, 2, key, within_node=within_node and trainer == 0) as client:
                results[trainer] = train(RULES[rule], client, trainer)

        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(results) == [0, 1]
    assert all(same(got, expected(RULES[rule], 2)) for got in results.values())


def test_shared_arrays_are_pushed_and_seen_without_a_copy() -> None:
    with PserverProcess("--port=0") as server, connected(server, 0, 1, KEY) as client:
        client.configure(LARGE.parameters, SGD, LARGE.values())
        client.start_pass()
        gradients = {p.name: client.gradient_array(p.name) for p in LARGE.parameters}
        for step in range(STEPS):
            for name, gradient in LARGE.gradients(0, step).items():
                gradients[name][...] = gradient.reshape(-1)
            client.push_pull(gradients, 1, {})
        for name, wanted in expected(SGD, 1).items():
            seen = client.value_array(name)
            assert seen is not None
            assert np.array_equal(seen, wanted)
            assert not seen.flags.writeable


@pytest.mark.parametrize(
    "faults", [Faults(flip=0.1), Faults(repeat=0.3), Faults(drop_after=13)], ids=["flip", "repeat", "drop"]
)
def test_chunks_that_are_spoilt_on_the_way_change_no_number(faults: Faults) -> None:
    with PserverProcess("--port=0", key=None) as server:
        host, _, port = server.endpoints[0].partition(":")
        with Proxy((host, int(port)), faults, seed=5, splitter=ZmtpMessages) as proxy:
            endpoint = "{}:{}".format(*proxy.address)
            with connected(server, 0, 1, None, endpoints=[endpoint]) as client:
                got = train(SGD, client, 0)
        assert sum(proxy.done.values()) > proxy.done["unit"]
    assert same(got, expected(SGD, 1))


@pytest.mark.parametrize("within_node", [True, False])
def test_a_gradient_that_is_not_finite_at_its_end_leaves_everything_as_it_was(within_node: bool) -> None:
    with (
        PserverProcess("--port=0") as server,
        connected(server, 0, 1, KEY, within_node=within_node) as client,
    ):
        client.configure(LARGE.parameters, SGD, LARGE.values())
        client.start_pass()
        bad = LARGE.gradients(0, 0)
        bad["a"][-1] = np.nan
        with pytest.raises(ConfigError, match="gradient of parameter a contains NaN"):
            client.push_pull(bad, 1, {})
        out = LARGE.empty()
        client.pull(out)
        assert same(out, {name: array.reshape(-1) for name, array in LARGE.values().items()})
        assert same(push_all(client, 0), expected(SGD, 1))


def test_a_shard_larger_than_a_part_is_set_and_pulled_whole() -> None:
    model = Model({"a": (PART + 5,), "b": (3,)})
    values = {name: np.zeros(shape, np.float32) for name, shape in {"a": (PART + 5,), "b": (3,)}.items()}
    values["a"][PART - 2 :] = np.arange(7)
    values["b"][:] = 9.0

    def set_and_pull(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        client.configure(model.parameters, SGD, values)
        out = {name: np.full_like(array, -1.0) for name, array in values.items()}
        client.pull(out)
        return out

    (got,) = InProcessJob(1, num_dense=1).run(set_and_pull)
    assert all(np.array_equal(got[name], values[name]) for name in values)
