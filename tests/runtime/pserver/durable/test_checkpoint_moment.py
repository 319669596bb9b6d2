# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of dense parameters is one moment's state to the bit, although steps go on while it is written."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.durable.checkpoint.loading import load
from paddle.pserver.durable.checkpoint.manifest import Manifest
from paddle.pserver.durable.checkpoint.series import Origin, Series
from paddle.pserver.durable.checkpoint.sink import ThreadSink
from paddle.pserver.durable.checkpoint.spare import SpareMemory
from paddle.pserver.store.store import Store
from paddle.pserver.wire.chunks import chunk_span
from paddle.pserver.wire.placement import place

DEADLINE_S = 60.0
SIZES = {"a": 7, "b": 5_000_001, "c": 300_000}


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
    series = Series(tmp_path, Origin("", 0, 1, ""), store, partial(ThreadSink, spare=SpareMemory()), keep=1)

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
