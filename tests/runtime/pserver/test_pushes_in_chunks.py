# SPDX-License-Identifier: Apache-2.0
"""Slabs of several chunks, over sockets and through shared memory: the numbers of one process, bit for bit."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
import zmq

from paddle.errors import ConfigError, WireError
from paddle.optim.dense import DenseUpdater
from paddle.optim.spec import OptimizerSpec
from paddle.pserver import arithmetic
from paddle.pserver.chunks import CHUNK, PART, WINDOW
from paddle.pserver.client import Client
from paddle.pserver.configuration import Configuration
from paddle.pserver.engine import Engine
from paddle.pserver.keys import WireKeys
from paddle.pserver.local_link import LocalLink
from paddle.pserver.message import Message, Section, Verb
from paddle.pserver.options import EngineOptions
from paddle.pserver.session import TAKES_OVER
from paddle.pserver.shared_memory import SharedArray, mapped
from tests.cluster.proxy import Faults, Proxy
from tests.cluster.zmtp import ZmtpMessages
from tests.runtime.pserver.in_process_job import SGD, InProcessJob, Model
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

STEPS = 3
LARGE = Model({"a": (2 * CHUNK + 7,), "b": (31,), "c": (CHUNK,), "d": (5, 3)})
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


def train(optimizer: OptimizerSpec, client: Client, trainer: int) -> dict[str, np.ndarray]:
    client.configure(LARGE.parameters, optimizer, LARGE.values())
    client.start_pass()
    return push_all(client, trainer)


def push_all(client: Client, trainer: int) -> dict[str, np.ndarray]:
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


def connected(server: PserverProcess, trainer: int, count: int, key: str | None, **more: Any) -> Client:
    return Client.connect(
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
        with pytest.raises(ConfigError, match="gradient of parameter a is NaN"):
            client.push_pull(bad, 1, {})
        out = LARGE.empty()
        client.pull(out)
        assert same(out, {name: array.reshape(-1) for name, array in LARGE.values().items()})
        assert same(push_all(client, 0), expected(SGD, 1))


class Bench:
    """One engine and two trainers' raw messages."""

    def __init__(self) -> None:
        self.engine = Engine(EngineOptions(2), stamp=7)
        self.size = LARGE.values()["a"].size + 31 + CHUNK + 15
        self.count = -(-self.size // CHUNK)
        text = Configuration(tuple(LARGE.parameters), SGD, 1, 0, 0).to_text()
        for trainer in (0, 1):
            self.send(trainer, Verb.HELLO, 1, value=2)
            self.send(trainer, Verb.CONFIGURE, 2, Section.text("", text))
        self.send(0, Verb.SET_VALUES, 3, Section("", np.ones(self.size, np.float32)))
        self.send(0, Verb.READY, 4)
        for trainer in (0, 1):
            self.send(trainer, Verb.START_PASS, 5)

    def send(
        self, trainer: int, verb: Verb, request: int, *sections: Section, **numbers: int
    ) -> list[Message]:
        message = Message(verb, trainer, trainer + 1, request, 7, sections=sections, **numbers)
        return [reply.message for reply in self.engine.handle(b"%d" % trainer, message)]

    def head(self, trainer: int, request: int = 6) -> list[Message]:
        return self.send(trainer, Verb.PUSH_PULL, request, value=1, extra=self.count)

    def chunk(self, trainer: int, index: int, value: float, request: int = 6) -> list[Message]:
        size = min(CHUNK, self.size - index * CHUNK)
        array = np.full(size, value, np.float32)
        return self.send(trainer, Verb.CHUNK, request, Section("", array), value=index)

    def asks(self, trainer: int) -> Verb:
        (reply,) = self.send(trainer, Verb.STATUS, 6)
        return reply.verb

    def values(self) -> np.ndarray:
        found: np.ndarray = self.send(1, Verb.PULL, 99)[0].section("").array
        return found


def test_a_chunk_is_answered_as_soon_as_every_trainers_is_there() -> None:
    bench = Bench()
    assert bench.head(0) == bench.head(1) == bench.chunk(0, 1, 1.0) == []
    replies = bench.chunk(1, 1, 2.0)
    assert [(m.verb, m.value, m.trainer) for m in replies] == [(Verb.VALUES, 1, 0), (Verb.VALUES, 1, 1)]
    assert np.allclose(replies[0].section("").array, 0.7)


def test_a_push_refused_in_its_middle_takes_the_batch_back() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(1, 0, 1.0)
    replies = bench.chunk(1, 1, np.nan)
    assert {(m.verb, m.trainer) for m in replies} == {(Verb.REPEAT, 0), (Verb.ERROR, 1)}
    assert bench.head(1, 7) == []
    for index in range(bench.count):
        bench.chunk(0, index, 1.0)
        last = bench.chunk(1, index, 3.0, 7)
    assert sorted(m.verb for m in last) == [Verb.OK, Verb.OK, Verb.VALUES, Verb.VALUES]
    assert np.allclose(bench.values(), 0.6)


def test_a_push_that_is_given_up_for_another_request_takes_the_batch_back() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(1, 0, 9.0)
    assert [(m.verb, m.trainer) for m in bench.head(1, 7)] == [(Verb.REPEAT, 0)]
    assert bench.chunk(1, 1, 9.0) == []  # of the push that is over
    for index in range(bench.count):
        bench.chunk(0, index, 1.0)
        last = bench.chunk(1, index, 3.0, 7)
    assert sorted(m.verb for m in last) == [Verb.OK, Verb.OK, Verb.VALUES, Verb.VALUES]
    assert np.allclose(bench.values(), 0.6)


def test_a_trainer_that_dies_in_the_middle_of_a_push_leaves_no_half_of_it() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(1, 0, 9.0)
    replies = [reply.message for reply in bench.engine.handle(b"2", Message(Verb.LEAVE, 1, 2, 7, 7))]
    assert Verb.REPEAT in [m.verb for m in replies if m.trainer == 0]
    for index in range(bench.count):
        last = bench.chunk(0, index, 1.0)
    assert last[-1].verb is Verb.OK
    found = bench.send(0, Verb.PULL, 99)[0].section("").array
    assert np.allclose(found, 0.9)


@pytest.mark.parametrize("sent_again", [[], [1]])
def test_a_trainer_that_did_not_hear_that_it_must_repeat_hears_it_when_it_asks(sent_again: list[int]) -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(0, 1, 1.0), bench.chunk(1, 0, 9.0)
    bench.engine.handle(
        b"3", Message(Verb.HELLO, 1, 3, 0, 0, 2, TAKES_OVER)
    )  # whatever it tells others is lost
    for index in sent_again:
        bench.chunk(0, index, 1.0)
    assert bench.asks(0) == Verb.REPEAT
    for index in range(bench.count):
        bench.chunk(0, index, 1.0)
    assert bench.asks(0) == Verb.WAITING  # for the other one, and told so once


def test_a_chunk_sent_twice_counts_once_and_is_answered_again() -> None:
    bench = Bench()
    bench.head(0), bench.head(1)
    bench.chunk(0, 0, 1.0), bench.chunk(0, 0, 1.0)
    first = bench.chunk(1, 0, 1.0)[0].section("").array.copy()
    (again,) = bench.chunk(0, 0, 5.0)
    assert (again.verb, again.value, again.trainer) == (Verb.VALUES, 0, 0)
    assert np.array_equal(again.section("").array, first)


@pytest.mark.parametrize("index", [2**40, 5])
def test_a_chunk_that_is_none_refuses_the_push(index: int) -> None:
    bench = Bench()
    bench.head(0)
    (reply,) = bench.send(0, Verb.CHUNK, 6, Section("", np.zeros(1, np.float32)), value=index)
    assert reply.verb is Verb.ERROR
    assert f"chunk {index} of {bench.count}" in reply.section("").as_text()


def test_the_window_bounds_what_a_server_keeps_for_a_trainer_that_is_early() -> None:
    assert WINDOW * CHUNK * 4 <= 16 << 20


@pytest.mark.parametrize("count", [1, 2, 5])
def test_compiled_and_plain_descent_agree_bit_for_bit(count: int) -> None:
    rng = np.random.default_rng(3)
    size = CHUNK + 3
    w, *gradients = (rng.standard_normal(size).astype(np.float32) for _ in range(count + 1))
    compiled, plain, scratch = np.empty_like(w), np.empty_like(w), np.empty_like(w)
    checksum = arithmetic.descend(w, gradients, 0.0371, compiled, scratch).checksum
    arithmetic.descend_plainly(w, gradients, 0.0371, plain, scratch)
    assert np.array_equal(compiled.view(np.uint32), plain.view(np.uint32))
    assert checksum in (None, arithmetic.checksum_of(compiled.data.cast("B")))


@pytest.mark.parametrize("strange", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1, -1])
def test_compiled_and_plain_look_agree(strange: float | None, at: int) -> None:
    array = np.random.default_rng(4).standard_normal(CHUNK + 1).astype(np.float32)
    array[5] = np.finfo(np.float32).max
    if strange is not None:
        array[at] = strange
    frame = array.data.cast("B")
    assert arithmetic.inspect(frame) == arithmetic.inspect_plainly(frame)
    assert arithmetic.inspect(frame).is_finite is (strange is None)
    assert arithmetic.is_small_finite(array) is arithmetic.is_finite(frame) is (strange is None)


