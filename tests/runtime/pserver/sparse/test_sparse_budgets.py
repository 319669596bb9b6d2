# SPDX-License-Identifier: Apache-2.0
"""Growing tables with a memory budget drop the rows that the plain table drops, in both forms, after any operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import GrowingTable
from paddle.pserver.sparse.blocks import ROW_DTYPES
from paddle.pserver.sparse.budget import Budget, faded, size_of, smallest
from paddle.pserver.sparse.eviction import Dropped
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.serving import GrowingShare
from paddle.pserver.sparse.spec import TableSpec
from tests.runtime.pserver.sparse.plain_table import PlainTable
from tests.runtime.pserver.sparse.test_sparse_tables_agree import assert_same, content, pool_of

WIDTH = 3
ROW = 4 * 2 * (WIDTH + 1) + 4 + 17  # with one state and a score

# A failing case is not made smaller: that takes minutes.
RANDOM = (Phase.explicit, Phase.reuse, Phase.generate)

pytestmark = pytest.mark.usefixtures("form")


def spec_of(
    budget: Budget, entry: int = 1, max_age: int = 0, l2: float = 0.0, dtype: str = "float32"
) -> TableSpec:
    parameter = ParameterSpec("emb", (1, WIDTH), l2=l2, sparse=True)
    return TableSpec(parameter, Initial.uniform(-0.5, 0.5, 11), entry, max_age, budget=budget, dtype=dtype)


def gradients(rng: np.random.Generator, pool: np.ndarray, count: int, wide: bool) -> list[RowGradient]:
    """Two gradients; with `wide`, the first one says shows and clicks."""
    found = []
    for columns in (WIDTH + 2 * wide, WIDTH):
        values = rng.standard_normal((count, columns)).astype(np.float32)
        values[:, WIDTH:] = rng.integers(0, 4, (count, columns - WIDTH))
        found.append(RowGradient(rng.choice(pool, count), values))
    return found


@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None, phases=RANDOM)
@given(
    st.lists(st.tuples(st.sampled_from("uuuuwaisrcd"), st.integers(0, 40)), max_size=12),
    st.sampled_from(["lru", "lfu", "score"]),
    st.sampled_from(["adagrad", "decayed_adagrad", "row_adagrad"]),
    st.sampled_from(ROW_DTYPES),
    st.integers(0, 2**32),
)
def test_any_operations_leave_the_rows_of_the_plain_table(
    operations: list[tuple[str, int]], evict: str, rule: str, dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pool = pool_of(rng, 60)
    scored = evict != "lru"
    budget = Budget(int(rng.integers(1, 60)) * ROW, evict, 0.9, 3.0, float(rng.choice([0, 0.5])) * scored)
    spec = spec_of(budget, int(rng.integers(1, 3)), int(rng.choice([0, 30])), 0.01, dtype)
    optimizer = OptimizerSpec(rule)
    one, other = HashTable(spec, optimizer), PlainTable(spec, optimizer)
    copies: list[tuple[Any, Any]] = []
    for what, count in operations:
        if what in "uw":
            steps = gradients(rng, pool, count, wide=what == "w" and scored)
            one.update(steps, 0.1)
            other.update(steps, 0.1)
        elif what == "a":
            ids = np.unique(rng.choice(pool, count))
            values = rng.standard_normal((len(ids), WIDTH)).astype(np.float32)
            one.assign(ids, values)
            other.assign(ids, values)
        elif what == "i":
            for _ in range(4 * count):
                one.update([], 0.1)
                other.update([], 0.1)
        elif what == "s" and scored:
            assert one.shrink(count / 10) == other.shrink(count / 10)
        elif what == "c":
            one.catch_up(0.1)
            other.catch_up(0.1)
        elif what == "d":
            snapshot = one.snapshot(copies[-1][0].clock if copies else None)
            steps = gradients(rng, pool, count, wide=False)  # while the copy is under way
            one.update(steps, 0.1)
            other.update(steps, 0.1)
            copies.append((snapshot.header, list(snapshot)))
        else:
            snapshot = one.snapshot(copies[-1][0].clock if copies else None)
            copies.append((snapshot.header, list(snapshot)))
            one = HashTable(spec, optimizer)
            for header, blocks in copies:
                one.forget(header.dropped)
                for block in blocks:
                    one.fill(block)
            one.resume(copies[-1][0])
            copies = []
        assert len(one) == len(other)
    assert_same(one, other, pool)
    assert one.snapshot().header.hand == other.header.hand


@pytest.mark.parametrize("evict", ["lru", "lfu", "score"])
def test_a_batch_that_is_larger_than_the_memory_is_carried_out(evict: str) -> None:
    spec = spec_of(Budget(10 * ROW, evict))
    table, plain = HashTable(spec, OptimizerSpec("adagrad")), PlainTable(spec, OptimizerSpec("adagrad"))
    steps = [RowGradient(np.arange(100), np.ones((100, WIDTH), np.float32))]
    table.update(steps, 0.1)
    plain.update(steps, 0.1)
    assert 0 < len(table) <= (11 if evict == "lru" else 10)
    assert_same(table, plain, np.arange(100))
    assert (table.counts.asked, table.counts.found) == (100, 0)
    assert table.counts.dropped == 100 - len(table)


def test_rows_in_use_stay_and_one_time_ids_leave() -> None:
    rng = np.random.default_rng(5)
    budget = Budget(2000 * ROW)
    table = HashTable(spec_of(budget), OptimizerSpec("adagrad"))
    used = np.arange(500)
    for _ in range(40):
        ids = np.concatenate((used, rng.integers(1 << 40, 1 << 41, 500)))
        table.update([RowGradient(ids, np.ones((1000, WIDTH), np.float32))], 0.1)
    assert table.nbytes < 1.5 * budget.memory + 300_000  # empty indexes take that
    zero = table.lookup(used, "zero")
    assert (zero != 0).all()  # no row that every batch uses has left
    assert 1500 < len(table) <= 2000 * ROW // (ROW - 8)
    assert table.counts.found == 39 * 500


@pytest.mark.parametrize("evict", ["lru", "lfu", "score"])
def test_rows_of_three_servers_stay_within_the_memory_of_one(evict: str) -> None:
    most, often = 300, np.arange(30)
    spec = spec_of(Budget(most * ROW, evict))
    table = HashTable(spec, OptimizerSpec("adagrad"))
    table.clock = 5  # as the checkpoint says
    for server in range(3):
        other = HashTable(spec, OptimizerSpec("adagrad"))
        for batch in range(5):
            ids = 10_000 * server + np.concatenate([often, 1000 * batch + np.arange(100, 140)])
            other.update([RowGradient(ids, np.ones((len(ids), WIDTH), np.float32))], 0.1)
        for block in other.snapshot():
            table.fill(block)
            assert len(table) <= most * ROW // (ROW - 4 * 2 * (evict == "lru"))
    for server in range(3):  # the rows that every batch used
        assert (table.lookup(10_000 * server + often, "zero") != 0).all()


def test_the_memory_of_sightings_counts_and_is_bounded() -> None:
    table = HashTable(spec_of(Budget(400 * ROW), entry=2), OptimizerSpec("adagrad"))
    for turn in range(50):
        ids = np.arange(turn * 100, turn * 100 + 100)
        table.update([RowGradient(ids, np.ones((100, WIDTH), np.float32))], 0.1)
    first, second = table.snapshot().header.waiting
    assert 0 < 17 * (len(first.ids) + len(second.ids)) < 100 * ROW + 2 * 1700


def test_shrink_needs_scores_and_names_the_table() -> None:
    with pytest.raises(
        PserverError, match='table emb: shrink needs scores; create the table with evict="lfu"'
    ):
        HashTable(spec_of(Budget()), OptimizerSpec("adagrad")).shrink(1.0)


def test_gradients_with_shows_and_clicks_are_checked() -> None:
    share = GrowingShare(spec_of(Budget(0, "score")), 0, 1)
    good = RowGradient(np.arange(2), np.ones((2, WIDTH + 2), np.float32))
    share.check(good)
    share.check(RowGradient(np.arange(2), np.ones((2, WIDTH), np.float32)))
    with pytest.raises(PserverError, match="expected shows and clicks from 0 to 1e"):
        share.check(good._replace(values=-good.values))
    values = good.values.copy()
    values[0, 0] = np.nan
    with pytest.raises(PserverError, match="contains NaN"):
        share.check(good._replace(values=values))
    with pytest.raises(PserverError, match=r"expected \(2, 3\) float32, got"):
        GrowingShare(spec_of(Budget()), 0, 1).check(good)


def test_what_was_dropped_is_known_as_far_back_as_there_is_room() -> None:
    dropped = Dropped()
    for clock in range(1, 5):
        dropped.add(np.arange(1 << 14) + (clock << 20), clock, 0)
    assert dropped.can_tell_since(0)
    dropped.add(np.arange(3), 5, 0)
    assert not dropped.can_tell_since(0)
    assert dropped.can_tell_since(1)
    assert dropped.since(5).tolist() == [0, 1, 2]
    assert len(dropped.since(None)) == 0


def test_scores_fade_by_products_of_powers() -> None:
    powers = Budget(0, "score", 0.99).powers()
    found = faded(np.full(4, 2.0, np.float32), np.array([0, 1, 5, 300], np.uint32), powers)
    np.testing.assert_allclose(found, 2 * 0.99 ** np.array([0, 1, 5, 300]), rtol=1e-12)


def test_the_smallest_by_several_keys() -> None:
    rng = np.random.default_rng(3)
    keys = [rng.integers(0, 4, 200), rng.integers(0, 4, 200), rng.permutation(200)]
    expected = np.lexsort(keys[::-1])
    for count in (0, 1, 17, 150, 200, 300):
        assert set(smallest(count, keys).tolist()) == set(expected[:count].tolist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8GB", 8 << 30), ("512 MB", 512 << 20), ("1.5kB", 1536), ("2TiB", 2 << 40), ("70", 70), (5, 5)],
)
def test_sizes(text: str | int, expected: int) -> None:
    assert size_of(text) == expected
    assert GrowingTable(4, memory=text).memory == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"memory": "8 apples"}, 'memory: expected a size, such as "8GB"'),
        ({"memory": -1}, "memory: expected a number of bytes"),
        ({"evict": "oldest"}, "evict: expected one of lru, lfu, score, got 'oldest'"),
        ({"evict": "score", "decay": 0}, "decay: expected a number above 0"),
        ({"evict": "score", "decay": 2}, "decay: expected a number from 0 to 1"),
        ({"min_score": 1.0}, "min_score: rows have a score only with"),
        ({"memroy": 1}, "unknown argument 'memroy': did you mean memory"),
    ],
)
def test_what_is_wrong_with_a_budget_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GrowingTable(4, **arguments)


def test_a_spec_travels_and_one_without_a_budget_is_read() -> None:
    spec = spec_of(Budget(1 << 20, "score", 0.5, 2.0, 0.25))
    said = spec.to_json()
    assert TableSpec.from_json(said) == spec
    del said["budget"]
    assert TableSpec.from_json(said).budget == Budget()
    assert content(HashTable(spec, OptimizerSpec("sgd")).snapshot()) == {}
