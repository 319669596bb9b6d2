# SPDX-License-Identifier: Apache-2.0
"""Readers beside trainers: they see what servers hold, and training is what it is without them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError, WaitTimeout
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import Reader, TensorInfo
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.message import READER, Message, Section
from paddle.pserver.wire.verbs import (
    Attach,
    Chunk,
    Configure,
    FinishPass,
    Leave,
    PullRows,
    PullTable,
    PushPull,
    Ready,
    SetValues,
    Shrink,
    StartPass,
    View,
)
from tests.runtime.pserver.in_process_job import LOOKED_AT, SGD, InProcessJob
from tests.runtime.pserver.other_tensors import OldTensor, Tensor

STEPS = 6


DECAYING = OptimizerSpec("momentum", learning_rate=0.1)


USERS = TableSpec(ParameterSpec("users", (1, 4), sparse=True))


def reader_of(job: InProcessJob, **more: Any) -> Reader:
    return Reader(job.servers.connect(job.endpoints), **more)


def gradients(trainer: int, step: int) -> dict[str, Any]:
    rng = np.random.default_rng((trainer, step))
    rows = np.sort(rng.choice(30, 4, replace=False))
    users = rng.integers(-(2**40), 2**40, 3)
    return LOOKED_AT.gradients(trainer, step) | {
        "emb": RowGradient(rows, rng.standard_normal((4, 3)).astype(np.float32)),
        "users": RowGradient(np.sort(users), rng.standard_normal((3, 4)).astype(np.float32)),
    }


def train(job: InProcessJob, between: Any = lambda: None) -> list[dict[str, np.ndarray]]:
    def work(client: TrainerSession, trainer: int) -> dict[str, np.ndarray]:
        client.configure(LOOKED_AT.parameters, DECAYING, LOOKED_AT.values(), tables=[USERS])
        client.start_pass()
        out = {name: value for name, value in LOOKED_AT.empty().items() if name != "emb"}
        for step in range(STEPS):
            client.push_pull(gradients(trainer, step), 1, out)
            if trainer == 0:
                between()
        client.finish_pass()
        client.pull(everything := LOOKED_AT.empty())
        return everything | {"users": client.pull_rows("users", np.arange(-5, 5))}

    return job.run(work)


def test_training_has_the_same_bits_with_readers_that_come_look_and_go() -> None:
    quiet = train(InProcessJob(2, num_dense=2, num_sparse=1))
    job = InProcessJob(2, num_dense=2, num_sparse=1)
    versions = []

    def look() -> None:
        reader = reader_of(job)
        out = LOOKED_AT.empty()
        versions.append(reader.pull(out))
        rows = reader.pull_rows(
            "emb", np.array([[3, 29], [3, 0]]), OldTensor(np.empty((2, 2, 3), np.float32))
        )
        assert np.array_equal(rows[0, 0], out["emb"][3])
        reader.pull_rows("users", np.arange(-2, 2))
        if len(versions) % 2:
            reader.close()  # the others vanish without a word

    beside = train(job, look)
    for mine, other in zip(quiet, beside, strict=True):
        assert all(np.array_equal(mine[name], other[name]) for name in mine)
    assert versions == list(range(1, STEPS + 1))
    with reader_of(job) as reader:  # all trainers have left
        out = {name: Tensor(value) for name, value in LOOKED_AT.empty().items()}
        assert reader.pull(out) == reader.version() == STEPS
        assert all(np.array_equal(beside[0][name], np.from_dlpack(out[name])) for name in out)
        assert np.array_equal(reader.pull_rows("users", np.arange(-5, 5, dtype=np.int32)), beside[0]["users"])


def test_a_reader_learns_the_model_from_the_servers() -> None:
    job = InProcessJob(1, num_dense=2, num_sparse=1)
    with job.client(0) as client:
        client.configure(LOOKED_AT.parameters, DECAYING, LOOKED_AT.values(), tables=[USERS])
        with reader_of(job) as reader:
            assert reader.tensors == {
                "w": TensorInfo((70, 40)),
                "b": TensorInfo((7,)),
                "emb": TensorInfo((30, 3), sparse=True),
                "users": TensorInfo((0, 4), sparse=True, growing=True),
            }
    with pytest.raises(
        PserverError, match=r"d1 is number 1 of 3 in its job, but is listed as number 0 of 3: .*endpoints"
    ):
        Reader(job.servers.connect(["d1", "d0", "s0"]))


def test_a_reader_waits_until_there_are_values_and_gives_up_in_time() -> None:
    job = InProcessJob(1)
    with pytest.raises(
        WaitTimeout, match=r"gave up after 0.3 s: pserver d[01]: waiting until trainers create"
    ):
        reader_of(job, wait_s=0.3)
    found: list[Reader] = []
    thread = threading.Thread(target=lambda: found.append(reader_of(job)), daemon=True)
    thread.start()
    with job.client(0) as client:
        client.configure(LOOKED_AT.parameters, DECAYING, LOOKED_AT.values())
        while thread.is_alive():  # it may ask before or after
            job.servers.tick()
            thread.join(0.01)
    out = {"w": np.empty((70, 40), np.float32)}
    assert found[0].pull(out) == 0
    assert np.array_equal(out["w"], LOOKED_AT.values()["w"])


def test_a_reader_that_asks_for_rows_before_there_is_a_model_harms_nobody() -> None:
    job = InProcessJob(1, num_dense=1)
    rows = Message(PullRows(), sections=(Section("nothing", np.zeros(1, np.int64)),))
    with pytest.raises(PserverError, match="the tensors have no values yet: send DESCRIBE"):
        asked(job, rows)
    with job.client(0) as client:
        client.configure(LOOKED_AT.parameters, SGD, LOOKED_AT.values())
        job.servers.tick()
        with pytest.raises(PserverError, match="unknown sparse parameter 'nothing'"):
            asked(job, rows)


def test_what_a_reader_may_not_do_is_refused_by_its_name() -> None:
    job = InProcessJob(1, num_dense=1)
    with job.client(0) as client:
        client.configure(LOOKED_AT.parameters, DECAYING, LOOKED_AT.values())
        for record, what in (
            (PushPull(), "push"),
            (Chunk(), "push"),
            (Configure(), "create tensors"),
            (SetValues(), "set values"),
            (Ready(), "set values"),
            (Attach(), "share memory"),
            (StartPass(), "take part in a pass"),
            (FinishPass(), "take part in a pass"),
            (Shrink(), "drop rows"),
        ):
            refused = f"d0: a reader cannot {what}: it only reads values"
            with pytest.raises(PserverError, match=refused):
                asked(job, Message(record))
        for message, refused in (
            (Message(Leave()), "LEAVE"),
            (Message(View(7)), "expected a multiple of .* got 7"),
            (
                Message(PullTable(0, 1 << 40), sections=(Section.text("name", "emb"),)),
                "a reader may request at most 87381 rows of emb at a time, not 1099511627776",
            ),
            (
                Message(PullRows(), sections=(Section("emb", np.zeros(90_000, np.int64)),)),
                "a reader may request at most 87381 rows of emb at a time, not 90000",
            ),
            (Message(PullRows()), "rows of one tensor in a reader's request, got those of 0"),
        ):
            with pytest.raises(PserverError, match=refused):
                asked(job, message)
        client.pull(out := LOOKED_AT.empty())
        assert all(np.array_equal(out[name], value) for name, value in LOOKED_AT.values().items())


def asked(job: InProcessJob, message: Message) -> Message:
    network = job.servers.connect(job.endpoints)
    exchange = Exchange(network, READER, 5.0)
    exchange.hello(0)
    try:
        return exchange.run({0: message})[0]
    finally:
        network.close()


def test_what_cannot_be_read_is_refused_by_name_and_the_reader_goes_on() -> None:
    job = InProcessJob(1)
    with job.client(0) as client:
        client.configure(LOOKED_AT.parameters, DECAYING, LOOKED_AT.values(), tables=[USERS])
        with reader_of(job) as reader:
            for wrong, why in (
                (
                    {"v": np.zeros(1, np.float32)},
                    "out array of tensor v: no such tensor was created; known:",
                ),
                (
                    {"b": np.zeros(8, np.float32)},
                    r"out array of tensor b: expected \(7,\) float32, got \(8,\)",
                ),
                (
                    {"users": np.zeros((1, 4), np.float32)},
                    "out array of tensor users: a growing table cannot be read as a whole",
                ),
            ):
                with pytest.raises(ConfigError, match=why):
                    reader.pull(wrong)
            with pytest.raises(ConfigError, match="rows of tensor w: the tensor is not sparse; use pull"):
                reader.pull_rows("w", np.array([1]))
            with pytest.raises(
                ConfigError, match="rows of tensor v: no such tensor; known: w, b, emb, users"
            ):
                reader.pull_rows("v", np.array([1]))
            with pytest.raises(ConfigError, match="row ids of parameter emb: expected 0 to 29, got 30"):
                reader.pull_rows("emb", np.array([30]))
            assert reader.version() == 0
