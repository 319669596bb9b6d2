# SPDX-License-Identifier: Apache-2.0
"""The compiled growing table and the plain one hold bitwise the same after any operations; so do update rules."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.blocks import ROW_DTYPES, Block
from paddle.pserver.sparse.formulas import Formulas
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from tests.runtime.pserver.sparse.plain_table import PlainTable
from tests.runtime.pserver.sparse.table_of_rows import restore

WIDTH = 5
EXTREMES = (0, 1, -1, 2**63 - 1, -(2**63))
RULES = [
    *("momentum", "adagrad", "decayed_adagrad", "adadelta", "rmsprop", "sgd", "lazy_adam", "fluid_adagrad"),
    "row_adagrad",
]
COMPILED = {
    "sgd": (OptimizerSpec("sgd"), 0.0),
    "descent": (OptimizerSpec("momentum"), 0.0),
    "momentum": (OptimizerSpec("momentum"), 0.9),
    "adagrad": (OptimizerSpec("adagrad", {"epsilon": 1e-6}), 0.0),
    "adagrad with momentum": (OptimizerSpec("adagrad"), 0.7),
    "fluid_adagrad": (OptimizerSpec("fluid_adagrad", {"initial_accumulator_value": 0.1}), 0.0),
    "lazy_adam": (OptimizerSpec("lazy_adam"), 0.0),
    "row_adagrad": (OptimizerSpec("row_adagrad", {"initial_accumulator_value": 0.1}), 0.0),
}


def spec_of(
    entry: int = 1,
    max_age: int = 0,
    momentum: float = 0.0,
    l2: float = 0.0,
    l1: float = 0.0,
    clip: float = 0.0,
    dtype: str = "float32",
) -> TableSpec:
    parameter = ParameterSpec("emb", (1, WIDTH), momentum=momentum, l2=l2, l1=l1, clip=clip, sparse=True)
    return TableSpec(parameter, Initial.uniform(-0.5, 0.5, 11), entry, max_age, dtype=dtype)


def gradient(rng: np.random.Generator, pool: np.ndarray, count: int) -> RowGradient:
    ids = rng.choice(pool, count)
    return RowGradient(ids, rng.standard_normal((count, WIDTH)).astype(np.float32))


pytestmark = pytest.mark.usefixtures("form")


def content(blocks: Iterable[Block]) -> dict[int, tuple[bytes, int]]:
    found: dict[int, tuple[bytes, int]] = {}
    for block in blocks:
        for i, row_id in enumerate(block.ids.tolist()):
            assert row_id not in found
            found[row_id] = (block.parts[:, i].tobytes(), int(block.ticks[i]))
    return found


def waiting(table: HashTable | PlainTable) -> list[dict[int, int]]:
    generations = table.snapshot().header.waiting
    return [dict(zip(ids.tolist(), counts.tolist(), strict=True)) for ids, counts in generations]


def assert_same(one: HashTable, other: PlainTable, probe: np.ndarray) -> None:
    assert (len(one), one.clock) == (len(other), other.clock)
    np.testing.assert_array_equal(one.lookup(probe), other.lookup(probe))
    np.testing.assert_array_equal(one.lookup(probe, "zero"), other.lookup(probe, "zero"))
    assert content(one.snapshot()) == content(other.snapshot())
    assert waiting(one) == waiting(other)


def pool_of(rng: np.random.Generator, count: int) -> np.ndarray:
    drawn = rng.integers(-(2**63), 2**63 - 1, count)
    return np.concatenate([np.array(EXTREMES), drawn, np.arange(-20, 20) * 2**40])


@pytest.mark.parametrize("dtype", ROW_DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_gives_the_same_rows_in_both_forms(rule: str, dtype: str) -> None:
    rng = np.random.default_rng(RULES.index(rule))
    pool = pool_of(rng, 60)
    spec = spec_of(l2=0.01, clip=0.8, dtype=dtype)
    tables = HashTable(spec, OptimizerSpec(rule)), PlainTable(spec, OptimizerSpec(rule))
    for turn in range(30):
        gradients = [gradient(rng, pool, int(rng.integers(0, 40))) for _ in range(turn % 4)]
        for table in tables:
            table.update(gradients, 0.1)
            if turn % 11 == 10:
                table.catch_up(0.1)
    assert_same(*tables, pool)


def test_momentum_acts_on_touched_rows_alone() -> None:
    rng = np.random.default_rng(3)
    pool = pool_of(rng, 20)
    spec = spec_of(momentum=0.9)
    tables = HashTable(spec, OptimizerSpec("momentum")), PlainTable(spec, OptimizerSpec("momentum"))
    for table in tables:
        table.update([RowGradient(np.array([7]), np.ones((1, WIDTH), np.float32))], 0.1)
    before = tables[0].lookup(np.array([7]))
    for _ in range(10):
        step = gradient(rng, pool, 20)
        for table in tables:
            table.update([step], 0.1)
    np.testing.assert_array_equal(tables[0].lookup(np.array([7])), before)
    assert_same(*tables, pool)


@pytest.mark.parametrize("dtype", ROW_DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_growth_entry_filter_and_eviction_agree_over_thousands_of_batches(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    pool = pool_of(rng, 400)
    spec = spec_of(entry=1 + seed, max_age=(0, 40, 700, 900)[seed], l1=0.001 * (seed == 3), dtype=dtype)
    tables = HashTable(spec, OptimizerSpec("adagrad")), PlainTable(spec, OptimizerSpec("adagrad"))
    for turn in range(1500):
        steps = [] if turn % 5 else [gradient(rng, pool[: 20 + turn // 6], 3)]
        for table in tables:
            table.update(steps, 0.05)
    assert len(tables[0]) > 10
    assert_same(*tables, pool)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("assign"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("idle"), st.integers(1, 400), st.just(0)),
        st.tuples(st.just("catch_up"), st.just(0), st.just(0)),
        st.tuples(st.just("restore"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    OPERATIONS,
    st.integers(1, 3),
    st.sampled_from([0, 50, 600]),
    st.integers(0, 2**32),
    st.sampled_from(["decayed_adagrad", "row_adagrad"]),
    st.sampled_from(ROW_DTYPES),
)
def test_any_operations_in_any_order_agree(
    operations: list[tuple[str, int, int]], entry: int, max_age: int, seed: int, rule: str, dtype: str
) -> None:
    rng = np.random.default_rng(seed)
    pool = pool_of(rng, 30)
    spec, optimizer = spec_of(entry, max_age, l2=0.02, dtype=dtype), OptimizerSpec(rule)
    one, other = HashTable(spec, optimizer), PlainTable(spec, optimizer)
    for name, first, second in operations:
        if name == "update":
            steps = [gradient(rng, pool, second) for _ in range(first)]
            one.update(steps, 0.1)
            other.update(steps, 0.1)
        elif name == "assign":
            ids, values = gradient(rng, pool, first)
            one.assign(ids, values)
            other.assign(ids, values)
        elif name == "idle":
            for _ in range(first):
                one.update([], 0.1)
                other.update([], 0.1)
        elif name == "catch_up":
            one.catch_up(0.1)
            other.catch_up(0.1)
        else:
            snapshot, plain_snapshot = one.snapshot(), other.snapshot()
            one, other = HashTable(spec, optimizer), PlainTable(spec, optimizer)
            restore(one, snapshot.header, list(snapshot))
            other.restore(plain_snapshot.header, plain_snapshot)
    assert_same(one, other, pool)


def test_a_table_that_is_full_refuses_a_batch_and_changes_no_row() -> None:
    rng = np.random.default_rng(0)
    spec = TableSpec(ParameterSpec("emb", (1, WIDTH), sparse=True), max_rows=10)
    table = HashTable(spec, OptimizerSpec("adagrad"))
    table.update([RowGradient(np.arange(8), np.ones((8, WIDTH), np.float32))], 0.1)
    before = content(table.snapshot()), table.clock
    with pytest.raises(PserverError, match="emb: 3 new rows in addition to 8 would exceed the limit of 10"):
        table.update([RowGradient(np.arange(5, 11), rng.standard_normal((6, WIDTH)).astype(np.float32))], 0.1)
    assert (content(table.snapshot()), table.clock) == before


@pytest.mark.parametrize("width", [1, 19, 64])
@pytest.mark.parametrize(
    "decays", [{}, {"l1": 0.003, "l2": 0.02, "clip": 0.9}], ids=["plain", "clip and decay"]
)
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("dtype", ROW_DTYPES)
def test_a_compiled_formula_gives_the_bits_of_the_rule(
    name: str, decays: bool, width: int, dtype: str
) -> None:
    optimizer, momentum = COMPILED[name]
    l1, l2, clip = (0.0 if momentum else 0.003, 0.02, 0.9) if decays else (0.0, 0.0, 0.0)
    parameter = ParameterSpec("emb", (1, width), momentum=momentum, l1=l1, l2=l2, clip=clip, sparse=True)
    assert Formulas(optimizer, parameter).at(1, 0.1) is not None
    spec = TableSpec(parameter, Initial.normal(0.0, 0.5, 3), dtype=dtype)
    tables = HashTable(spec, optimizer), PlainTable(spec, optimizer)
    rng = np.random.default_rng(width)
    for turn in range(6):
        ids = rng.integers(-20, 20, 40)
        # Sums that cancel, and sizes from the smallest to large, so that every rounding shows.
        values = (rng.standard_normal((40, width)) * 10.0 ** rng.integers(-30, 3, (40, 1))).astype(np.float32)
        for table in tables:
            table.update([RowGradient(ids, values), RowGradient(ids[::2], -values[::2])], 0.3 / (1 + turn))
            if turn == 3:
                table.catch_up(0.1)
    probe = np.arange(-20, 20)
    np.testing.assert_array_equal(tables[0].lookup(probe), tables[1].lookup(probe))
    one, other = (
        {
            row_id: (block.parts[:, i].tobytes(), block.ticks[i])
            for block in table.snapshot()
            for i, row_id in enumerate(block.ids.tolist())
        }
        for table in tables
    )
    assert one == other


def test_rules_without_a_compiled_formula_say_so() -> None:
    parameter = ParameterSpec("emb", (1, 4), sparse=True)
    for rule in ("decayed_adagrad", "adadelta", "rmsprop"):
        assert Formulas(OptimizerSpec(rule), parameter).at(1, 0.1) is None
