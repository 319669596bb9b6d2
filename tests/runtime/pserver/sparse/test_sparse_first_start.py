# SPDX-License-Identifier: Apache-2.0
"""A growing table on a machine that has compiled nothing yet: it answers at once, and nobody sees the loops come."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.plain_table import PlainTable
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.spec import TableSpec

RUNTIME = Path(__file__).resolve().parents[4] / "runtime"
LIMIT_S = 100.0
FIRST = """
import logging, sys
import numpy as np
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.warming import warming

logging.basicConfig()
if "broken" in sys.argv:
    sys.modules["numba"] = None
spec = TableSpec(ParameterSpec("emb", (1, 4), sparse=True), Initial.normal(0.0, 0.1, 3))
served = ServedTable(GrowingShare(spec, 0, 1), OptimizerSpec("adagrad"))
ids = np.arange(5)
served.reserve([RowGradient(ids, np.ones((5, 4), np.float32))])
served.update([RowGradient(ids, np.ones((5, 4), np.float32))], 0.1)
early = served.rows(ids)
print("before the loops" if not warming().done() else "after")
if "broken" in sys.argv:
    warming().exception()
    print((served.rows(np.arange(20_000))[:5] == early).all(), len(served.rows(ids)))
    sys.exit()
print((early == served.table.lookup(ids)).all())
"""


def spec() -> TableSpec:
    initial = Initial.normal(0.0, 0.1, 3)
    return TableSpec(ParameterSpec("emb", (1, 4), sparse=True, l2=0.01), initial, entry=2, max_age=40)


def first_start(cache: Path, *more: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(RUNTIME), "XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": ""}
    argv = [sys.executable, "-P", "-c", FIRST, *more]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True)


def test_a_table_answers_before_its_loops_are_compiled(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    done = first_start(tmp_path)
    assert done.stdout.splitlines() == ["before the loops", "True"]
    assert list(tmp_path.rglob("*.made"))
    assert "failed" not in done.stderr  # the child that compiles


def test_without_a_compiler_the_plain_form_goes_on_and_that_is_told_once(tmp_path: Path) -> None:
    done = first_start(tmp_path, "broken")
    assert done.stdout.splitlines()[-1] == "True 5"
    assert done.stderr.count("growing tables: no compiled loops") == 1


@pytest.mark.parametrize("rule", ["adagrad", "momentum"])
def test_rows_move_into_the_compiled_form_bit_by_bit(rule: str) -> None:
    """After any number of batches in plain form everything goes on as if there had been none."""
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
            moved[turn // 40].restore(plain.header, [plain.whole()])
        ids = rng.choice(pool, 20)
        steps = [RowGradient(ids, rng.standard_normal((20, 4)).astype(np.float32))][: turn % 3]
        served.reserve(steps)
        for each in moved[: (turn + 5) // 40]:
            each.update(steps, 0.1)
        alone.update(steps, 0.1)
        plain.update(steps, 0.1)
        served.update(steps, 0.1)
    forms: list[HashTable | PlainTable] = [plain, served.table, *moved]
    for table in forms:
        np.testing.assert_array_equal(table.lookup(pool), alone.lookup(pool))
        assert (len(table), table.clock) == (len(alone), alone.clock)


def test_many_rows_wait_for_the_compiled_form() -> None:
    served = ServedTable(GrowingShare(spec(), 0, 1), OptimizerSpec("adagrad"))
    before = served.rows(np.arange(10))
    ids = np.arange(20_000)
    np.testing.assert_array_equal(served.rows(ids)[:10], before)
    assert served.table is served.table
