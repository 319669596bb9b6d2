# SPDX-License-Identifier: Apache-2.0
"""Pushes that want no values back: servers send none, and the numbers are those of any other push."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from paddle.optim.spec import OptimizerSpec
from paddle.pserver import Client as NeutralClient
from paddle.pserver.client.links import Links
from paddle.pserver.client.request import Incoming
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import CHUNK
from paddle.pserver.wire.verbs import Verb
from tests.runtime.pserver.in_process_job import SGD, InProcessJob, Model
from tests.runtime.pserver.killed_pserver import Killer, client_of, flags
from tests.runtime.pserver.neutral_job import server
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

STEPS = 4
SMALL = Model({"w": (30, 7), "b": (5,)})
LARGE = Model({"a": (2 * CHUNK + 7,), "b": (31,)})
MODELS = {"whole": SMALL, "in chunks": LARGE}
RULES = {"plain": SGD, "with state": OptimizerSpec("adagrad", learning_rate=0.1)}


class Counting:
    """A network that counts what comes of values; it loses the messages of which `losing` has the numbers."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.endpoints = inner.endpoints
        self.losing: set[int] = set()
        self.came = self.nbytes = self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def receive(self, timeout_s: float) -> Incoming | None:
        incoming: Incoming | None = self.inner.receive(timeout_s)
        if incoming is None or incoming.message is None:
            return incoming
        self.came += 1
        if incoming.message.verb in (Verb.OK, Verb.VALUES):
            self.nbytes += sum(section.array.nbytes for section in incoming.message.sections)
        if self.came in self.losing:
            self.lost += 1
            self.inner.reconnect(incoming.server)
            return self.receive(timeout_s)  # what came before the connection broke, or that it did
        return incoming


def run(
    job: InProcessJob, model: Model, rule: OptimizerSpec, quiet: set[int], losing: Collection[int] = ()
) -> list[tuple[int, int, dict[str, np.ndarray]]]:
    """Return (bytes of values, messages lost, values after all steps) for each trainer."""
    found: dict[int, tuple[int, int, dict[str, np.ndarray]]] = {}

    def work(trainer: int) -> None:
        network = Counting(job.servers.connect(job.endpoints))
        with TrainerSession(
            network, job.num_sparse, trainer_id=trainer, num_trainers=job.num_trainers, timeout_s=30.0
        ) as client:
            client.configure(model.parameters, rule, model.values())
            client.start_pass()
            network.nbytes = network.came = 0
            network.losing = set(losing)
            for step in range(STEPS):
                if trainer in quiet:
                    client.push(model.gradients(trainer, step), 1)
                else:
                    client.push_pull(model.gradients(trainer, step), 1, model.empty())
            nbytes, network.losing = network.nbytes, set()
            client.finish_pass()
            client.pull(out := model.empty())
            found[trainer] = nbytes, network.lost, out

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(job.num_trainers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == list(range(job.num_trainers))
    return [found[trainer] for trainer in sorted(found)]


def all_bytes(model: Model) -> int:
    return STEPS * sum(value.nbytes for value in model.values().values())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("losing", [set(), {1, 4, 6, 7}], ids=["whole", "spoilt"])
def test_a_trainer_gets_values_or_none_as_it_likes_in_one_batch_with_others(
    which: str, rule: str, losing: set[int]
) -> None:
    model = MODELS[which]
    loud = run(InProcessJob(2), model, RULES[rule], quiet=set())
    mixed = run(InProcessJob(2), model, RULES[rule], quiet={0}, losing=losing)
    assert mixed[0][0] == 0
    assert (mixed[1][0] >= all_bytes(model)) if losing else (mixed[1][0] == all_bytes(model) == loud[0][0])
    assert not losing or mixed[0][1] > 0 < mixed[1][1]
    for _, _, values in mixed:
        assert all(np.array_equal(values[name], loud[0][2][name]) for name in values)


@pytest.mark.parametrize("which", MODELS)
def test_asynchronous_pushes_bring_none_whether_they_are_taken_or_dropped(which: str) -> None:
    asynchronous = OptimizerSpec("momentum", learning_rate=0.1, is_async=True)
    for nbytes, _, _ in run(InProcessJob(2), MODELS[which], asynchronous, quiet={0, 1}):
        assert nbytes == 0


@pytest.mark.parametrize("within_node", [True, False])
@pytest.mark.parametrize("key", [KEY, None])
def test_on_the_wire_and_in_shared_memory_no_values_come_and_the_numbers_are_the_same(
    within_node: bool, key: str | None
) -> None:
    ((_, _, wanted),) = run(InProcessJob(1, num_dense=1), LARGE, SGD, quiet=set())
    with PserverProcess("--port=0", key=key) as process:
        keys = WireKeys.of(KEY) if key else None
        network = Counting(Links(process.endpoints, keys, within_node=within_node))
        with TrainerSession(network, 0, trainer_id=0, num_trainers=1) as client:
            client.configure(LARGE.parameters, SGD, LARGE.values())
            client.start_pass()
            network.nbytes = 0
            for step in range(STEPS):
                client.push(LARGE.gradients(0, step), 1)
            assert network.nbytes == 0
            seen = client.value_array("a")
            assert (seen is not None) == within_node
            assert seen is None or np.array_equal(seen, wanted["a"])
            client.pull(out := LARGE.empty())
    assert all(np.array_equal(out[name], wanted[name]) for name in wanted)


def test_the_client_of_any_framework_pushes_so() -> None:
    w = np.zeros(1000, np.float32)
    with (
        server(1) as process,
        NeutralClient(process.endpoints, trainer_id=0, num_trainers=1, job_key=KEY) as client,
    ):
        client.create({"w": w}, SGD)
        client.push({"w": np.full(1000, -10.0, np.float32)})
        client.pull({"w": w})
    np.testing.assert_allclose(w, 1.0)


def test_pushes_count_once_when_the_server_is_killed_between_and_within_them(tmp_path: Path) -> None:
    steps = 40

    def train(process: PserverProcess, quiet: set[int], done: Callable[[], None]) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}

        def work(trainer: int) -> None:
            with client_of(process, trainer, 2) as client:
                client.configure(LARGE.parameters, RULES["with state"], LARGE.values())
                client.start_pass()
                out = LARGE.empty()
                for step in range(steps):
                    if trainer in quiet:
                        client.push(LARGE.gradients(trainer, step), 1)
                    else:
                        client.push_pull(LARGE.gradients(trainer, step), 1, out)
                    done()
                client.finish_pass()
                client.pull(out)
                found[trainer] = out

        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return [found[trainer] for trainer in range(2)]

    with PserverProcess("--port=0", "--num_gradient_servers=2") as process:
        wanted, _ = train(process, set(), lambda: None)
    with PserverProcess(*flags(tmp_path, 2)) as process, Killer(process, 5, 2, 2 * steps) as killer:
        for got in train(process, {1}, killer.step):
            assert all(np.array_equal(got[name], wanted[name]) for name in wanted)
