# SPDX-License-Identifier: Apache-2.0
"""What training refuses, logs and reports."""

from __future__ import annotations

import gzip
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import paddle.v2 as paddle
from paddle.v2.errors import TrainingError
from paddle.v2.topology import Topology
from tests.runtime.v2.training_cases import (
    POINTS,
    adagrad,
    batches,
    optimizer,
    regression,
)
from tests.runtime.v2.word2vec import network, samples


def test_wrong_arguments_of_a_trainer_are_named() -> None:
    _, cost = regression()
    parameters = paddle.parameters.create(cost)
    with pytest.raises(TypeError, match="parameters should be parameters"):
        paddle.trainer.SGD(cost, {}, optimizer.Momentum())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="optimizer"):
        paddle.trainer.SGD(cost, parameters, "sgd")  # type: ignore[arg-type]
    trainer = paddle.trainer.SGD(cost, parameters, optimizer.Momentum())
    with pytest.raises(TypeError, match="function"):
        trainer.train([POINTS])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="iterator"):
        trainer.train(lambda: [POINTS])
    with pytest.raises(TypeError, match="function that returns an iterator, got list_iterator"):
        trainer.test(iter([POINTS]))  # type: ignore[arg-type]
    averaged = optimizer.AdaGrad(model_average=optimizer.ModelAverage(0.5))
    _, cost = network()
    parameters = paddle.parameters.create(cost)
    with pytest.raises(NotImplementedError, match="model_average"):
        paddle.trainer.SGD(cost, parameters, averaged)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"learning_rate": "0.1"}, "learning_rate: expected a finite number, got '0.1'"),
        ({"learning_rate_schedule": "manual"}, "learning_rate_args: expected"),
        ({"learning_rate_schedule": "manual", "learning_rate_args": "9:1,3:2"}, "ascending"),
        ({"learning_rate_schedule": "exp"}, "learning_rate_decay_b: schedule exp divides by it"),
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
