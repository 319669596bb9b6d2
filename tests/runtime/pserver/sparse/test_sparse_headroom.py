# SPDX-License-Identifier: Apache-2.0
"""A growing table needs no more memory than a batch takes, and is whole after memory or a disk failed."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.blocks import Block
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.index import Index, PlainIndex
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.slabs import RowMemoryError
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.tiered_table import TieredTable
from tests.runtime.pserver.sparse.test_sparse_tables_agree import content

WIDTH, LIMIT_S = 8, 100.0
SPEC = TableSpec(ParameterSpec("emb", (1, WIDTH), sparse=True))
HALF = replace(SPEC, dtype="float16")
ADAGRAD, SGD = OptimizerSpec("adagrad"), OptimizerSpec("sgd")
LIMITED = """
import resource
from pathlib import Path
import numpy as np
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.slabs import Slabs
from paddle.pserver.sparse.spec import TableSpec

def allow(nbytes):
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + nbytes, now + nbytes))
"""
REPEATS = """
table = HashTable(TableSpec(ParameterSpec("emb", (1, 64), sparse=True)), OptimizerSpec("adagrad"))
known, often = np.arange(1000), np.arange(600_000) % 1000
table.update([RowGradient(known, np.ones((1000, 64), np.float32))], 0.1)
values = np.ones((600_000, 64), np.float32)
allow(150 << 20)
table.update([RowGradient(often, values)], 0.1)
assert (len(table), table.clock) == (1000, 2)
"""
AT_ONCE = """
slabs = Slabs(64, 2, Initial("constant", 0.0))
slab = 16_900_000  # bytes
allow(24 * slab)
slabs.reserve(5 * slab // slabs.row_bytes, 0)
np.empty(12 * slab, np.uint8)
slabs.reserve(20 * slab // slabs.row_bytes, 0)
"""


def ones(ids: np.ndarray) -> RowGradient:
    return RowGradient(ids, np.ones((len(ids), WIDTH), np.float32))


def block_of(ids: np.ndarray, value: float, table: HashTable) -> Block:
    parts, part = table.shape
    return Block(ids, np.full((parts, len(ids), part), value, np.float32), np.ones(len(ids), np.uint32))


@pytest.mark.parametrize("script", [REPEATS, AT_ONCE])
def test_a_limit_of_memory_refuses_only_what_does_not_fit(script: str) -> None:
    argv = [sys.executable, "-P", "-c", LIMITED + script]
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[4] / "runtime"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("kind", [HashTable, TieredTable])
def test_rows_without_room_in_the_index_leave_the_table_unchanged(
    kind: type[HashTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(60 * 100, disk=str(tmp_path)) if kind is TieredTable else Budget()
    table = kind(replace(SPEC, budget=budget), SGD)
    ids = np.arange(200)
    table.update([ones(ids)], 0.1)
    before = content(table.snapshot()), len(table), table.nbytes

    def refuse(*_: object) -> None:
        raise MemoryError("no memory for the index")

    block = block_of(np.arange(100, 300), 2.0, table)
    with monkeypatch.context() as patch:
        for index in (Index, PlainIndex):
            patch.setattr(index, "insert", refuse)
        for _ in range(3):
            with pytest.raises(MemoryError):
                table.fill(block)
            if kind is TieredTable:
                with pytest.raises(MemoryError):
                    table.reserve([ones(ids)], 0.1)
    assert (content(table.snapshot()), len(table), table.nbytes) == before
    table.fill(block)
    assert len(table) == 300
    np.testing.assert_array_equal(table.lookup(np.arange(100, 300)), block.parts[0])


def test_an_import_without_memory_loses_no_row_on_disk(tmp_path: Path) -> None:
    table = TieredTable(replace(SPEC, budget=Budget(60 * 100, disk=str(tmp_path)), max_rows=300), SGD)
    table.update([ones(np.arange(200))], 0.1)
    before = content(table.snapshot())
    with pytest.raises(PserverError, match="300 rows on one server"):
        table.fill(block_of(np.arange(150, 350), 2.0, table))
    wrong = block_of(np.arange(200), 2.0, table)
    with pytest.raises(PserverError, match="rows to restore: expected"):
        table.fill(wrong._replace(parts=wrong.parts[:, :9]))
    assert content(table.snapshot()) == before
    table.fill(block_of(np.arange(150, 300), 2.0, table))
    assert len(table) == 300


def test_no_gradient_outlives_its_batch_and_rows_of_an_import_are_checked() -> None:
    table = HashTable(HALF, SGD)
    steps = [RowGradient(np.arange(9), np.full((9, WIDTH), -6e4, np.float32))]
    table.reserve(steps, 1.0)
    table.fill(block_of(np.arange(9), 6e4, table))
    with pytest.raises(PserverError, match=r"row 0: 120000 is .* float16"):
        table.reserve(steps, 1.0)
    values = np.ones((9, WIDTH), np.float32)
    held = weakref.ref(values)
    table.update([RowGradient(np.arange(9), values)], 1.0)
    del values
    gc.collect()
    assert held() is None


def test_a_servers_share_of_a_float16_block_is_chosen_before_it_is_widened() -> None:
    ids, spec = np.arange(40_000), replace(HALF, parameter=ParameterSpec("emb", (1, 64), sparse=True))
    whole = HashTable(spec, SGD)
    whole.update([RowGradient(ids, np.ones((len(ids), 64), np.float32))], 0.1)
    (arrays, *more) = [block.stored(spec.halves) for block in whole.snapshot()]
    served = ServedTable(GrowingShare(spec, 3, 16), SGD)
    tracemalloc.start()
    try:
        for each in (arrays, *more):
            served.fill(each)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    mine = ids[served.share.holds(ids)]
    np.testing.assert_array_equal(served.rows(mine), whole.lookup(mine))
    assert most < sum(each.nbytes for each in arrays.values())


def test_a_refusal_for_memory_names_the_new_rows_alone() -> None:
    def refuse(nbytes: int) -> np.ndarray:
        raise MemoryError(nbytes)

    table = HashTable(SPEC, SGD, refuse)
    with pytest.raises(RowMemoryError, match="no memory for 7 more rows"):
        table.update([ones(np.arange(1000) % 7)], 0.1)
    assert (table.clock, len(table)) == (0, 0)


@pytest.mark.usefixtures("form")
def test_a_step_without_reserved_memory_fails_and_writes_nowhere() -> None:
    table = HashTable(SPEC, SGD)
    with pytest.raises(RowMemoryError, match="table emb: 9 rows are not reserved"):
        table.apply([ones(np.arange(9))], 0.1)
