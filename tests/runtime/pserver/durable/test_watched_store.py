# SPDX-License-Identifier: Apache-2.0
"""Whoever copies a store hears of dense elements just before they are overwritten, and no earlier."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.store.observer import Elements
from paddle.pserver.store.store import Store
from paddle.pserver.wire.message import CHUNK, Section, chunk_count, chunk_span
from paddle.pserver.wire.placement import place

NAMES = ["a", "b", "c"]
SIZE = 6


class Listener:
    """Notes what it hears, and the values at that moment."""

    def __init__(self, store: Store) -> None:
        self.heard: list[Elements] = []
        self.then: list[npt.NDArray[np.float32]] = []
        self._store = store
        store.be_watched(self)

    def dense(self, elements: Elements) -> None:
        self.heard.append(elements)
        self.then.append(self._store.slab.copy())

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        raise AssertionError("there are no rows")


def made(method: str, sizes: dict[str, int]) -> Store:
    (share,) = place([ParameterSpec(name, (size,)) for name, size in sizes.items()], 1, 0)
    return Store(share, OptimizerSpec(method, learning_rate=0.5))


def step(store: Store) -> None:
    add_up(store)
    store.commit([])


def add_up(store: Store) -> None:
    store.begin(samples=1)
    for index in range(chunk_count(store.slab.size)):
        span = chunk_span(index, store.slab.size)
        store.add(index, [np.ones(span.stop - span.start, np.float32)])


def test_a_parameter_that_changes_in_place_is_told_when_its_step_is_taken_not_when_gradients_come() -> None:
    store = made("adagrad", dict.fromkeys(NAMES, SIZE))
    listener = Listener(store)
    before = store.slab
    add_up(store)
    assert not listener.heard
    assert not before.any()
    store.commit([])
    assert listener.heard == [Elements(name, 0, SIZE, 0) for name in NAMES]
    for part, then in zip(store.share.dense, listener.then, strict=True):
        assert not then[part.start : part.stop].any()
    assert store.slab.all()


def test_values_that_change_places_are_told_one_step_later_chunk_by_chunk() -> None:
    store = made("sgd", {"a": CHUNK - 1, "b": CHUNK})
    step(store)
    listener = Listener(store)
    first, values = store.slab, store.slab.copy()
    step(store)
    assert not [each for each in listener.heard if each.version >= 1], "what held is still where it was"
    assert np.array_equal(first, values)
    store.begin(samples=1)
    listener.heard.clear()
    store.add(0, [np.ones(CHUNK, np.float32)])
    assert listener.heard == [Elements("a", 0, CHUNK - 1, 1), Elements("b", 0, 1, 1)]
    assert np.array_equal(first[CHUNK:], values[CHUNK:]), "the other chunk was not told yet"


@pytest.mark.parametrize("method", ["adagrad", "sgd"])
def test_values_that_are_set_are_told_before(method: str) -> None:
    store = made(method, {"a": SIZE})
    listener = Listener(store)
    store.set_dense(2, Section("", np.ones(SIZE - 2, np.float32)))
    assert listener.heard == [Elements("a", 2, SIZE, 0)]
    assert not listener.then[0].any()
    assert store.slab[2:].all()


def test_a_large_parameter_is_told_part_after_part_so_that_nobody_waits_for_all_of_it() -> None:
    store = made("adagrad", {"a": 1_500_000})
    step(store)
    listener = Listener(store)
    step(store)
    assert len(listener.heard) > 1
    spans = [(each.start, each.stop) for each in listener.heard]
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == 1_500_000
    for (start, _), then in zip(spans, listener.then, strict=True):
        assert np.array_equal(then[start:], np.full_like(then[start:], then[-1])), "it had changed already"
