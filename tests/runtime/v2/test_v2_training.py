# SPDX-License-Identifier: Apache-2.0
"""Training in one process: numbers, events, metrics, logs, and what outlives what."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import model
from paddle.v2.errors import TrainingError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.parameters import Parameters
from paddle.v2.topology import Topology
from tests.runtime.v2.word2vec import AdaGrad, cost_and_gradients, network, samples

layer, attr, data_type, optimizer, event = (
    paddle.layer,
    paddle.attr,
    paddle.data_type,
    paddle.optimizer,
    paddle.event,
)


def adagrad() -> optimizer.AdaGrad:
    return optimizer.AdaGrad(learning_rate=3e-2, regularization=optimizer.L2Regularization(8e-4))


def batches(data: list[tuple[int, ...]], size: int) -> Callable[[], Iterable[list[tuple[int, ...]]]]:
    return paddle.batch(lambda: iter(data), size)


def regression() -> tuple[LayerOutput, LayerOutput]:
    x = layer.data("x", data_type.dense_vector(2))
    y = layer.data("y", data_type.dense_vector(1))
    out = layer.fc(x, 1, paddle.activation.Linear(), name="out")
    return out, layer.square_error_cost(out, y)


POINTS = [([1.0, 2.0], [3.0]), ([-1.0, 0.5], [0.25]), ([0.5, -1.0], [-1.0])]


def test_word2vec_follows_the_formulas_step_by_step() -> None:
    _, cost = network()
    parameters = paddle.parameters.create(cost)
    want = {name: parameters[name].astype(np.float64) for name in parameters}
    trainer = paddle.trainer.SGD(cost, parameters, adagrad())
    data, rule = samples(150), AdaGrad(3e-2, 8e-4)
    costs = []

    def handler(happened: object) -> None:
        if isinstance(happened, event.EndIteration):
            costs.append(happened.cost)

    trainer.train(batches(data, 16), num_passes=2, event_handler=handler)
    expected = []
    for _ in range(2):
        for batch in batches(data, 16)():
            total, gradients = cost_and_gradients(want, batch)
            expected.append(total / len(batch))
            rule.update(want, gradients)
        rule.catch_up(want)
    np.testing.assert_allclose(costs, expected, rtol=1e-5)
    assert costs[-1] < costs[0]
    for name in parameters:
        np.testing.assert_allclose(parameters[name], want[name], rtol=2e-4, atol=2e-6)


def test_gradients_are_summed_over_the_batch_and_cost_is_per_sample() -> None:
    _, cost = regression()
    parameters = paddle.parameters.create(cost)
    w, b = parameters["_out.w0"], parameters["_out.wbias"]
    trainer = paddle.trainer.SGD(cost, parameters, optimizer.Momentum(momentum=0, learning_rate=0.01))
    seen: list[object] = []
    trainer.train(lambda: iter([POINTS]), event_handler=seen.append)
    x, y = np.array([p[0] for p in POINTS]), np.array([p[1] for p in POINTS])
    error = x @ w + b - y
    end = next(item for item in seen if isinstance(item, event.EndIteration))
    assert end.cost == pytest.approx(float((error**2).sum() / 3), rel=1e-5)
    np.testing.assert_allclose(parameters["_out.w0"], w - 0.01 * x.T @ (2 * error), rtol=1e-5)
    np.testing.assert_allclose(parameters["_out.wbias"], b - 0.01 * (2 * error).sum(), rtol=1e-5)
    np.testing.assert_allclose(parameters.get_grad("_out.w0"), x.T @ (2 * error), rtol=1e-5)


def test_coeff_scales_gradients_and_not_the_cost() -> None:
    x, y = layer.data("x", data_type.dense_vector(2)), layer.data("y", data_type.dense_vector(1))
    out = layer.fc(x, 1, paddle.activation.Linear(), name="out")
    costs = [layer.square_error_cost(out, y, coeff=3.0), layer.square_error_cost(out, y)]
    parameters = paddle.parameters.create(costs)
    w, b = parameters["_out.w0"], parameters["_out.wbias"]
    trainer = paddle.trainer.SGD(costs, parameters, optimizer.Momentum(momentum=0, learning_rate=0.01))
    before = trainer.test(lambda: iter([POINTS])).cost
    trainer.train(lambda: iter([POINTS]))
    points, labels = np.array([p[0] for p in POINTS]), np.array([p[1] for p in POINTS])
    error = points @ w + b - labels
    assert before == pytest.approx(float(2 * (error**2).sum() / 3), rel=1e-5)
    np.testing.assert_allclose(parameters["_out.w0"], w - 0.01 * 4 * points.T @ (2 * error), rtol=1e-5)


def test_events_come_in_the_order_of_the_original() -> None:
    _, cost = network()
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad())
    seen: list[tuple[object, ...]] = []

    def handler(happened: object) -> None:
        seen.append((type(happened).__name__, happened.pass_id, getattr(happened, "batch_id", None)))  # type: ignore[attr-defined]

    trainer.train(batches(samples(20), 16), num_passes=2, event_handler=handler)
    one_pass = [("BeginPass", None)]
    for batch_id in (0, 1):
        one_pass += [(name, batch_id) for name in ("BeginIteration", "EndForwardBackward", "EndIteration")]  # type: ignore[misc]
    one_pass += [("EndPass", None)]
    assert seen == [(name, pass_id, batch_id) for pass_id in (0, 1) for name, batch_id in one_pass]


def test_weights_change_between_end_forward_backward_and_end_iteration() -> None:
    _, cost = regression()
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, optimizer.Momentum(momentum=0, learning_rate=0.1))
    start, seen = parameters["_out.w0"], {}

    def handler(happened: object) -> None:
        if isinstance(happened, (event.EndForwardBackward, event.EndIteration)):
            seen[type(happened).__name__] = parameters["_out.w0"]

    trainer.train(lambda: iter([POINTS]), event_handler=handler)
    assert seen["EndForwardBackward"].tolist() == start.tolist()
    assert seen["EndIteration"].tolist() != start.tolist()


def test_layer_outputs_of_an_event_are_those_of_the_step() -> None:
    predicted, cost = network(drop_rate=0.5)
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad())
    hidden: list[np.ndarray] = []

    def handler(happened: object) -> None:
        if isinstance(happened, event.EndForwardBackward):
            found = happened.gm.getLayerOutputs(["__fc_layer_0__", predicted.name])
            assert found[predicted.name]["value"].sum() == pytest.approx(16, rel=1e-4)  # type: ignore[union-attr]
            again = happened.gm.getLayerOutputs("__fc_layer_0__")["__fc_layer_0__"]["value"]
            assert again is not None
            hidden.append(again)

    trainer.train(batches(samples(48), 16), event_handler=handler)
    dropped = [value == 0 for value in hidden]
    assert all(0.3 < mask.mean() < 0.7 for mask in dropped)
    assert (dropped[0] != dropped[1]).any()


def test_metrics_of_a_batch_and_of_a_pass() -> None:
    x = layer.data("x", data_type.dense_vector(2))
    label = layer.data("label", data_type.integer_value(2))
    out = layer.addto(x, paddle.activation.Softmax(), name="out")
    layer_cost = layer.classification_cost(layer.fc(out, 2, paddle.activation.Softmax(), name="p"), label)
    paddle.evaluator.sum(out, name="total")
    paddle.evaluator.auc(out, label)
    paddle.evaluator.classification_error(out, label, name="mine")
    trainer = paddle.trainer.SGD(
        layer_cost, paddle.parameters.create(layer_cost), optimizer.Momentum(learning_rate=0)
    )
    data = [([2, 0], 0), ([0, 2], 1), ([0, 1], 0), ([3, 0], 1)]
    seen: list[tuple[str, dict[str, float]]] = []

    def handler(happened: object) -> None:
        if isinstance(happened, (event.EndIteration, event.EndPass)):
            seen.append((type(happened).__name__, happened.metrics))

    trainer.train(lambda: iter([data[:2], data[2:]]), event_handler=handler)
    names = ["classification_error_evaluator", "total", "__auc_evaluator_0__", "mine"]
    assert [list(metrics) for _, metrics in seen] == [names] * 3
    assert [(name, metrics["mine"]) for name, metrics in seen] == [
        ("EndIteration", 0.0),
        ("EndIteration", 1.0),
        ("EndPass", 0.5),
    ]
    assert seen[2][1]["total"] == pytest.approx(1)
    # Scores of the positives 0.88 and 0.05, of the negatives 0.12 and 0.73: two of four pairs are in order.
    assert seen[2][1]["__auc_evaluator_0__"] == pytest.approx(0.5)
    assert trainer.test(lambda: iter([data])).metrics["mine"] == 0.5


def test_an_evaluator_outside_the_network_does_not_take_part() -> None:
    _, cost = regression()
    paddle.evaluator.sum(layer.data("elsewhere", data_type.dense_vector(3)))
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum())
    assert trainer.test(lambda: iter([POINTS])).metrics == {}


def test_extra_layers_bring_their_evaluators() -> None:
    out, cost = regression()
    extra = layer.slope_intercept(out, slope=0.0, intercept=2.0)
    paddle.evaluator.column_sum(extra, name="two")
    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create(cost), optimizer.Momentum(), extra_layers=extra
    )
    assert trainer.test(lambda: iter([POINTS])).metrics == {"two": 2.0}


def test_dropout_repeats_with_the_seed_and_changes_with_it() -> None:
    def train(seed: int) -> np.ndarray:
        with model.fresh():
            paddle.init(seed=seed)
            _, cost = network(drop_rate=0.5)
            parameters = paddle.parameters.create(cost)
            paddle.trainer.SGD(cost, parameters, adagrad()).train(batches(samples(64), 16))
            return parameters["___fc_layer_1__.w0"]

    assert train(1).tolist() == train(1).tolist()
    assert train(1).tolist() != train(2).tolist()


def test_dropout_scales_by_the_rest_when_it_tests() -> None:
    predicted, _ = network(drop_rate=0.25)
    parameters = paddle.parameters.create(predicted)
    p = {name: parameters[name] for name in parameters}
    context = p["_proj"][[1, 2, 3, 4]].reshape(1, -1)
    hidden = 0.75 / (1 + np.exp(-(context @ p["___fc_layer_0__.w0"] + p["___fc_layer_0__.wbias"])))
    logits = hidden @ p["___fc_layer_1__.w0"] + p["___fc_layer_1__.wbias"]
    want = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(paddle.infer(predicted, parameters, [(1, 2, 3, 4)]), want, rtol=1e-5)


class TestOptimizersLeakDefaults:
    def test_into_parameters_declared_later(self, space: model.Model) -> None:
        x = layer.data("x", data_type.dense_vector(2))
        layer.fc(x, 1, name="before")
        optimizer.Momentum(
            momentum=0.9, regularization=optimizer.L2Regularization(0.1), gradient_clipping_threshold=5.0
        )
        layer.fc(x, 1, name="after", param_attr=attr.Param(l2_rate=0.3, momentum=0.5))
        before, after, bias = (space.parameters[name] for name in ("_before.w0", "_after.w0", "_after.wbias"))
        assert (before.momentum, before.decay_rate, before.gradient_clipping_threshold) == (0, 0, 0)
        assert (after.momentum, after.decay_rate, after.gradient_clipping_threshold) == (0.5, 0.3, 5.0)
        assert (bias.momentum, bias.decay_rate) == (0.9, 0.1)

    def test_into_parameters_of_a_trainer_even_where_they_say_zero(self) -> None:
        _, cost = network()
        trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad())
        rates = {name: config.decay_rate for name, config in trainer.get_topology_proto().parameters.items()}
        assert rates == dict.fromkeys(rates, 8e-4)

    def test_and_outlive_the_optimizer(self) -> None:
        adagrad()
        _, cost = regression()
        trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum(momentum=0))
        assert trainer.get_topology_proto().parameters["_out.w0"].decay_rate == 8e-4


def test_static_parameters_stay_and_values_set_by_the_user_count() -> None:
    x, y = layer.data("x", data_type.dense_vector(2)), layer.data("y", data_type.dense_vector(1))
    out = layer.fc(x, 1, paddle.activation.Linear(), name="out", param_attr=attr.Param(is_static=True))
    cost = layer.square_error_cost(out, y)
    parameters = paddle.parameters.create(cost)
    parameters["_out.w0"] = np.array([[1.0], [2.0]], np.float32)
    trainer = paddle.trainer.SGD(cost, parameters, optimizer.Momentum(learning_rate=0.1))
    parameters["_out.wbias"] = np.array([[7.0]], np.float32)
    assert trainer.test(lambda: iter([[([0.0, 0.0], [5.0])]])).cost == pytest.approx(4)
    trainer.train(lambda: iter([POINTS]))
    assert parameters["_out.w0"].tolist() == [[1], [2]]
    assert parameters["_out.wbias"].tolist() != [[7]]
    assert not parameters.get_grad("_out.w0").any()


def test_a_pruned_parameter_keeps_its_largest_weights_only() -> None:
    x, y = layer.data("x", data_type.dense_vector(2)), layer.data("y", data_type.dense_vector(10))
    hook = attr.Hook("pruning", sparsity_ratio=0.7)
    out = layer.fc(x, 10, paddle.activation.Linear(), name="out", param_attr=attr.Param(update_hooks=hook))
    cost = layer.square_error_cost(out, y)
    parameters = paddle.parameters.create(cost)
    start = parameters["_out.w0"]
    trainer = paddle.trainer.SGD(cost, parameters, optimizer.Momentum(learning_rate=0.01))
    trainer.train(lambda: iter([[([1.0, -1.0], [1.0] * 10)]]))
    kept = parameters["_out.w0"] != 0
    assert kept.sum() == 6
    assert np.abs(start[kept]).min() > np.abs(start[~kept]).max()


def test_model_average_saves_the_mean_and_trains_on() -> None:
    _, cost = regression()
    parameters = paddle.parameters.create(cost)
    average = optimizer.ModelAverage(average_window=0.5)
    trainer = paddle.trainer.SGD(
        cost, parameters, optimizer.Momentum(momentum=0, learning_rate=0.01, model_average=average)
    )
    seen: list[np.ndarray] = []

    def handler(happened: object) -> None:
        if isinstance(happened, event.EndIteration):
            seen.append(parameters["_out.w0"])

    trainer.train(lambda: iter([POINTS] * 5), event_handler=handler)
    file = io.BytesIO()
    trainer.save_parameter_to_tar(file)
    file.seek(0)
    np.testing.assert_allclose(Parameters.from_tar(file)["_out.w0"], np.mean(seen, axis=0), rtol=1e-6)
    assert parameters["_out.w0"].tolist() == seen[-1].tolist()


def test_saved_rows_have_all_their_decay() -> None:
    _, cost = network()
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, adagrad())
    start = parameters["_proj"]
    saved = io.BytesIO()

    def handler(happened: object) -> None:
        if isinstance(happened, event.EndIteration) and happened.batch_id == 2:
            trainer.save_parameter_to_tar(saved)

    trainer.train(lambda: iter([[(0, 1, 2, 3, 4)]] * 4), event_handler=handler)
    saved.seek(0)
    table = Parameters.from_tar(saved)["_proj"]
    np.testing.assert_allclose(table[10:], start[10:] / (1 + 3e-2 * 8e-4 * 3), rtol=1e-5)
    np.testing.assert_allclose(parameters["_proj"][10:], table[10:] / (1 + 3e-2 * 8e-4), rtol=1e-5)


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
