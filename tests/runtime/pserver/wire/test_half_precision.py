# SPDX-License-Identifier: Apache-2.0
"""Rows in 16 bits on the wire: what is rounded and how, what servers then hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError, WireError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import Reader
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.store.gradient import read_gradient
from paddle.pserver.wire.half import WIRE_DTYPES, packed, widened
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import PullRows, PushPull
from tests.runtime.pserver.in_process_job import InProcessJob

SGD = OptimizerSpec("sgd", learning_rate=1.0)
TABLE = TableSpec(ParameterSpec("t", (1, 5), sparse=True), Initial("normal", spread=1.0, seed=2))
IDS = np.arange(-9, 90, 2)


def session(job: InProcessJob, wire_dtype: str, trainers: int = 1) -> TrainerSession:
    return TrainerSession(
        job.servers.connect(job.endpoints),
        0,
        trainer_id=0,
        num_trainers=trainers,
        timeout_s=20.0,
        wire_dtype=wire_dtype,
    )


def bfloat16(values: np.ndarray) -> np.ndarray:
    """The nearest of the two neighbours with a short mantissa, found by comparing."""
    low = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    high = ((values.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(1 << 16)).view(np.float32)
    near, far = np.abs(values - low), np.abs(high - values)
    is_even = (low.view(np.uint32) >> 16) % 2 == 0
    return np.where((near < far) | ((near == far) & is_even), low, high)


def test_rounding_is_to_the_nearest_and_keeps_what_is_finite_finite() -> None:
    values = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    values = np.concatenate([values, np.array([0.0, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8], np.float32)])
    assert np.array_equal(widened(packed(values, 2)), bfloat16(values))
    assert np.array_equal(widened(packed(values, 1)), values.astype(np.float16).astype(np.float32))
    extreme = np.array([1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    assert widened(packed(extreme, 1)).tolist()[:4] == [65504.0, -65504.0, np.inf, -np.inf]
    assert np.isnan(widened(packed(extreme, 1))[4])
    assert np.isnan(widened(packed(extreme, 2))[4])
    nan = np.array([0x7F800001], np.uint32).view(np.float32)  # its upper half alone is infinite
    assert np.isnan(widened(packed(nan, 2))).all()
    largest = np.array([3.4028235e38, -3.4e38, 3.3895314e38, np.inf, -np.inf], np.float32)
    limit = float(np.float32(3.3895314e38))
    assert widened(packed(largest, 2)).tolist() == [limit, -limit, limit, np.inf, -np.inf]
    for number in range(3):
        assert packed(np.zeros((0, 4), np.float32), number).shape == (0, 4)


@pytest.mark.parametrize("wire_dtype", WIRE_DTYPES)
def test_servers_add_rounded_gradients_in_float32_and_rows_are_rounded_on_the_way(wire_dtype: str) -> None:
    job, number = InProcessJob(1, num_dense=2), WIRE_DTYPES.index(wire_dtype)
    values = np.random.default_rng(1).standard_normal((len(IDS), 5)).astype(np.float32)
    with session(job, wire_dtype) as client:
        client.configure([], SGD, {}, tables=[TABLE])
        client.start_pass()
        for _ in range(3):
            client.push_pull({"t": RowGradient(IDS, values)}, 1, {})
        expected = TABLE.initial.rows(IDS, 5)
        for _ in range(3):
            expected -= widened(packed(values, number))
        assert np.array_equal(client.pull_rows("t", IDS), widened(packed(expected, number)))
        asked = client.push_pull({"t": RowGradient(IDS[:0], values[:0])}, 1, {}, ahead={"t": IDS})
        assert np.array_equal(asked["t"], widened(packed(expected, number)))


def test_other_formats_are_refused_by_name() -> None:
    job = InProcessJob(1, num_dense=1)
    with pytest.raises(
        ConfigError, match="wire_dtype: expected one of float32, float16, bfloat16, got 'half'"
    ):
        session(job, "half")
    ids = Section("t", IDS[:2])
    job = InProcessJob(2, num_dense=1)
    with session(job, "float16", 2) as client:
        client.configure([], SGD, {}, tables=[TABLE])
        peer = Exchange(network := job.servers.connect(job.endpoints), 1, 20.0)
        peer.hello(2)
        with pytest.raises(PserverError, match="rows are requested in format 3: expected 0 to 2"):
            peer.run({0: Message(PullRows(rows_as=3), sections=(ids,))})
        network.close()
    push = Message(
        PushPull(1, asked=1, rows_as=1 << 63), sections=(Section("", np.zeros(0, np.float32)), ids)
    )
    with pytest.raises(WireError, match="rows are requested in format 9223372036854775808"):
        read_gradient(push)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    for wire_dtype in ("float16", "bfloat16"):
        job = InProcessJob(1, num_dense=1)
        with session(job, wire_dtype) as client:
            client.configure([], SGD, {}, tables=[TABLE])
            client.start_pass()
            with pytest.raises((ConfigError, PserverError), match="contains NaN"):
                client.push_pull({"t": RowGradient(IDS[:1], np.full((1, 5), bad, np.float32))}, 1, {})


@pytest.mark.parametrize("wire_dtype", WIRE_DTYPES)
def test_shows_and_clicks_arrive_as_they_were(wire_dtype: str) -> None:
    values = np.ones((3, 7), np.float32)
    for shown in ([1.0, 2.0, 100.0], [257.0, 2049.0, 1e9], [0.1, 0.3, 70_001.0]):
        values[:, 5] = shown
        job = InProcessJob(1, num_dense=1)
        with session(job, wire_dtype) as client:
            scored = replace(TABLE, budget=Budget(evict="score", decay=1.0, click=0.0))
            client.configure([], SGD, {}, tables=[scored])
            client.start_pass()
            client.push_pull({"t": RowGradient(IDS[:3], values)}, 1, {})
            with Reader(job.servers.connect(job.endpoints)) as reader:
                found = [
                    piece.states for piece in reader.walk("t", 0, states=True) if piece.states is not None
                ]
        assert np.sort(np.concatenate(found)[:, 0]).tolist() == np.array(shown, np.float32).tolist()
