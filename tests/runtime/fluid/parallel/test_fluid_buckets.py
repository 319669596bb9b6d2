# SPDX-License-Identifier: Apache-2.0
"""Which gradients travel together, and that they do so while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paddle.collective import CollectiveError
from paddle.collective.ranks import Arrays, Ranks
from paddle.fluid.parallel.gradient_exchange import Bucket, GradientExchange, bucketed
from paddle.graph import Operator
from paddle.ops.base.selected_rows import SelectedRows
from tests.runtime.collective.ranks import members, together


def writes(*names: str) -> list[Operator]:
    return [Operator.make("assign", {"X": ["x"]}, {"Out": [name]}, {}) for name in names]


def test_a_bucket_is_ready_behind_the_last_writer_of_its_last_gradient() -> None:
    ops = writes("c", "other", "b", "c", "a")
    sizes = {"a": 10, "b": 10, "c": 10}
    assert bucketed(ops, sizes, sizes, limit=20) == [Bucket(("b", "c"), 3), Bucket(("a",), 4)]
    assert bucketed(ops, sizes, sizes, limit=1000) == [Bucket(("b", "c", "a"), 4)]
    assert bucketed(ops, sizes, {}, limit=1) == [Bucket(("b", "c", "a"), 4)]
    assert bucketed(ops, {}, {}) == []


def buckets(*groups: Sequence[str]) -> list[Bucket]:
    return [Bucket(tuple(names), at) for at, names in enumerate(groups)]


def test_dense_and_sparse_gradients_of_several_steps_are_summed() -> None:
    def act(ranks: Ranks) -> list[Any]:
        exchange = GradientExchange(ranks, buckets(["w", "i"], ["table"], ["b"]))
        found: list[Any] = []
        for step in range(3):
            rows = SelectedRows(np.arange(1 + ranks.rank), np.full((1 + ranks.rank, 2), step, np.float32), 9)
            gradient = np.full((2, 2), ranks.rank + step, np.float32)
            exchange.post(0, [gradient, np.array([step], np.int64)])
            exchange.post(1, [rows])
            exchange.post(2, [np.ones(3)])
            sums = exchange.finish()
            found.append(
                [sums["w"].tolist(), sums["i"].tolist(), sums["b"].tolist(), sums["table"].rows.tolist()]
            )
            assert (gradient == ranks.rank + step).all()  # the pass may still read it
        exchange.close()
        return found

    expected = [[[[1 + 2 * step] * 2] * 2, [2 * step], [2.0] * 3, [0, 0, 1]] for step in range(3)]
    assert together(members(2), act) == [expected] * 2


class Refusing(Ranks):
    """One rank whose sums fail."""

    rank, size, ways = 0, 1, ()

    def all_reduce(self, arrays: Arrays) -> None:
        raise CollectiveError("rank 7 is gone", 7)

    def broadcast(self, arrays: Arrays, root: int = 0) -> None:
        raise NotImplementedError

    def fail(self, error: CollectiveError) -> CollectiveError:
        return error

    def close(self) -> None:
        """There is nothing to leave."""


def test_an_error_of_the_thread_ends_the_step() -> None:
    exchange = GradientExchange(Refusing(), buckets(["a"], ["b"]))
    exchange.post(0, [np.ones(2)])
    exchange.post(1, [np.ones(2)])
    with pytest.raises(CollectiveError, match="rank 7 is gone"):
        exchange.finish()
    exchange.close()


def test_a_step_that_fails_midway_ends_the_group_for_all() -> None:
    def act(ranks: Ranks) -> str:
        exchange = GradientExchange(ranks, buckets(["a"], ["b"]))
        try:
            exchange.post(0, [np.ones(2)])
            if ranks.rank == 1:
                exchange.abandon(ValueError("a bad batch"))
            exchange.post(1, [np.ones(2)])
            exchange.finish()
        except CollectiveError as error:
            return str(error)
        finally:
            exchange.close()
        return ""

    assert set(together(members(2), act)) == {"rank 1 failed in the middle of a step: a bad batch"}
