# SPDX-License-Identifier: Apache-2.0
"""Growing tables of dtype float16: a batch whose results are out of range changes nothing; rows take less memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.errors import CheckpointError, ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.blocks import Block
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.formulas import Formulas
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.mixing import segments_of
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.tiered_table import TieredTable
from paddle.pserver.sparse.walk import TableRows
from tests.runtime.pserver.sparse.test_sparse_tables_agree import COMPILED, content

WIDTH = 5
SPEC = TableSpec(ParameterSpec("emb", (1, WIDTH), sparse=True), Initial.normal(0.0, 0.1, 3), dtype="float16")
SGD = OptimizerSpec("sgd")
RULES = {
    "sgd": (SGD, 3e5, 0.0),
    "descent": (OptimizerSpec("momentum"), 3e5, 0.0),
    "momentum": (OptimizerSpec("momentum"), 3e5, 0.9),
    "fluid_adagrad": (OptimizerSpec("fluid_adagrad"), 2e5, 0.0),
    "tiny epsilon": (OptimizerSpec("fluid_adagrad", {"epsilon": 1e-30}), 2e5, 0.0),
    "row_adagrad": (OptimizerSpec("row_adagrad"), 2e5, 0.0),
    "lazy_adam": (OptimizerSpec("lazy_adam"), 2e5, 0.0),
    "rmsprop": (OptimizerSpec("rmsprop"), 2e5, 0.0),
}

pytestmark = pytest.mark.usefixtures("form")


def gradient(ids: list[int], value: float) -> RowGradient:
    return RowGradient(np.array(ids), np.full((len(ids), WIDTH), value, np.float32))


def all_of(ids: np.ndarray) -> np.ndarray:
    return np.ones(len(ids), np.bool_)


def coast(table: HashTable, batches: int) -> None:
    for _ in range(batches):
        table.update([gradient([7], 0.0)], 2.5e4)


def row_with(value: float) -> HashTable:
    table = HashTable(SPEC, SGD)
    table.assign(np.array([7]), np.full((1, WIDTH), value, np.float32))
    return table


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("folder", [False, True])
def test_a_batch_that_would_overflow_is_refused_whole(name: str, folder: bool, tmp_path: Path) -> None:
    optimizer, rate, momentum = RULES[name]
    spec = replace(SPEC, parameter=replace(SPEC.parameter, momentum=momentum))
    spec = replace(spec, budget=Budget(40 * 30, disk=str(tmp_path))) if folder else spec
    table: HashTable = (TieredTable if folder else HashTable)(spec, optimizer)
    ids = list(range(60))
    for _ in range(3):
        table.update([gradient(ids, 0.3), gradient(ids[::2], -0.1)], 0.1)
    before = content(table.snapshot()), table.clock, len(table)
    with pytest.raises(PserverError, match=r"table emb, row \d+: .* float16 .*65504.*; nothing was"):
        table.update([gradient([*ids, 1000], 0.5), gradient([2000], 1.0)], rate)
    assert (content(table.snapshot()), table.clock, len(table)) == before
    table.update([gradient(ids, 0.3)], 0.1)
    assert table.clock == before[1] + 1
    for block in table.snapshot():
        assert np.isfinite(block.parts).all()


@pytest.mark.parametrize("is_imported", [False, True])
@pytest.mark.parametrize("rule", ["momentum", "adagrad"])
def test_momentum_alone_is_refused_where_it_leaves_the_range(rule: str, is_imported: bool) -> None:
    spec = replace(SPEC, parameter=replace(SPEC.parameter, momentum=0.7))
    optimizer = OptimizerSpec(rule, learning_rate=2.5e4)
    table = HashTable(spec, optimizer)
    table.update([gradient([7], 1.0)], 2.5e4)
    if is_imported:
        blocks, table = list(table.snapshot()), HashTable(spec, optimizer)
        for block in blocks:
            table.fill(block)
    found = []
    for _ in range(2):
        with pytest.raises(PserverError, match=r"row 7: -[67]"):
            coast(table, 40)
        found.append(table.lookup(np.array([7])))
    assert (found[0] < -60_000).all()
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_limit_is_what_rounds_to_infinity(sign: int) -> None:
    below, above = np.float32(65519.996), np.float32(65520.0)
    assert np.nextafter(below, above) == above
    for optimizer in (SGD, OptimizerSpec("adadelta")):
        table = HashTable(SPEC, optimizer)
        with pytest.raises(PserverError, match=rf"row 7: {'-' if sign < 0 else ''}65520 is .* 65504"):
            table.assign(np.array([7]), np.full((1, WIDTH), sign * above))
        table.assign(np.array([7]), np.full((1, WIDTH), sign * below))
        assert (table.lookup(np.array([7])) == sign * 65504).all()
    table = row_with(0.0)
    table.update([gradient([7], -sign * float(below))], 1.0)
    assert (table.lookup(np.array([7])) == sign * 65504).all()
    table = row_with(0.0)
    with pytest.raises(PserverError, match="row 7: "):
        table.update([gradient([7], -sign * float(above))], 1.0)
    assert (table.lookup(np.array([7])) == 0).all()


def test_a_sum_that_only_rounding_puts_out_of_range_is_refused() -> None:
    table = HashTable(replace(SPEC, initial=Initial("constant", 0.0)), SGD)
    often = RowGradient(np.zeros(200_000, np.int64), np.full((200_000, WIDTH), 0.32716, np.float32))
    with pytest.raises(PserverError, match="row 0: "):  # exactly 65,432, but a sum in float32 exceeds 65,520
        table.update([often], 1.0)
    assert len(table) == 0


def test_only_the_sum_of_all_gradients_counts() -> None:
    table = row_with(60_000.0)
    table.update([gradient([7], -50_000.0), gradient([7], 49_000.0)], 1.0)
    assert (table.lookup(np.array([7])) == 60_992).all()
    with pytest.raises(PserverError, match="row 7: "):
        table.update([gradient([7], -3000.0), gradient([7], -3000.0)], 1.0)
    with pytest.raises(PserverError, match="row 8: nan"):
        table.update([gradient([8], 3e38), gradient([8], 3e38), gradient([8, 8], -3e38)], 0.0)


def test_ids_without_a_row_count_only_if_they_get_one() -> None:
    table = HashTable(replace(SPEC, entry=2), SGD)
    table.update([gradient([5], 1e6)], 1.0)
    with pytest.raises(PserverError, match="row 5: "):
        table.update([gradient([5], 1e6)], 1.0)
    table.update([gradient([5], 1.0)], 1.0)
    assert len(table) == 1


def test_a_row_that_the_batch_drops_for_its_age_begins_anew() -> None:
    table = HashTable(replace(SPEC, max_age=3), SGD)
    (row,) = [each for each in range(5000) if segments_of(np.array([each]))[0] == 9][:1]
    table.update([gradient([row], -50_000.0)], 1.0)
    assert (table.lookup(np.array([row])) > 49_000).all()
    for _ in range(7):
        table.update([], 1.0)
    assert len(table) == 1  # the sweep reaches its segment in batch 9
    table.update([gradient([row], -50_000.0)], 1.0)
    assert (table.lookup(np.array([row])) < 51_000).all()
    assert table.counts.dropped == 1


@pytest.mark.parametrize(
    ("rule", "states"), [("fluid_adagrad", [-1.0] * 5), ("lazy_adam", [1000.0] * 5 + [1e-30] * 5)]
)
def test_states_that_no_step_leaves_do_not_get_past_the_check(rule: str, states: list[float]) -> None:
    served = ServedTable(GrowingShare(SPEC, 0, 1), OptimizerSpec(rule, {"epsilon": 1e-6}))
    ones, ages = np.ones((1, WIDTH), np.float32), np.zeros(1, np.int32)
    rows = TableRows(np.array([7]), ones, ages, np.array([states], np.float32))
    served.put(rows)
    with pytest.raises(PserverError, match="row 7: "):
        served.update([gradient([7], 1.0 if rule == "fluid_adagrad" else 0.0)], 0.1)
    with pytest.raises(PserverError, match="row 7: 70000 is"):
        served.put(rows._replace(rows=np.full((1, WIDTH), 7e4, np.float32)))


@pytest.mark.parametrize("name", COMPILED)
def test_no_step_moves_a_value_further_than_its_bound(name: str) -> None:
    optimizer, momentum = COMPILED[name]
    parameter = ParameterSpec("emb", (1, WIDTH), momentum=momentum, sparse=True)
    formulas, rng = Formulas(optimizer, parameter), np.random.default_rng(3)
    table, ids = HashTable(TableSpec(parameter), optimizer), np.arange(40)
    moved = 0.0
    for turn in range(60):
        size = 10.0 ** rng.integers(-40, 17 if turn % 3 else -20, (40, 1))
        values = (rng.standard_normal((40, WIDTH)) * size).astype(np.float32)
        values[rng.random(40) < 0.5] = 0.0
        before = table.lookup(ids).astype(np.float64)
        table.update([RowGradient(ids, values)], 0.1)
        after = table.lookup(ids)
        formula = formulas.at(table.clock, 0.1)
        assert formula is not None
        bound = formula.most_moved(float(np.abs(values).max()), WIDTH, moved)
        moved = max(moved, bound)
        slack = 1e-6 * max(np.abs(before).max(), np.abs(after).max())
        assert np.abs(after - before).max() <= bound + slack
        (block,) = table.snapshot()
        assert formula.is_sound(block.parts, WIDTH)
        assert formula.momentum(block.parts) <= moved
    assert moved < np.inf


def test_initial_rows_are_rounded_once_and_lookups_have_them() -> None:
    ids = np.arange(-50, 50)
    expected = SPEC.initial.rows(ids, WIDTH).astype(np.float16).astype(np.float32)
    table = HashTable(SPEC, SGD)
    assert table.lookup(ids).tobytes() == expected.tobytes()
    table.update([gradient(ids.tolist(), 0.0)], 0.1)
    assert table.lookup(ids).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"dtype": "half"}, "dtype: expected float32 or float16, got 'half'"),
        ({"initial": Initial("constant", 65520.0)}, "initial values: expected at most 65504"),
        ({"initial": Initial.normal(0.0, 10_000.0, 1)}, "initial values: expected at most 65504"),
    ],
)
def test_descriptions_that_cannot_be_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"table emb: {why}"):
        replace(SPEC, **changed)


def test_float32_tables_travel_as_before_and_float16_by_name() -> None:
    plain = replace(SPEC, dtype="float32")
    assert "dtype" not in plain.to_json()
    assert TableSpec.from_json(plain.to_json()) == plain
    assert SPEC.to_json()["dtype"] == "float16"
    assert TableSpec.from_json(SPEC.to_json()) == SPEC


@pytest.mark.parametrize(("width", "less"), [(16, 32), (1, 0), (5, 8)])
def test_rows_take_less_memory_and_a_budget_holds_more(width: int, less: int, tmp_path: Path) -> None:
    rows, files = {}, {}
    for dtype in ("float32", "float16"):
        for folder in ("", str(tmp_path)):
            parameter = ParameterSpec("emb", (1, width), sparse=True)
            spec = TableSpec(parameter, budget=Budget(600_000, disk=folder), dtype=dtype)
            table = (TieredTable if folder else HashTable)(spec, OptimizerSpec("adagrad"))
            for start in range(0, 15_000, 1000):
                values = np.ones((1000, width), np.float32)
                table.update([RowGradient(np.arange(start, start + 1000), values)], 0.1)
            if folder:
                files[dtype] = 12 + (8 * width if dtype == "float32" else 8 * width - less)
                assert table.disk_bytes % files[dtype] == 0
            else:
                rows[dtype] = len(table)
    full = 8 * width + 4 + 17
    assert rows["float32"] <= 600_000 // full
    gain = full / (full - less)
    assert abs(rows["float16"] / rows["float32"] - gain) < 0.15


@pytest.mark.parametrize("width", [1, 2, 5, 16])
@pytest.mark.parametrize("rule", ["sgd", "row_adagrad", "lazy_adam"])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_blocks_of_checkpoints_come_back_bit_by_bit(width: int, rule: str, count: int) -> None:
    spec = replace(SPEC, parameter=ParameterSpec("emb", (1, width), sparse=True))
    table = HashTable(spec, OptimizerSpec(rule))
    rng = np.random.default_rng(width)
    values = rng.standard_normal((count, width)).astype(np.float32)
    table.update([RowGradient(np.arange(count), values)], 0.1)
    for block in table.snapshot():
        stored = block.stored(spec.halves)
        assert sum(each.nbytes for each in stored.values()) == count * (
            8 + 4 + 4 * ((width + 1) // 2 + table.state_size)
        )
        again = Block.read(stored, "emb", table.shape, spec.halves, all_of)
        for name in Block._fields:
            assert getattr(again, name).tobytes() == getattr(block, name).tobytes()
        with pytest.raises(CheckpointError, match=r"dtype float16.* dtype float32"):
            Block.read(stored, "emb", table.shape, 0, all_of)
        with pytest.raises(CheckpointError, match="emb: rows to restore: expected"):
            Block.read(stored, "emb", (table.shape[0] + 1, table.shape[1]), spec.halves, all_of)
