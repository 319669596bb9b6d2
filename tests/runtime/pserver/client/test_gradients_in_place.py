# SPDX-License-Identifier: Apache-2.0
"""Large gradients in shared memory: looked through where they are added up, on several cores, and refused in time."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import zmq

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.client.layout import Layout
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.client.within_node import WithinNode
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.store.dense_step import DenseThreads
from paddle.pserver.store.gradient import StrangeGradient
from paddle.pserver.store.store import Store
from paddle.pserver.wire import arithmetic
from paddle.pserver.wire.chunks import chunk_count, chunk_span
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.placement import place
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import (
    Chunk,
    Configure,
    Hello,
    Leave,
    Pull,
    PushPull,
    Ready,
    Record,
    SetValues,
    StartPass,
    Verb,
)
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

SIZES = {"a": 1_200_003, "b": 31, "c": 70_000}
SIZE = sum(SIZES.values())
PARAMETERS = [ParameterSpec(name, (size,), learning_rate=1.0 + (name == "b")) for name, size in SIZES.items()]
RULES = {
    "plain": OptimizerSpec("momentum", learning_rate=0.1),
    "with state": OptimizerSpec("adagrad", learning_rate=0.1),
}
STRANGE = [np.nan, np.inf, -np.inf]


def gradients(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(11)
    return [rng.standard_normal(SIZE).astype(np.float32) for _ in range(count)]


def store(rule: str = "plain", cores: int | None = None) -> Store:
    (share,) = place(PARAMETERS, 1, 0)
    made = Store(share, RULES[rule], cores)
    made.set_dense(0, Section("", np.random.default_rng(5).standard_normal(SIZE).astype(np.float32)))
    return made


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_one_core_and_several_and_chunks_give_the_same_bits(rule: str, count: int) -> None:
    slabs = gradients(count)
    alone, together, by_chunks = store(rule, 1), store(rule, 4), store(rule)
    for each in (alone, together, by_chunks):
        for _ in range(2):
            each.begin(1)
            if each is by_chunks:
                for index in range(chunk_count(SIZE)):
                    each.add(index, [slab[chunk_span(index, SIZE)] for slab in slabs])
            else:
                each.add_whole(slabs)
            each.commit([{}])
    assert np.array_equal(alone.slab.view(np.uint32), together.slab.view(np.uint32))
    assert np.array_equal(alone.slab.view(np.uint32), by_chunks.slab.view(np.uint32))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("strange", STRANGE)
def test_a_strange_float_anywhere_names_its_gradient_and_its_parameter(rule: str, strange: float) -> None:
    held = store(rule)
    before = held.dense()
    for at, name in {0: "a", SIZES["a"] - 1: "a", SIZES["a"]: "b", SIZE - 1: "c"}.items():
        slabs = gradients(3)
        slabs[1][at] = strange
        held.begin(1)
        text = f"gradient of parameter {name} is NaN or infinite; nothing was changed"
        with pytest.raises(StrangeGradient, match=text) as refused:
            held.add_whole(slabs)
        assert refused.value.number == 1
        assert np.array_equal(held.slab, before)


def test_finite_gradients_may_sum_up_to_infinity() -> None:
    held, slabs = store(), gradients(2)
    for slab in slabs:
        slab[7] = np.finfo(np.float32).max
    held.begin(1)
    held.add_whole(slabs)
    held.commit([{}])
    assert np.isneginf(held.slab[7])
    assert np.isfinite(np.delete(held.slab, 7)).all()


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("strange", [None, *STRANGE])
@pytest.mark.parametrize("at", [0, 4095, -1])
def test_the_compiled_step_sees_what_the_plain_one_does(count: int, strange: float | None, at: int) -> None:
    w, *slabs = (slab[: (1 << 16) + 5] for slab in gradients(count + 1))
    slabs[0][5] = -np.finfo(np.float32).max / 4
    if strange is not None:
        slabs[-1][at] = strange
    compiled, plain, scratch = np.empty_like(w), np.empty_like(w), np.empty_like(w)
    with np.errstate(invalid="ignore"):
        found = arithmetic.descend(w, slabs, 0.3, compiled, scratch, look=True)
        wanted = arithmetic.descend_plainly(w, slabs, 0.3, plain, scratch, look=True)
    assert found.is_finite is wanted is (strange is None)
    assert np.array_equal(compiled[np.isfinite(plain)], plain[np.isfinite(plain)])


def test_every_piece_is_worked_on_once_and_no_two_at_a_time_by_one_worker() -> None:
    threads, busy, lock = DenseThreads(3), set[int](), threading.Lock()

    def work(worker: int, piece: int) -> int:
        with lock:
            assert worker not in busy
            busy.add(worker)
        time.sleep(0.001)
        with lock:
            busy.remove(worker)
        return piece * piece

    for pieces in (0, 1, 2, 50):
        assert threads.run(work, pieces) == [piece * piece for piece in range(pieces)]


def test_work_that_fails_in_any_thread_fails_for_whoever_asked() -> None:
    threads = DenseThreads(2)
    both_work = threading.Barrier(2)

    def work(worker: int, piece: int) -> None:
        both_work.wait(30)
        if worker:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        threads.run(work, 2)
    assert threads.run(lambda worker, piece: piece, 2) == [0, 1]


class Server:
    """One engine and two trainers that push in place."""

    def __init__(self) -> None:
        self.engine = Engine(EngineOptions(2), stamp=7)
        self.requests = [0, 0]
        text = Configuration(tuple(PARAMETERS), RULES["plain"], 1, 0, 0).to_text()
        for trainer in (0, 1):
            self.ask(trainer, Hello(2))
            self.ask(trainer, Configure(), Section.text("", text))
        self.ask(0, SetValues(), Section("", np.ones(SIZE, np.float32)))
        self.ask(0, Ready())
        for trainer in (0, 1):
            self.ask(trainer, StartPass())

    def ask(self, trainer: int, record: Record, *sections: Section) -> dict[int, Message]:
        """Return the replies that are due now, by trainer."""
        self.requests[trainer] += 1
        message = Message(record, trainer, trainer + 1, self.requests[trainer], 7, sections)
        return {
            reply.message.trainer: reply.message for reply in self.engine.handle(b"%d" % trainer, message)
        }

    def push(self, trainer: int, value: float, last: float | None = None) -> dict[int, Message]:
        slab = np.full(SIZE, value, np.float32)
        slab[-1] = value if last is None else last
        return self.ask(trainer, PushPull(1, in_place=True), Section("", slab))

    def values(self) -> np.ndarray:
        found: np.ndarray = self.ask(0, Pull())[0].section("").array
        return found


class Shared:
    """What a trainer shares with one server."""

    def __init__(self, size: int) -> None:
        self.gradient = SharedArray(size).array

    def values(self, reply: Message) -> np.ndarray:
        return self.gradient


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("in_place", [True, False])
def test_large_arrays_are_copied_whole_and_looked_at_if_another_server_takes_part(
    servers: int, in_place: bool
) -> None:
    layout = Layout(PARAMETERS, servers, 0, whole=True)
    node = WithinNode(layout, {0: Shared(layout.slabs[0].size)})
    wanted = gradients(1)[0][: layout.slabs[0].size]
    pushed, got = {}, {}
    for part in layout.shares[0].dense:
        name, size = part.parameter.name, part.stop - part.start
        home = node.gradient(name)
        assert home is not None
        pushed[name] = home if in_place else np.empty(size, np.float32)
        pushed[name][...] = wanted[part.start : part.stop]
        got[name] = np.empty(size, np.float32)
    assert np.array_equal(node.fill(0, pushed), wanted)
    node.scatter(0, wanted, got)
    assert np.array_equal(np.concatenate(list(got.values())), wanted)
    pushed["a"][1_000_000] = np.nan
    if servers == 1:
        node.fill(0, pushed)  # the server looks
        return
    with pytest.raises(ConfigError, match="gradient of parameter a is NaN or infinite; nothing was changed"):
        node.fill(0, pushed)


REFUSED = "gradient of parameter c is NaN or infinite; nothing was changed"


@pytest.mark.parametrize("bad", [0, 1])
def test_who_pushed_a_strange_gradient_hears_it_and_the_other_waits(bad: int) -> None:
    server = Server()
    assert server.push(0, 1.0, np.nan if bad == 0 else None) == {}
    replies = server.push(1, 3.0, np.nan if bad == 1 else None)
    assert {trainer: m.verb for trainer, m in replies.items()} == {bad: Verb.ERROR}
    assert replies[bad].section("").as_text() == REFUSED
    replies = server.push(bad, 1.0 + 2 * bad)
    assert {trainer: m.verb for trainer, m in replies.items()} == {0: Verb.OK, 1: Verb.OK}
    assert np.allclose(server.values()[0], 1 - 0.1 * 4)


def test_two_strange_gradients_are_both_refused() -> None:
    server = Server()
    server.push(0, np.inf)
    replies = server.push(1, np.nan)
    assert list(replies) == [0]
    assert server.push(0, 1.0)[1].verb is Verb.ERROR
    assert server.push(1, 1.0)[0].verb is Verb.OK


def test_a_strange_gradient_of_a_trainer_that_left_does_not_keep_the_others() -> None:
    server = Server()
    server.push(0, np.nan)
    server.ask(0, Leave())
    replies = server.push(1, 1.0)
    assert replies[1].verb is Verb.OK
    assert np.allclose(server.ask(1, Pull())[1].section("").array[0], 0.9)


def test_a_strange_gradient_in_place_is_refused_before_chunks_of_others_are_used() -> None:
    server = Server()
    server.push(0, 1.0, np.nan)
    replies = server.ask(1, PushPull(1, chunks=chunk_count(SIZE)))
    assert replies[0].section("").as_text() == REFUSED
    assert list(replies) == [0]
    assert server.push(0, 1.0) == {}
    for index in range(chunk_count(SIZE)):
        chunk = np.ones(SIZE, np.float32)[chunk_span(index, SIZE)]
        message = Message(Chunk(index), 1, 2, server.requests[1], 7, (Section("", chunk),))
        replies = {reply.message.trainer: reply.message for reply in server.engine.handle(b"1", message)}
    assert replies[0].verb is Verb.OK
    assert np.allclose(server.values()[SIZES["a"] + 100], 0.8)


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_trainer_goes_on_after_a_strange_gradient(ports: int, in_place: bool) -> None:
    with (
        PserverProcess("--port=0", f"--ports_num={ports}") as server,
        TrainerSession.connect(
            server.endpoints, [], trainer_id=0, num_trainers=1, job_key=KEY, wire="curve"
        ) as client,
    ):
        client.configure(PARAMETERS, RULES["plain"], {n: np.ones(s, np.float32) for n, s in SIZES.items()})
        client.start_pass()
        pushed = {
            n: client.gradient_array(n) if in_place else np.empty(s, np.float32) for n, s in SIZES.items()
        }
        for gradient in pushed.values():
            gradient[...] = 1.0
        got = {name: np.empty(size, np.float32) for name, size in SIZES.items()}
        for strange in STRANGE:
            pushed["c"][-1] = strange
            with pytest.raises(
                ConfigError, match="gradient of parameter c is NaN or infinite; nothing was changed"
            ):
                client.push_pull(pushed, 1, got)
        client.pull(got)
        assert all((array == 1.0).all() for array in got.values())
        pushed["c"][-1] = 1.0
        for _ in range(2):
            client.push_pull(pushed, 1, got)
        assert np.allclose(got["a"], 0.8)
        assert np.allclose(got["b"], 0.6)
        assert np.allclose(got["c"], 0.8)


def pushed_with_rows(*, within_node: bool) -> list[np.ndarray]:
    """Return dense values and the table after three steps that touch many rows."""
    table = ParameterSpec("table", (5000, 40), sparse=True)
    with (
        PserverProcess("--port=0") as server,
        TrainerSession.connect(
            server.endpoints,
            [],
            trainer_id=0,
            num_trainers=1,
            job_key=KEY,
            wire="curve",
            within_node=within_node,
        ) as client,
    ):
        first = {name: np.ones(size, np.float32) for name, size in SIZES.items()}
        client.configure(
            [*PARAMETERS, table], RULES["with state"], {**first, "table": np.ones((5000, 40), np.float32)}
        )
        client.start_pass()
        rng = np.random.default_rng(2)
        got = {name: np.empty(size, np.float32) for name, size in SIZES.items()}
        for _ in range(3):
            rows = np.unique(rng.integers(0, 5000, 4000))
            dense = {name: rng.standard_normal(size, np.float32) for name, size in SIZES.items()}
            values = rng.standard_normal((len(rows), 40), np.float32)
            client.push_pull({**dense, "table": RowGradient(rows, values)}, 1, got)
            seen = {name: client.value_array(name) for name in SIZES}
            for name, array in seen.items():
                assert (array is not None) == within_node
                assert array is None or np.array_equal(array, got[name])
        whole = np.empty((5000, 40), np.float32)
        client.pull({"table": whole})
        return [*got.values(), whole]


def test_rows_of_a_sparse_parameter_go_with_what_is_shared() -> None:
    near, sent = pushed_with_rows(within_node=True), pushed_with_rows(within_node=False)
    assert all(np.array_equal(one, other) for one, other in zip(near, sent, strict=True))
