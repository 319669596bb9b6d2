# SPDX-License-Identifier: Apache-2.0
"""Update rules in compiled form give the bits of the plain rules in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.formulas import Formulas
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.plain_table import PlainTable
from paddle.pserver.sparse.spec import TableSpec

COMPILED = {
    "sgd": (OptimizerSpec("sgd"), 0.0),
    "descent": (OptimizerSpec("momentum"), 0.0),
    "momentum": (OptimizerSpec("momentum"), 0.9),
    "adagrad": (OptimizerSpec("adagrad", {"epsilon": 1e-6}), 0.0),
    "adagrad with momentum": (OptimizerSpec("adagrad"), 0.7),
    "fluid_adagrad": (OptimizerSpec("fluid_adagrad", {"initial_accumulator_value": 0.1}), 0.0),
    "lazy_adam": (OptimizerSpec("lazy_adam"), 0.0),
}


@pytest.mark.parametrize("width", [1, 19, 64])
@pytest.mark.parametrize(
    "decays", [{}, {"l1": 0.003, "l2": 0.02, "clip": 0.9}], ids=["plain", "clip and decay"]
)
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_formula_gives_the_bits_of_the_rule(name: str, decays: bool, width: int) -> None:
    optimizer, momentum = COMPILED[name]
    l1, l2, clip = (0.0 if momentum else 0.003, 0.02, 0.9) if decays else (0.0, 0.0, 0.0)
    parameter = ParameterSpec("emb", (1, width), momentum=momentum, l1=l1, l2=l2, clip=clip, sparse=True)
    assert Formulas(optimizer, parameter).at(1, 0.1) is not None
    spec = TableSpec(parameter, Initial.normal(0.0, 0.5, 3))
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
