# SPDX-License-Identifier: Apache-2.0
"""What training refuses, logs and reports, and what outlives a batch, a test, a call of `train` and a script."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.trainer.PyDataProvider2 import provider
from paddle.trainer_config_helpers import data_layer
from paddle.v2 import model
from paddle.v2.errors import TrainingError, UsageError
from paddle.v2.parameters import Parameters
from paddle.v2.topology import Topology
from tests.runtime.v2.training.training_cases import (
    POINTS,
    adagrad,
    batches,
    event,
    optimizer,
    regression,
)
from tests.runtime.v2.training.word2vec import network, samples


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
    once = iter([POINTS])
    for reader, number in ((lambda: iter([]), 0), (lambda: once, 1)):
        with pytest.raises(TrainingError, match=f"pass {number}: the reader returned no batch"):
            trainer.train(reader, num_passes=2)
    caplog.clear()
    trainer.train(lambda: iter([]))  # a script that polls for new data
    assert np.isnan(trainer.test(lambda: iter([])).cost)
    told = [
        (record.levelname, record.getMessage().split(": the reader returned no batch")[0])
        for record in caplog.records
        if record.levelno >= logging.WARNING
    ]
    assert told == [("ERROR", "pass 0"), ("WARNING", "test")]


def test_training_for_no_passes_is_warned_of_and_for_fewer_refused() -> None:
    _, cost = regression()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
    with pytest.warns(UserWarning, match="num_passes=0: train does nothing") as caught:
        trainer.train(batches(samples(2), 2), num_passes=0)
    assert caught[0].filename == __file__
    with pytest.raises(UsageError, match="num_passes must be at least 1, got -1"):
        trainer.train(batches(samples(2), 2), num_passes=-1)


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


def test_wrong_arguments_of_a_trainer_are_named() -> None:
    _, cost = regression()
    parameters = paddle.parameters.create(cost)
    with pytest.raises(TypeError, match="parameters must be the result of"):
        paddle.trainer.SGD(cost, {}, optimizer.Momentum())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="optimizer"):
        paddle.trainer.SGD(cost, parameters, "sgd")  # type: ignore[arg-type]
    trainer = paddle.trainer.SGD(cost, parameters, optimizer.Momentum())
    with pytest.raises(TypeError, match="function"):
        trainer.train([POINTS])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="iterator"):
        trainer.train(lambda: [POINTS])
    with pytest.raises(
        TypeError, match="function that returns an iterator, got list_iterator: pass the function"
    ):
        trainer.test(iter([POINTS]))  # type: ignore[arg-type]
    averaged = optimizer.AdaGrad(model_average=optimizer.ModelAverage(0.5))
    _, cost = network()
    parameters = paddle.parameters.create(cost)
    with pytest.raises(NotImplementedError, match="model_average"):
        paddle.trainer.SGD(cost, parameters, averaged, is_local=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"learning_rate": "0.1"}, "learning_rate: expected a finite number, got '0.1'"),
        ({"learning_rate_schedule": "manual"}, "learning_rate_args: expected"),
        ({"learning_rate_schedule": "manual", "learning_rate_args": "9:1,3:2"}, "ascending"),
        ({"learning_rate_schedule": "exp"}, "learning_rate_decay_b: schedule exp divides by this value"),
        ({"learning_rate_schedule": "cosine"}, "expected one of constant, poly"),
    ],
)
def test_an_optimizer_that_cannot_work_is_refused_where_it_is_made(
    arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        optimizer.AdaGrad(**arguments)


def test_a_rule_that_cannot_update_rows_is_refused_before_training() -> None:
    _, cost = network()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Adam())
    with pytest.raises(ValueError, match="_proj is sparse: adam"):
        trainer.train(batches(samples(16), 16))


def test_diverging_training_stops_with_advice() -> None:
    _, cost = regression()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum(learning_rate=1e30))
    with pytest.raises(TrainingError, match="smaller learning_rate"):
        trainer.train(lambda: iter([POINTS] * 9))


def test_log_lines_have_the_form_of_the_original(caplog: pytest.LogCaptureFixture) -> None:
    paddle.init(log_period=2)
    _, cost = network()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad())
    data = samples(40)
    with caplog.at_level(logging.INFO, logger="paddle.v2"):
        trainer.train(batches(data, 16))
        result = trainer.test(batches(data, 16))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("=")[0] for line in lines] == [" Batch", " Pass", " Test samples"]
    assert lines[0].startswith(" Batch=2 samples=32 AvgCost=")
    assert "  classification_error_evaluator=" in lines[0].split(" CurrentEval:")[1]
    assert lines[1].startswith(" Pass=0 Batch=3 samples=40 AvgCost=")
    assert lines[2].startswith(f" Test samples=40 cost={result.cost:g} Eval:")


def test_progress_reaches_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv("PADDLE_REPORT_FD", str(writing))
    paddle.init()
    _, cost = network()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad())
    trainer.train(batches(samples(40), 16))
    os.close(writing)
    with open(reading, "rb") as pipe:
        last = json.loads(pipe.readlines()[-1])
    assert (last["event"], last["pass_id"], last["batch_id"], last["step"], last["samples"]) == (
        "progress",
        0,
        2,
        3,
        40,
    )
    assert last["cost"] > 0


def test_means_of_fast_passes_are_those_of_all_their_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv("PADDLE_REPORT_FD", str(writing))
    paddle.init()
    _, cost = network()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad())
    costs: dict[int, float] = {}

    def handler(happened: object) -> None:
        if isinstance(happened, event.EndIteration):
            size = (16, 16, 8)[happened.batch_id]
            costs[happened.pass_id] = costs.get(happened.pass_id, 0.0) + happened.cost * size / 40

    trainer.train(batches(samples(40), 16), 10, handler)
    os.close(writing)
    with open(reading, "rb") as pipe:
        last = json.loads(pipe.readlines()[-1])
    assert last["step"] == 30
    assert dict(last["passes"]) == pytest.approx(costs, rel=1e-6)


def test_housing_and_digits_scripts_run_as_printed(tmp_path: Path) -> None:
    out, cost = regression()
    parameters = paddle.parameters.create(cost)
    with open(tmp_path / "fit_a_line.pkl", "wb") as file:
        Topology(out).serialize_for_inference(file)
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, update_equation=optimizer.Momentum(momentum=0)
    )
    trainer.train(
        reader=paddle.batch(paddle.reader.shuffle(lambda: iter(POINTS), buf_size=500), batch_size=2),
        feeding={"x": 0, "y": 1},
        num_passes=2,
    )
    with gzip.open(tmp_path / "params.tar.gz", "w") as zipped, open(tmp_path / "params.tar", "w") as text:
        parameters.to_tar(zipped)  # type: ignore[arg-type]
        trainer.save_parameter_to_tar(text)
    with open(tmp_path / "params.tar", "rb") as tar:
        again = paddle.parameters.Parameters.from_tar(tar)
    found = paddle.infer(output_layer=out, parameters=again, input=[(point[0],) for point in POINTS])
    assert found.shape == (3, 1)


def test_an_event_handler_with_other_arguments_is_refused_before_training() -> None:
    _, cost = regression()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
    for wrong in (lambda: None, lambda event, more: None):
        with pytest.raises(TypeError, match="event_handler must take one argument, the event"):
            trainer.train(lambda: iter([]), event_handler=wrong)  # type: ignore[arg-type]


def test_the_result_of_a_call_given_as_the_event_handler_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, cost = regression()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
    handler: Callable[[object], None] = lambda event: None  # noqa: E731
    trainer.train(lambda: iter([POINTS]), event_handler=None)
    trainer.train(lambda: iter([POINTS]), event_handler=handler)
    assert "event_handler" not in caplog.text
    trainer.train(
        lambda: iter([POINTS]),
        event_handler=handler(None),  # type: ignore[func-returns-value]
    )
    assert "event_handler is None: pass the function itself" in caplog.text


def test_evaluators_of_costs_and_after_the_trainer_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    label = paddle.layer.data("label", paddle.data_type.integer_value(2))
    out = paddle.layer.fc(
        paddle.layer.data("p", paddle.data_type.dense_vector(2)), 2, paddle.activation.Softmax()
    )
    cost = paddle.layer.classification_cost(out, label)
    paddle.evaluator.auc(input=out, label=label)
    paddle.evaluator.sum(input=cost)
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
    data = [(1, [1.0, 2.0])]
    trainer.train(lambda: iter([data]))
    assert "evaluator" not in caplog.text
    paddle.evaluator.classification_error(input=cost, label=label, name="late")
    trainer.train(lambda: iter([data]))
    assert "is a cost; pass the layer of predictions" in caplog.text
    assert "evaluator 'late' has no effect: declare it before trainer.SGD" in caplog.text


def test_a_prediction_given_as_the_cost_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    def warned(make: Callable[[paddle.layer.LayerOutput], paddle.layer.LayerOutput]) -> bool:
        caplog.clear()
        with model.fresh():
            cost = make(paddle.layer.data("x", paddle.data_type.dense_vector(4)))
            paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
        return "not a cost layer" in caplog.text

    assert warned(lambda x: paddle.layer.fc(x, 3))
    assert not warned(lambda x: paddle.layer.fc(x, 1))
    assert not warned(lambda x: paddle.layer.sum_cost(paddle.layer.fc(x, 3)))


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda: optimizer.SGD, r"Momentum\(momentum=0"),
        (lambda: train(data_layer("x", 4)), "'x' has no type.*paddle.layer.data"),
        (lambda: provider(input_types=[])(lambda settings, file: iter([]))(), "takes a reader"),
    ],
)
def test_a_name_of_another_interface_is_answered_with_that_of_v2(
    use: Callable[[], object], told: str
) -> None:
    with pytest.raises((AttributeError, ValueError), match=told):
        use()


def test_inference_with_new_parameters_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    x = paddle.layer.data("x", paddle.data_type.dense_vector(2))
    out = paddle.layer.fc(x, 1, name="out")
    cost = paddle.layer.square_error_cost(out, paddle.layer.data("y", paddle.data_type.dense_vector(1)))
    loaded, trained, new = (paddle.parameters.create(each) for each in (out, cost, out))
    loaded["_out.w0"] = np.ones((2, 1), np.float32)
    paddle.trainer.SGD(cost, trained, optimizer.Momentum())
    for parameters in (loaded, trained):
        paddle.infer(out, parameters, [([1.0, 2.0],)])
    assert not caplog.text
    for _ in range(2):
        paddle.infer(out, new, [([1.0, 2.0],)])
    assert caplog.text.count("the parameters have random initial values, such as '_out.w0'") == 1


def train(layer: paddle.layer.LayerOutput) -> None:
    cost = paddle.layer.sum_cost(layer)
    paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
