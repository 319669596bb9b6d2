# SPDX-License-Identifier: Apache-2.0
"""Growing tables behind servers: rows by any id from trainers, summed in their order, wrong requests refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.mixing import owners
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Configure, Hello, PullRows, PushPull, Ready, Record, StartPass, Verb
from tests.runtime.pserver.in_process_job import SGD, InProcessJob, Model

WIDTH = 4
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1)
MODEL = Model({"fc.w": (3, 2)})
POOL = np.concatenate(
    [[0, -1, 2**63 - 1, -(2**63)], np.random.default_rng(9).integers(-(2**63), 2**63 - 1, 200)]
)


def table_spec(**more: Any) -> TableSpec:
    return TableSpec(ParameterSpec("emb", (1, WIDTH), sparse=True), Initial.normal(0.0, 0.1, 3), **more)


def unchecked(ids: Any, values: Any) -> RowGradient:
    return RowGradient(ids, values)


def step_of(trainer: int, batch: int) -> RowGradient:
    rng = np.random.default_rng((trainer, batch))
    return RowGradient(rng.choice(POOL, 50), rng.standard_normal((50, WIDTH)).astype(np.float32))


def configured(client: TrainerSession, optimizer: OptimizerSpec, spec: TableSpec) -> None:
    client.configure(MODEL.parameters, optimizer, MODEL.values(), tables=[spec])
    client.start_pass()


@pytest.mark.parametrize(("num_dense", "num_sparse"), [(1, 0), (2, 0), (1, 3)])
def test_trainers_get_bitwise_what_one_table_alone_gives(num_dense: int, num_sparse: int) -> None:
    batches, num_trainers = 6, 2

    def train(client: TrainerSession, trainer: int) -> np.ndarray:
        configured(client, ADAGRAD, table_spec())
        before = client.pull_rows("emb", POOL)
        np.testing.assert_array_equal(before, table.lookup(POOL))
        for batch in range(batches):
            gradients: dict[str, Any] = {**MODEL.gradients(trainer, batch), "emb": step_of(trainer, batch)}
            client.push_pull(gradients, 50, MODEL.empty())
        client.finish_pass()
        return client.pull_rows("emb", POOL)

    table = HashTable(table_spec(), ADAGRAD)
    found = InProcessJob(num_trainers, num_dense, num_sparse).run(train)
    for batch in range(batches):
        table.update([step_of(trainer, batch) for trainer in range(num_trainers)], 0.1)
    for rows in found:
        np.testing.assert_array_equal(rows, table.lookup(POOL))


def test_looking_rows_up_makes_none() -> None:
    job = InProcessJob(1, 1)

    def train(client: TrainerSession, trainer: int) -> None:
        configured(client, SGD, table_spec(max_rows=5))
        for _ in range(3):
            client.pull_rows("emb", POOL)
        client.push_pull({"emb": RowGradient(POOL[:5], np.ones((5, WIDTH), np.float32))}, 1, {})

    job.run(train)


@pytest.mark.parametrize(
    ("name", "gradient", "why"),
    [
        (
            "emb",
            RowGradient(np.arange(2), np.ones((2, 3), np.float32)),
            r"expected \(2, 4\) float32, got \(2, 3\)",
        ),
        ("emb", unchecked(np.arange(2), np.ones((2, WIDTH))), r"got \(2, 4\) float64"),
        (
            "emb",
            unchecked(np.arange(2.0), np.ones((2, WIDTH), np.float32)),
            r"as \(n,\) int64, got \(2,\) float64",
        ),
        (
            "emb",
            RowGradient(np.arange(2), np.full((2, WIDTH), np.nan, np.float32)),
            "row 0 contains NaN",
        ),
        ("emb", np.ones((1, WIDTH), np.float32), "expected a RowGradient"),
        ("rows", RowGradient(np.arange(2), np.ones((2, WIDTH), np.float32)), "known: fc.w, emb"),
    ],
)
def test_a_wrong_gradient_is_refused_before_it_is_sent(name: str, gradient: Any, why: str) -> None:
    def train(client: TrainerSession, trainer: int) -> None:
        configured(client, SGD, table_spec())
        with pytest.raises(ConfigError, match=why):
            client.push_pull({name: gradient}, 1, {})
        with pytest.raises(ConfigError, match="a growing table cannot be read as a whole"):
            client.pull({"emb": np.zeros((1, WIDTH), np.float32)})

    InProcessJob(1, 1).run(train)


def test_trainers_that_differ_about_a_table_are_told_how() -> None:
    def train(client: TrainerSession, trainer: int) -> None:
        configured(client, SGD, table_spec(entry=1 + trainer))

    with pytest.raises(
        PserverError, match=r"growing table emb: entry=1 on trainer 0, entry=2 on trainer 1\."
    ):
        InProcessJob(2, 1).run(train)


class Server:
    """One of two servers of a configured job, asked by hand as trainer 0."""

    def __init__(self, **more: Any) -> None:
        self.engine = Engine(EngineOptions(1), stamp=7)
        self.request = 0
        self.ask(Hello(1), stamp=0)
        text = Configuration((), SGD, 2, 0, 0, (table_spec(**more),)).to_text()
        assert self.ask(Configure(), Section.text("", text)).verb is Verb.CONFIGURED
        assert self.ask(Ready()).verb is Verb.OK
        assert self.ask(StartPass()).verb is Verb.OK

    def ask(self, record: Record, *sections: Section, stamp: int = 7) -> Message:
        self.request += 1
        message = Message(record, 0, 1, self.request, stamp, sections)
        (reply,) = self.engine.handle(b"peer", message)
        return reply.message

    def push(self, ids: np.ndarray, values: np.ndarray) -> Message:
        slab = Section("", np.zeros(0, np.float32))
        return self.ask(PushPull(1), slab, Section("emb", ids), Section("emb", values))

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return self.ask(PullRows(), Section("emb", ids)).section("emb").array.copy()


HERE = POOL[owners(POOL, 2) == 0][:3].copy()
ELSEWHERE = POOL[owners(POOL, 2) == 1][:1].copy()
ONES = np.ones((3, WIDTH), np.float32)
WRONG_PUSHES: dict[str, tuple[np.ndarray, np.ndarray, str]] = {
    "ids as floats": (HERE.astype(np.float32), ONES, "row ids as (n,) int64, got (3,) float32"),
    "ids with two dimensions": (HERE[:, None].copy(), ONES, "row ids as (n,) int64, got (3, 1) int64"),
    "another server's id": (np.concatenate([HERE[:2], ELSEWHERE]), ONES, "belongs to server 1 of 2"),
    "too few values": (HERE, ONES[:2], "expected (3, 4) float32, got (2, 4) float32"),
    "values as integers": (HERE, ONES.astype(np.int64), "expected (3, 4) float32, got (3, 4) int64"),
    "values without dimensions": (HERE, np.array(1.0, np.float32), "expected (3, 4) float32, got () float32"),
    "NaN": (
        HERE,
        np.where(np.arange(3)[:, None] == 1, np.nan, ONES).astype(np.float32),
        f"row {HERE[1]} contains NaN",
    ),
    "infinity": (
        HERE,
        np.where(np.arange(3)[:, None] == 2, np.inf, ONES).astype(np.float32),
        f"row {HERE[2]} contains",
    ),
}


@pytest.mark.parametrize("what", WRONG_PUSHES)
def test_a_wrong_push_gets_an_exact_answer_and_changes_nothing(what: str) -> None:
    ids, values, why = WRONG_PUSHES[what]
    server = Server()
    assert server.push(HERE, ONES).verb is Verb.OK
    before = server.rows(HERE)
    reply = server.push(ids, values)
    assert reply.verb is Verb.ERROR
    assert why in reply.section("").as_text()
    np.testing.assert_array_equal(server.rows(HERE), before)
    assert server.push(HERE, ONES).verb is Verb.OK


def test_a_batch_for_which_a_server_has_no_room_is_refused_and_changes_nothing() -> None:
    server = Server(max_rows=2)
    before = server.rows(HERE)
    reply = server.push(HERE, ONES)
    assert reply.verb is Verb.ERROR
    assert (
        "table emb: 3 new rows in addition to 0 would exceed the limit of 2 rows on one server"
        in reply.section("").as_text()
    )
    np.testing.assert_array_equal(server.rows(HERE), before)
    assert server.push(HERE[:2], ONES[:2]).verb is Verb.OK
    assert (server.rows(HERE[:2]) != before[:2]).all()


def test_wrong_lookups_get_an_exact_answer() -> None:
    server = Server()
    for section, why in (
        (Section("emb", ELSEWHERE), "belongs to server 1 of 2"),
        (Section("emb", np.zeros(2, np.float32)), "row ids as (n,) int64"),
        (Section("rows", HERE), "unknown sparse parameter 'rows'"),
    ):
        reply = server.ask(PullRows(), section)
        assert reply.verb is Verb.ERROR
        assert why in reply.section("").as_text()


@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        ('"entry": 1', '"entry": 0', "entry: expected 1 to"),
        ('"kind": "normal"', '"kind": "bell"', "expected one of constant, uniform, normal"),
        ('"spread": 0.1', '"spread": 1e999', "spread: expected a float32"),
        ('"tables": [', '"tables": [3, ', "TableSpec: expected the fields"),
        ('"tables": [', '"tables": 3, "x": [', "cannot read"),
        ('"rule": "momentum"', '"rule": "sparse_momentum"', "needs all rows of a table"),
    ],
)
def test_a_table_that_cannot_be_is_refused_and_the_server_lives(was: str, becomes: str, why: str) -> None:
    engine = Engine(EngineOptions(1), stamp=7)
    engine.handle(b"x", Message(Hello(1), session=1, request=1))
    text = Configuration((), SGD, 1, 0, 0, (table_spec(),)).to_text()
    assert was in text
    sections = (Section.text("", text.replace(was, becomes, 1)),)
    (reply,) = engine.handle(b"x", Message(Configure(), session=1, request=2, stamp=7, sections=sections))
    assert reply.message.verb is Verb.ERROR
    assert why in reply.message.section("").as_text()


def test_a_table_may_not_have_the_name_of_a_parameter() -> None:
    with pytest.raises(PserverError, match="parameter emb is given twice"):
        Configuration.from_text(
            Configuration((ParameterSpec("emb", (2, 2)),), SGD, 1, 0, 0, (table_spec(),)).to_text()
        )
