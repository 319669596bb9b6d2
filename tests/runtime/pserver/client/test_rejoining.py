# SPDX-License-Identifier: Apache-2.0
"""A trainer that dies and is started again, wherever it was: nobody waits for ever, and passes stay the same many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from paddle.errors import PserverLost
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Ok, Pull, Verb
from tests.runtime.pserver.in_process_job import SGD, InProcessJob, Model
from tests.runtime.pserver.inproc import InprocLinks

PULLS = {server: Message(Pull(length=1)) for server in range(2)}
MODEL = Model({"w": (300, 400), "b": (64,)})
PASSES = 3
BATCHES = 4


class Died(PserverLost):
    """The test ends a client here, as a kill would: without a word to the servers."""


class DyingNetwork:
    """Passes messages on until the first of a verb that is one too many; then it is gone."""

    def __init__(self, links: InprocLinks, verb: Verb, count: int) -> None:
        self._links, self._verb, self._count = links, verb, count
        self.endpoints = links.endpoints

    def send(self, index: int, message: Message) -> None:
        self._count -= message.verb is self._verb
        if self._count < 0:
            self._links.close()
            raise Died("dead")
        self._links.send(index, message)

    def receive(self, timeout_s: float) -> Incoming | None:
        return self._links.receive(timeout_s)

    def expect(self, index: int, request: Request | None) -> None:
        self._links.expect(index, request)

    def attach(self, index: int, hello: Message, size: int | None) -> None:
        return None

    def is_attached(self, index: int) -> bool:
        return False

    def hint(self, index: int) -> str:
        return self._links.hint(index)

    def close(self) -> None:
        self._links.close()


def train(client: TrainerSession, trainer: int, passes_over: int = 0) -> tuple[int, dict[str, np.ndarray]]:
    values = MODEL.empty()
    for number in range(passes_over, PASSES):
        for batch in range(client.start_pass(repeats=True).in_pass, BATCHES):
            client.push_pull(MODEL.gradients(trainer, number, batch), 8, values)
        client.finish_pass()
    client.pull(values)
    return PASSES - passes_over, values


# the n-th message of a verb is the first that is not sent; there are two servers
DEATHS = [
    (Verb.START_PASS, 0),
    (Verb.START_PASS, 1),
    (Verb.START_PASS, 3),
    (Verb.PUSH_PULL, 1),
    (Verb.PUSH_PULL, 2),
    (Verb.PUSH_PULL, 2 * BATCHES + 1),
    (Verb.FINISH_PASS, 0),
    (Verb.FINISH_PASS, 1),  # one server knows that the pass is over, the other does not
    (Verb.FINISH_PASS, 5),  # the same at the very end
]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(("verb", "count"), DEATHS)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_trainer_that_is_started_again_pushes_the_rest_of_its_batches(
    victim: int, verb: Verb, count: int, is_async: bool
) -> None:
    job = InProcessJob(2, num_dense=2)
    spec = replace(SGD, is_async=is_async)

    def configured(client: TrainerSession, trainer: int) -> TrainerSession:
        client.configure(MODEL.parameters, spec, MODEL.values() if trainer == 0 else {})
        return client

    def survive() -> tuple[int, dict[str, np.ndarray]]:
        with job.client(1 - victim) as client:
            return train(configured(client, 1 - victim), 1 - victim)

    def die_and_come_back() -> tuple[int, dict[str, np.ndarray]]:
        network = DyingNetwork(job.servers.connect(job.endpoints), verb, count)
        with (
            TrainerSession(network, 0, trainer_id=victim, num_trainers=2, timeout_s=30) as client,
            pytest.raises(Died),
        ):
            train(configured(client, victim), victim)
        with job.client(victim) as again:
            return train(configured(again, victim), victim, again.rejoin())

    with ThreadPoolExecutor(2) as threads:
        survivor, victims = threads.submit(survive), threads.submit(die_and_come_back)
        passes, values = survivor.result(20)
        assert passes == PASSES
        assert victims.result(20)[0] <= PASSES
    if not is_async:  # also if one server has a push that the other does not have
        whole = InProcessJob(2, num_dense=2).run(lambda client, t: train(configured(client, t), t))
        assert all(np.array_equal(values[name], whole[0][1][name]) for name in values)


@pytest.mark.parametrize(("repeats", "ends"), [(True, [1, 1]), (False, [2, 1])])
def test_only_a_repeated_batch_leaves_servers_out(repeats: bool, ends: list[int]) -> None:
    job = InProcessJob(1, num_dense=2)

    def counts(client: TrainerSession) -> list[int]:
        return [reply.expect(Ok).version for _, reply in sorted(client._exchange.run(PULLS).items())]

    network = DyingNetwork(job.servers.connect(job.endpoints), Verb.PUSH_PULL, 1)
    with TrainerSession(network, 0, trainer_id=0, num_trainers=1, timeout_s=30) as client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        with pytest.raises(Died):
            train(client, 0)
    with job.client(0) as again:
        again.configure(MODEL.parameters, SGD, MODEL.values())
        again.rejoin()
        again.start_pass(repeats=repeats)
        assert counts(again) == [1, 0]
        again.push_pull(MODEL.gradients(0, 0, 0), 8, MODEL.empty())
        assert counts(again) == ends
