# SPDX-License-Identifier: Apache-2.0
"""What cannot be is refused before it leaves the trainer, who may go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import RowGradient
from paddle.pserver.client.session import TrainerSession
from tests.runtime.pserver.in_process_job import SGD, SMALL, InProcessJob, bad


@pytest.fixture
def client() -> Iterator[TrainerSession]:
    with InProcessJob(1, num_dense=2, num_sparse=2).client(0) as client:
        client.configure(SMALL.parameters, SGD, SMALL.values())
        client.start_pass()
        yield client


def rows(ids: list[int], width: int = 3, dtype: Any = np.float32) -> RowGradient:
    return RowGradient(np.array(ids, np.int64), np.ones((len(ids), width), dtype))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (
        {"fc.w": np.zeros((40, 51), np.float32)},
        r"gradient of parameter fc\.w: expected \(40, 50\) float32, got \(40, 51\)",
    ),
    "dtype": ({"fc.b": np.zeros(50)}, r"fc\.b: expected \(50,\) float32, got \(50,\) float64"),
    "objects": ({"fc.b": np.zeros(50, object)}, r"fc\.b: .*object"),
    "NaN": ({"fc.w": bad((40, 50), np.nan)}, r"gradient of parameter fc\.w contains NaN"),
    "infinity": ({"fc.b": bad((50,), np.inf)}, r"gradient of parameter fc\.b contains NaN"),
    "name": ({"fc.v": np.zeros(1, np.float32)}, r"'fc\.v' is not on the pservers; known: fc\.w, fc\.b, emb"),
    "dense for sparse": ({"emb": np.zeros((20, 3), np.float32)}, "parameter emb: expected a RowGradient"),
    "sparse for dense": ({"fc.b": rows([1])}, r"fc\.b: expected an array"),
    "negative id": ({"emb": rows([-1, 3])}, "emb: expected row ids from 0 to 19, got -1"),
    "id too large": ({"emb": rows([3, 20])}, "emb: expected row ids from 0 to 19, got 20"),
    "id twice": ({"emb": rows([3, 3])}, "emb: expected strictly ascending row ids, got 3 before 3"),
    "width": ({"emb": rows([3], width=4)}, r"emb: expected \(1, 3\) float32, got \(1, 4\)"),
    "row dtype": ({"emb": rows([3], dtype=np.float64)}, "emb: .* got .*float64"),
    "NaN row": ({"emb": RowGradient(np.array([3]), bad((1, 3), np.nan))}, "emb contains NaN"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_gradient_never_leaves_the_trainer_and_it_may_go_on(
    client: TrainerSession, what: str
) -> None:
    grads, why = WRONG[what]
    before, after = SMALL.empty(), SMALL.empty()
    client.pull(before)
    with pytest.raises(ConfigError, match=why):
        client.push_pull(grads, 1, {})
    client.pull(after)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    client.push_pull({}, 1, {})


def test_out_arrays_that_cannot_be_filled_are_refused(client: TrainerSession) -> None:
    frozen = np.zeros((40, 50), np.float32)
    frozen.flags.writeable = False
    for out in (frozen, np.zeros((50, 40), np.float32).T, np.zeros((40, 49), np.float32)):
        with pytest.raises(ConfigError, match=r"out array of parameter fc\.w"):
            client.pull({"fc.w": out})


@pytest.mark.parametrize("ids", [[20], [-1], [2**40]])
def test_rows_that_do_not_exist_cannot_be_pulled(client: TrainerSession, ids: list[int]) -> None:
    with pytest.raises(ConfigError, match="emb: expected 0 to 19"):
        client.pull_rows("emb", np.array(ids, np.int64))


def test_values_that_are_missing_or_wrong_are_named() -> None:
    for change, why in (
        (
            {"fc.b": np.zeros(49, np.float32)},
            r"value of parameter fc\.b: expected \(50,\) float32, got \(49,\)",
        ),
        ({"fc.b": bad((50,), np.nan)}, r"value of parameter fc\.b contains NaN"),
    ):
        with InProcessJob(1).client(0) as client, pytest.raises(ConfigError, match=why):
            client.configure(SMALL.parameters, SGD, SMALL.values() | change)


def test_pushing_outside_a_pass_is_refused() -> None:
    with InProcessJob(1).client(0) as client:
        client.configure(SMALL.parameters, SGD, SMALL.values())
        with pytest.raises(PserverError, match=r"trainer 0 pushed .* outside a pass"):
            client.push_pull({}, 1, {})
