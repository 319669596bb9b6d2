# SPDX-License-Identifier: Apache-2.0
"""Tables of dtype float16 from a program of any framework: rounded rows, refused overflows, names of the dtype."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.errors import ConfigError, PaddleError
from paddle.pserver import SGD, Client, GrowingTable
from tests.runtime.pserver.neutral_job import run, server

WIDTH = 5
IDS = np.arange(-20, 20)


def train(each: Client, trainer: int) -> tuple[np.ndarray, str]:
    each.create(
        {name: GrowingTable(WIDTH, std=0.1, dtype=name) for name in ("float16", "float32")}, SGD(lr=1.0)
    )
    for batch in range(3):
        rng = np.random.default_rng(10 * batch + trainer)
        g = rng.standard_normal((len(IDS), WIDTH)).astype(np.float32)
        each.push_pull({"float16": (IDS, g), "float32": (IDS, g)}, {})
    before = each.pull_rows("float16", IDS)
    assert np.abs(before - each.pull_rows("float32", IDS)).max() < 0.02
    with pytest.raises(PaddleError) as refused:
        each.push_pull({"float16": (IDS[:1], np.full((1, WIDTH), 4e4, np.float32))}, {})
    return before, str(refused.value)


def test_trainers_get_rounded_rows_and_a_batch_out_of_range_is_refused() -> None:
    with server(2) as process:
        for rows, refused in run(process, 2, train):
            assert (rows == rows.astype(np.float16)).all()
            assert f"table float16, row {IDS[0]}: " in refused
            assert "outside the range of float16" in refused


@pytest.mark.parametrize(
    "wrong", ["fp16", "half", "Float16", "torch.float16", np.float16, np.dtype("float16")]
)
def test_other_names_of_float16_are_answered_with_the_right_one(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r'GrowingTable: dtype: expected .*: did you mean "float16"\?'):
        GrowingTable(WIDTH, dtype=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["bfloat16", "int8", None, 16.5])
def test_other_dtypes_are_refused_with_those_there_are(wrong: object) -> None:
    with pytest.raises(ConfigError, match='dtype: expected "float32" or "float16", got '):
        GrowingTable(WIDTH, dtype=wrong)  # type: ignore[arg-type]
