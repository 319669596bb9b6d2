# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is one moment's state to the bit, and a job that goes on from it ends with the same bits."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.durable.checkpoint.disk import SpareMemory
from paddle.pserver.durable.checkpoint.format import Manifest
from paddle.pserver.durable.checkpoint.restore import load
from paddle.pserver.durable.checkpoint.series import Origin, Periodic, Series
from paddle.pserver.recovery import Safety
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import chunk_span
from paddle.pserver.wire.placement import place
from tests.runtime.pserver.durable.written_checkpoints import ADAGRAD, PERIOD, STEPS
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.kept_job import DECAYED, MODEL, KeptJob, same_bits

DEADLINE_S = 60.0
SIZES = {"a": 7, "b": 5_000_001, "c": 300_000}
MOMENTUM = Model({"w": (90, 50), "b": (64,), "table": (300, 8)}, sparse=["table"], momentum=0.9, l2=1e-3)


CASES = {
    "plain": (OptimizerSpec("momentum", learning_rate=0.1), MODEL),
    "adagrad": (ADAGRAD, DECAYED),
    "decayed_adagrad": (OptimizerSpec("decayed_adagrad", learning_rate=0.1), DECAYED),
    "sparse_momentum": (OptimizerSpec("sparse_momentum", learning_rate=0.01), MOMENTUM),
    "schedule": (
        OptimizerSpec("adagrad", learning_rate=0.1, schedule="poly", decay_a=0.01, decay_b=0.5), DECAYED
    ),
}  # fmt: skip


def made(method: str) -> Store:
    shapes = [ParameterSpec(name, (size,)) for name, size in SIZES.items()]
    (share,) = place(shapes, 1, 0)
    return Store(share, OptimizerSpec(method, learning_rate=0.5))


def step(store: Store, rng: np.random.Generator, *, whole: bool) -> None:
    gradient = rng.standard_normal(store.slab.size, np.float32)
    store.begin(samples=1)
    if whole:
        store.add_whole([gradient])
    else:
        for index in range(store.num_chunks):
            store.add(index, [gradient[chunk_span(index, gradient.size)]])
    store.commit([])


def state(store: Store) -> list[np.ndarray]:
    columns = [array for each in store.updaters for array in each.columns.values()]
    return [array.copy() for array in (store.slab, *columns)]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("method", ["sgd", "adagrad", "adam"])
def test_steps_that_follow_at_once_are_not_in_a_checkpoint(tmp_path: Path, method: str, whole: bool) -> None:
    rng, store = np.random.default_rng(3), made(method)
    series = Series(tmp_path, Origin("", 0, 1, ""), store, 1, SpareMemory())

    class Telling:
        dense = staticmethod(series.dense)
        rows = staticmethod(series.rows)

    store.be_watched(Telling())
    for _ in range(2):
        step(store, rng, whole=whole)
    then = state(store)
    series.begin({})
    for _ in range(3):
        step(store, rng, whole=whole)
    deadline, outcome = time.monotonic() + DEADLINE_S, None
    while outcome is None:
        assert time.monotonic() < deadline
        series.advance()
        outcome = series.outcome()
    assert isinstance(outcome, Manifest)
    again = made(method)
    load(again, tmp_path, [outcome])
    for expected, found in zip(then, state(again), strict=True):
        assert np.array_equal(expected, found)
    assert not np.array_equal(then[0], store.slab)


@pytest.mark.parametrize("shrinks", [False, True])
def test_a_checkpoint_that_was_skipped_does_not_begin_after_tables_were_shrunk(
    tmp_path: Path, shrinks: bool
) -> None:
    model = Configuration((ParameterSpec("w", (5,)),), OptimizerSpec("sgd", learning_rate=0.5), 1, 0, 0)
    store = Store(model.share(), model.optimizer)
    periodic = Periodic(tmp_path, 1, 3, "", store, model)
    store.version = 1
    assert periodic.fall_due()
    periodic.begin({})
    store.version = 2
    assert not periodic.fall_due()  # the other one is still being written
    if shrinks:
        store.shrink({})
    deadline = time.monotonic() + DEADLINE_S
    while periodic.advance():
        assert time.monotonic() < deadline
    assert periodic.is_behind == periodic.fall_due() == (not shrinks)
    store.version = 3
    assert periodic.fall_due()
    periodic.close()


@pytest.mark.parametrize("servers", [(2, 0), (1, 0), (3, 0), (2, 2), (1, 3)])
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_job_ends_with_the_same_bits(case: str, servers: tuple[int, int], tmp_path: Path) -> None:
    optimizer, model = CASES[case]
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), optimizer, model)
    job.train(0, STEPS)
    expected = job.values()
    job.close()
    again = KeptJob(Safety(checkpoints=tmp_path, resume="latest"), optimizer, model, *servers)
    version = STEPS // PERIOD * PERIOD
    assert {engine.version for engine in again.engines} == {version}
    again.train(version, STEPS)
    assert same_bits(again.values(), expected)
    again.close()
