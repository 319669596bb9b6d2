# SPDX-License-Identifier: Apache-2.0
"""What outlives a batch, a test, a call of `train` and a script."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import model
from paddle.v2.parameters import Parameters
from paddle.v2.topology import Topology
from tests.runtime.v2.training_cases import (
    POINTS,
    adagrad,
    batches,
    event,
    optimizer,
    regression,
)
from tests.runtime.v2.word2vec import network, samples


def test_a_test_in_the_middle_of_a_pass_changes_nothing() -> None:
    def train(tests: bool) -> list[bytes]:
        with model.fresh():
            _, cost = network()
            parameters = paddle.parameters.create(cost)
            rule = optimizer.AdaGrad(learning_rate=0.5, regularization=optimizer.L2Regularization(0.1))
            trainer = paddle.trainer.SGD(cost, parameters, rule)

            def handler(happened: object) -> None:
                if tests and isinstance(happened, event.EndIteration):
                    trainer.test(batches(samples(8), 8))

            trainer.train(batches(samples(40, seed=2), 2), event_handler=handler)
            return [parameters[name].tobytes() for name in parameters]

    assert train(True) == train(False)


def test_a_reader_without_any_batch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _, cost = regression()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
    trainer.train(lambda: iter([]), num_passes=2)
    assert np.isnan(trainer.test(lambda: iter([])).cost)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.split(": the reader gave no batch")[0] for text in told] == ["pass 0", "pass 1", "test"]


def test_sparse_and_dense_tables_learn_alike_without_decay() -> None:
    def train(sparse: bool) -> np.ndarray:
        with model.fresh():
            _, cost = network(sparse=sparse)
            parameters = paddle.parameters.create(cost)
            paddle.trainer.SGD(cost, parameters, optimizer.AdaGrad(learning_rate=0.03)).train(
                batches(samples(64), 16)
            )
            return parameters["_proj"]

    np.testing.assert_allclose(train(True), train(False), rtol=1e-6, atol=1e-9)


def test_a_second_call_of_train_starts_with_fresh_optimizer_state() -> None:
    def train(calls: int, passes: int) -> tuple[np.ndarray, list[int]]:
        with model.fresh():
            _, cost = regression()
            parameters, ids = paddle.parameters.create(cost), []

            def handler(happened: object) -> None:
                if isinstance(happened, event.BeginPass):
                    ids.append(happened.pass_id)

            trainer = paddle.trainer.SGD(
                cost, parameters, optimizer.Momentum(momentum=0.9, learning_rate=0.01)
            )
            for _ in range(calls):
                trainer.train(lambda: iter([POINTS]), passes, handler)
            return parameters["_out.w0"], ids

    once, twice = train(1, 2), train(2, 1)
    assert (once[1], twice[1]) == ([0, 1], [0, 0])
    assert once[0].tolist() != twice[0].tolist()


def test_a_saved_network_infers_without_its_script() -> None:
    predicted, cost = network(drop_rate=0.5)
    parameters = paddle.parameters.create(cost)
    paddle.trainer.SGD(cost, parameters, adagrad()).train(batches(samples(64), 16))
    topology, tar = io.BytesIO(), io.BytesIO()
    Topology(predicted).serialize_for_inference(topology)
    parameters.to_tar(tar)
    topology.seek(0)
    tar.seek(0)
    with model.fresh():
        inference = paddle.inference.Inference(Parameters.from_tar(tar), fileobj=topology)
        found = inference.infer([(1, 2, 3, 4), (5, 6, 7, 8)])
    assert found.tolist() == paddle.infer(predicted, parameters, [(1, 2, 3, 4), (5, 6, 7, 8)]).tolist()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"\x80\x04\x95",
        lambda content: b"[]",
        lambda content: json.dumps({**content, "version": 9}).encode(),
        lambda content: json.dumps({**content, "outputs": ["nowhere"]}).encode(),
        lambda content: json.dumps({**content, "layers": content["layers"][1:]}).encode(),
        lambda content: json.dumps({**content, "parameters": []}).encode(),
        lambda content: json.dumps({**content, "layers": [{"name": 3}]}).encode(),
    ],
)
def test_a_damaged_topology_is_refused(damage: Callable[[dict[str, list[object]]], bytes]) -> None:
    predicted, _ = network()
    file = io.BytesIO()
    Topology(predicted).serialize_for_inference(file)
    raw = damage(json.loads(file.getvalue()))
    with pytest.raises(ValueError, match="topology"):
        paddle.inference.Inference(paddle.parameters.create(predicted), fileobj=io.BytesIO(raw))
