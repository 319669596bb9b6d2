# SPDX-License-Identifier: Apache-2.0
"""Tensors of one job with optimizers of their own, and the names under which users of PyTorch ask for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.optim.dense import DenseUpdater
from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import (
    SGD,
    Adagrad,
    Client,
    GrowingTable,
    Initial,
    RowWiseAdagrad,
    SparseAdam,
    TensorOptions,
)
from paddle.pserver.wire.configuration import Configuration
from tests.runtime.pserver.neutral_job import client, run, server

HEIGHT, WIDTH, STEPS = 40, 6, 5
ADAM = OptimizerSpec("fluid_adam", learning_rate=0.01)
OWN = {
    "rowwise": RowWiseAdagrad(lr=0.3),
    "grown": RowWiseAdagrad(lr=0.2, eps=1e-6),
    "emb": replace(
        SparseAdam(lr=0.1), schedule="exponential_decay", schedule_args="decay_steps:2,decay_rate:0.5"
    ),
    "large": OptimizerSpec("lamb", learning_rate=0.02),
}
SHAPES = {"w": (30, 20), "large": (70, 60), "emb": (HEIGHT, WIDTH), "rowwise": (HEIGHT, WIDTH)}


def initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def step_of(trainer: int, step: int) -> dict[str, Any]:
    rng = np.random.default_rng((trainer, step))
    ids = rng.choice(HEIGHT, 12, replace=False)
    rows = {
        name: (ids, rng.standard_normal((12, WIDTH)).astype(np.float32))
        for name in ("emb", "rowwise", "grown")
    }
    dense = {name: rng.standard_normal(SHAPES[name]).astype(np.float32) for name in ("w", "large")}
    return {**rows, **dense}


def train(each: Client, trainer: int) -> dict[str, np.ndarray]:
    values = initial()
    grown = GrowingTable(dim=WIDTH, std=0.5, optimizer=OWN["grown"])
    options = {
        name: TensorOptions(sparse=name != "large", optimizer=OWN[name]) for name in OWN if name in SHAPES
    }
    each.create({**values, "grown": grown}, ADAM, options)
    for step in range(STEPS):
        each.push_pull(step_of(trainer, step), {})
    each.pull(values)
    return {**values, "grown": each.pull_rows("grown", np.arange(HEIGHT))}


def updated_alone(name: str, values: np.ndarray) -> np.ndarray:
    optimizer = OWN.get(name, ADAM)
    for step in range(STEPS):
        # exponential_decay of 2 steps: lr * 0.5^(t / 2)
        rate = optimizer.learning_rate * (0.5 ** (step / 2) if name == "emb" else 1.0)
        pushed = [step_of(trainer, step)[name] for trainer in range(2)]
        if name in ("w", "large"):
            if not step:
                dense = DenseUpdater(optimizer, ParameterSpec(name, (values.size,)), values.size)
            dense.update(values.reshape(-1), sum(pushed).reshape(-1), rate)
            continue
        if not step:
            table = SparseUpdater.of(optimizer, ParameterSpec(name, values.shape, sparse=True), *values.shape)
        whole = np.zeros_like(values)
        for ids, rows in pushed:
            whole[ids] += rows
        touched = np.unique(np.concatenate([ids for ids, _ in pushed]))
        table.update(values, RowGradient(touched, whole[touched]), rate)
    return values


@pytest.mark.parametrize("ports", [1, 3])
def test_each_tensor_moves_by_its_own_rule_rate_and_schedule(ports: int) -> None:
    with server(2, f"--ports_num={ports}") as process:
        found = run(process, 2, train)
    grown = Initial("normal", spread=0.5).rows(np.arange(HEIGHT), WIDTH)
    for name, value in {**initial(), "grown": grown}.items():
        np.testing.assert_array_equal(found[0][name], found[1][name])
        np.testing.assert_allclose(
            found[0][name], updated_alone(name, value), rtol=2e-5, atol=2e-6, err_msg=name
        )


def test_trainers_with_other_optimizers_of_one_tensor_are_told_of_the_tensor() -> None:
    def create(each: Client, trainer: int) -> None:
        own = TensorOptions(optimizer=SGD(lr=0.1 + trainer))
        each.create({"w": np.zeros(3, np.float32), "b": np.zeros(2, np.float32)}, ADAM, {"w": own})

    with server(2) as process, pytest.raises(PserverError, match=r"parameter w: .*learning_rate=0\.1"):
        run(process, 2, create, timeout_s=20)


REFUSED: dict[str, Callable[[], object]] = {
    "GrowingTable: unknown argument 'wdith': did you mean width": lambda: GrowingTable(wdith=3),
    "GrowingTable: unknown argument 'embedding_dim': did you mean dim": lambda: GrowingTable(embedding_dim=3),
    r"unknown argument 'lr': did you mean optimizer=Adagrad\(lr=...\)": lambda: GrowingTable(3, lr=0.1),
    "width and dim are two names of the same argument": lambda: GrowingTable(3, dim=3),
    "expected the width of its rows": lambda: GrowingTable(),
    "Adagrad: unknown argument 'learning_rate': did you mean lr": lambda: Adagrad(learning_rate=0.1),
    "SparseAdam: unknown argument 'beta': did you mean betas": lambda: SparseAdam(beta=0.9),
    "SGD: unknown argument 'q': expected one of lr": lambda: SGD(q=1),
    "RowWiseAdagrad: row_adagrad epsilon: expected more than 0": lambda: RowWiseAdagrad(eps=-1.0),
    "is_async of its own optimizer: expected false": lambda: ParameterSpec(
        "w", (1,), optimizer=OptimizerSpec("sgd", is_async=True)
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_a_misspelled_or_impossible_argument_is_answered_with_the_right_one(says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        REFUSED[says]()


def test_pytorchs_names_describe_the_same_table() -> None:
    ours = GrowingTable(8, Initial("normal", spread=0.1), entry=3)
    assert GrowingTable(dim=8, std=0.1, min_count=3) == ours


def test_a_table_with_two_optimizers_is_refused() -> None:
    with server(1) as process, client(process, 0, 1) as each:
        table, options = GrowingTable(2, optimizer=SGD()), {"t": TensorOptions(optimizer=SGD())}
        with pytest.raises(
            ConfigError, match="options of tensor t: its GrowingTable already has an optimizer"
        ):
            each.create({"t": table}, ADAM, options)


def test_configurations_say_nothing_new_without_own_optimizers_and_are_read_with_them() -> None:
    plain = ParameterSpec("w", (3, 2), sparse=True)
    assert "optimizer" not in plain.to_json()
    own = replace(plain, optimizer=RowWiseAdagrad(lr=0.5))
    model = Configuration((own,), ADAM, 1, 0, 0)
    assert Configuration.from_text(model.to_text()) == model
    text = json.loads(model.to_text())
    text["parameters"][0]["optimizer"]["rule"] = "row_adagrads"
    with pytest.raises(PserverError, match=r"optimizer rule: expected one of .*'row_adagrads'"):
        Configuration.from_text(json.dumps(text))
