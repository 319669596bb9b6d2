# SPDX-License-Identifier: Apache-2.0
"""A growing table where no library of kernels fits, and one that is restored from the reference."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle.kernels import library
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.spec import TableSpec
from tests.runtime.pserver.sparse.plain_table import PlainTable
from tests.runtime.pserver.sparse.table_of_rows import restore

RUNTIME = Path(__file__).resolve().parents[4] / "runtime"
LIMIT_S = 100.0
FIRST = """
import numpy as np
from paddle.kernels import library
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.spec import TableSpec

spec = TableSpec(ParameterSpec("emb", (1, 4), sparse=True), Initial.normal(0.0, 0.1, 3))
served = ServedTable(GrowingShare(spec, 0, 1), OptimizerSpec("adagrad"))
ids = np.arange(50_000) % 20_000
for _ in range(3):
    steps = [RowGradient(ids, np.ones((len(ids), 4), np.float32))]
    served.update(steps, 0.1)
print(library.level(), len(served.table), served.rows(np.arange(25_000)).tobytes().hex()[:-400_000:7])
"""


def spec() -> TableSpec:
    initial = Initial.normal(0.0, 0.1, 3)
    return TableSpec(ParameterSpec("emb", (1, 4), sparse=True, l2=0.01), initial, entry=2, max_age=40)


def first_start(runtime: Path) -> list[str]:
    env = os.environ | {"PYTHONPATH": str(runtime)}
    argv = [sys.executable, "-P", "-c", FIRST]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not library.level(), reason=library.reason())
def test_without_a_library_a_table_gives_the_same_answers(tmp_path: Path) -> None:
    shutil.copytree(RUNTIME, tmp_path / "runtime", ignore=shutil.ignore_patterns("built", "__pycache__"))
    without, compiled = first_start(tmp_path / "runtime"), first_start(RUNTIME)
    assert (without[0], int(compiled[0]) > 0) == ("0", True)
    assert without[1:] == compiled[1:]


@pytest.mark.parametrize("rule", ["adagrad", "momentum"])
def test_rows_move_from_the_reference_bit_by_bit(rule: str) -> None:
    """After any number of batches in the reference everything goes on as if there had been none."""
    rng = np.random.default_rng(5)
    optimizer, pool = OptimizerSpec(rule), rng.integers(-(2**63), 2**63 - 1, 60)
    alone, plain = HashTable(spec(), optimizer), PlainTable(spec(), optimizer)
    moved = [HashTable(spec(), optimizer) for _ in range(3)]
    served = ServedTable(GrowingShare(spec(), 0, 1), optimizer)
    for turn in range(120):
        if turn % 40 == 30:
            plain.catch_up(0.1)
            alone.catch_up(0.1)
            for each in moved[: turn // 40]:
                each.catch_up(0.1)
            served.catch_up(0.1)
        if turn % 40 == 35:
            restore(moved[turn // 40], plain.header, [plain.whole()])
        ids = rng.choice(pool, 20)
        steps = [RowGradient(ids, rng.standard_normal((20, 4)).astype(np.float32))][: turn % 3]
        for each in moved[: (turn + 5) // 40]:
            each.update(steps, 0.1)
        alone.update(steps, 0.1)
        plain.update(steps, 0.1)
        served.update(steps, 0.1)
    forms: list[HashTable | PlainTable] = [plain, served.table, *moved]
    for table in forms:
        np.testing.assert_array_equal(table.lookup(pool), alone.lookup(pool))
        assert (len(table), table.clock) == (len(alone), alone.clock)