def test_a_server_refuses_wrong_shapes_of_chunks() -> None:
    bench = Bench()
    bench.head(0)
    (reply,) = bench.send(0, Verb.CHUNK, 6, Section("", np.zeros(9, np.float32)), value=0)
    assert reply.verb is Verb.ERROR
    assert f"expected ({CHUNK},) float32" in reply.section("").as_text()


def test_only_the_holder_of_the_key_finds_the_shared_memory() -> None:
    with PserverProcess("--port=0") as server, pytest.raises(ConnectionRefusedError):
        LocalLink(server.endpoints[0], WireKeys.of("6b" * 32), Message(Verb.ATTACH), 10)


def test_without_a_session_no_memory_is_shared() -> None:
    with PserverProcess("--port=0") as server, pytest.raises(WireError):
        LocalLink(server.endpoints[0], WireKeys.of(KEY), Message(Verb.ATTACH), 10)


def test_memory_that_its_owner_can_shrink_is_not_mapped() -> None:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 40)
    with pytest.raises(WireError, match="still resize"):
        mapped(descriptor, 10)
    os.close(descriptor)
    shared = SharedArray(10)
    with pytest.raises(WireError, match="expected 44 bytes, got 40"):
        mapped(shared.descriptor, 11)
    shared.array[3] = 1.0
    assert mapped(shared.descriptor, 10)[3] == 1.0


def test_a_shard_larger_than_a_part_is_set_and_pulled_whole() -> None:
    model = Model({"a": (PART + 5,), "b": (3,)})
    values = {name: np.zeros(shape, np.float32) for name, shape in {"a": (PART + 5,), "b": (3,)}.items()}
    values["a"][PART - 2 :] = np.arange(7)
    values["b"][:] = 9.0

    def set_and_pull(client: Client, trainer: int) -> dict[str, np.ndarray]:
        client.configure(model.parameters, SGD, values)
        out = {name: np.full_like(array, -1.0) for name, array in values.items()}
        client.pull(out)
        return out

    (got,) = InProcessJob(1, num_dense=1).run(set_and_pull)
    assert all(np.array_equal(got[name], values[name]) for name in values)
