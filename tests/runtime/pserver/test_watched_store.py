# SPDX-License-Identifier: Apache-2.0
"""Whoever copies a store hears of each dense parameter just before it changes, and no earlier."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.message import Section
from paddle.pserver.placement import place
from paddle.pserver.store import Store

NAMES = ["a", "b", "c"]
SIZE = 6


class Listener:
    """Notes what it hears, and the values at that moment."""

    def __init__(self, store: Store) -> None:
        self.heard: list[str | None] = []
        self.then: list[npt.NDArray[np.float32]] = []
        self._store = store
        store.be_watched(self)

    def dense(self, name: str | None = None) -> None:
        self.heard.append(name)
        self.then.append(self._store.slab.copy())

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        raise AssertionError("there are no rows")


@pytest.mark.parametrize(("method", "expected"), [("adagrad", NAMES), ("sgd", [None])])
def test_a_parameter_is_told_when_its_step_is_taken_not_when_gradients_come(
    method: str, expected: list[str | None]
) -> None:
    (share,) = place([ParameterSpec(name, (SIZE,)) for name in NAMES], 1, 0)
    store = Store(share, OptimizerSpec(method, learning_rate=0.5))
    listener = Listener(store)
    before = store.slab
    store.begin(samples=1)
    store.add(0, [np.ones(store.slab.size, np.float32)])
    assert not listener.heard
    assert not before.any()
    store.commit([])
    assert listener.heard == expected
    for part, then in zip(share.dense, listener.then, strict=False):
        assert not then[part.start : part.stop].any()
    assert store.slab.all()


def test_values_that_are_set_are_told_before() -> None:
    (share,) = place([ParameterSpec("a", (SIZE,))], 1, 0)
    store = Store(share, OptimizerSpec("adagrad"))
    listener = Listener(store)
    store.set_dense(0, Section("", np.ones(SIZE, np.float32)))
    assert listener.heard == [None]
    assert not listener.then[0].any()
    assert store.slab.all()
