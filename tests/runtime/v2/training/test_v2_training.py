# SPDX-License-Identifier: Apache-2.0
"""Training in one process: numbers, events, metrics."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.errors import PaddleError
from tests.runtime.v2.training.training_cases import (
    POINTS,
    adagrad,
    attr,
    batches,
    data_type,
    event,
    layer,
    optimizer,
    regression,
)
from tests.runtime.v2.training.word2vec import AdaGrad, cost_and_gradients, network, samples


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


@pytest.mark.parametrize("rule", [adagrad, lambda: optimizer.Momentum(0.9, sparse=True, learning_rate=0.01)])
def test_saving_in_the_middle_of_a_pass_does_not_change_the_training(rule: Any) -> None:
    _, cost = network()

    def train(*, saves: bool) -> tuple[list[bytes], list[bytes]]:
        parameters = paddle.parameters.create(cost)
        trainer, saved = paddle.trainer.SGD(cost, parameters, rule()), []

        def handler(happened: object) -> None:
            if saves and isinstance(happened, event.EndIteration):
                stored, tar = parameters["_proj"], io.BytesIO()
                trainer.save_parameter_to_tar(tar)
                tar.seek(0)
                saved.append(paddle.parameters.Parameters.from_tar(tar)["_proj"].tobytes())
                changes.append(saved[-1] != stored.tobytes())

        trainer.train(batches(samples(40), 4), num_passes=2, event_handler=handler)
        return [parameters[name].tobytes() for name in parameters], saved

    changes: list[bool] = []
    (plain, _), (final, saved) = train(saves=False), train(saves=True)
    assert final == plain
    assert len(saved) == 20
    assert any(changes)


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


def test_what_evaluators_return_may_stand_among_the_extra_layers() -> None:
    out, cost = regression()
    total: Any = paddle.evaluator.column_sum(out, name="total")  # scripts do
    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create(cost), optimizer.Momentum(), extra_layers=[total]
    )
    assert set(trainer.test(lambda: iter([POINTS])).metrics) == {"total"}
    with pytest.raises(PaddleError, match="expected layers, got None"):
        paddle.topology.Topology([None])  # type: ignore[list-item]


def test_what_a_network_of_one_output_infers_prints_row_by_row() -> None:
    out, cost = regression()
    parameters = paddle.parameters.create(cost)
    parameters["_out.w0"] = np.full(parameters.get_shape("_out.w0"), 2)
    parameters["_out.wbias"] = np.full(parameters.get_shape("_out.wbias"), 0.5)
    found = paddle.infer(output_layer=out, parameters=parameters, input=[(p[0],) for p in POINTS])
    expected = [2 * sum(p[0]) + 0.5 for p in POINTS]
    assert [f"{row:.3f}" for row in found] == [f"{each:.3f}" for each in expected]
    assert [round(float(row), 3) for row in found] == [round(each, 3) for each in expected]
    assert float(parameters["_out.wbias"]) == 0.5


def test_costs_among_the_extra_layers_are_trained_but_not_reported() -> None:
    """The linear cost (w x - y)^2 has the gradient 2 (w x - y) x, here with coefficients that add up to 4."""
    out, cost = regression()
    more = layer.square_error_cost(out, layer.data("again", data_type.dense_vector(1)), coeff=3.0)
    parameters = paddle.parameters.create(cost)
    parameters["_out.w0"] = np.zeros((2, 1), np.float32)
    trainer = paddle.trainer.SGD(
        cost, parameters, optimizer.Momentum(momentum=0, learning_rate=0.5), extra_layers=more * 1.0
    )
    seen: list[Any] = []

    def handler(happened: object) -> None:
        if isinstance(happened, event.EndForwardBackward):
            seen.append(parameters.get_grad("_out.w0").ravel().tolist())
        if isinstance(happened, event.EndIteration):
            seen.append(happened.cost)

    trainer.train(lambda: iter([[([1.0, 2.0], [0.9], [0.9])]]), event_handler=handler)
    np.testing.assert_allclose(seen[0], [-7.2, -14.4], rtol=1e-5)
    np.testing.assert_allclose(seen[1], 0.81, rtol=1e-5)


def test_parameters_of_extra_layers_are_added_and_trained_and_saved() -> None:
    _, cost = regression()
    x, y = (paddle.topology.Topology(cost).get_layer(name) for name in "xy")
    start = attr.Param(name="head.w", initializer=lambda name: np.full((2, 1), 0.25, np.float32))
    head = layer.fc(x, 1, paddle.activation.Linear(), name="head", param_attr=start)
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(
        cost,
        parameters,
        optimizer.Momentum(momentum=0, learning_rate=0.1),
        extra_layers=layer.square_error_cost(head, y, coeff=0.3),
    )
    assert sorted(parameters) == ["_head.wbias", "_out.w0", "_out.wbias", "head.w"]
    np.testing.assert_array_equal(parameters["head.w"], [[0.25], [0.25]])
    trainer.train(batches(POINTS, 3), num_passes=200)  # type: ignore[arg-type]
    file = io.BytesIO()
    trainer.save_parameter_to_tar(file)
    saved = paddle.parameters.Parameters.from_tar(io.BytesIO(file.getvalue()))
    np.testing.assert_allclose(
        paddle.infer(head, saved, [(x,) for x, _ in POINTS]), [y for _, y in POINTS], atol=0.1
    )


def test_trainers_of_parts_of_the_parameters_save_all_of_them() -> None:
    x, y = layer.data("x", data_type.dense_vector(2)), layer.data("y", data_type.dense_vector(1))
    body = layer.fc(x, 3, name="body")
    costs = [layer.square_error_cost(layer.fc(body, 1, name=name), y) for name in ("first", "second")]
    parameters = paddle.parameters.create(costs)
    before = {name: parameters[name] for name in parameters}
    for part, cost in zip(("first", "second"), costs, strict=True):
        trainer = paddle.trainer.SGD(cost, parameters, optimizer.Momentum(momentum=0, learning_rate=0.1))
        trainer.train(batches(POINTS, 3))  # type: ignore[arg-type]
        changed = {name for name in parameters if not np.array_equal(before[name], parameters[name])}
        assert changed == {f"_{each}.{kind}" for each in ("body", part) for kind in ("w0", "wbias")}
        before = {name: parameters[name] for name in parameters}
        file = io.BytesIO()
        trainer.save_parameter_to_tar(file)
        saved = paddle.parameters.Parameters.from_tar(io.BytesIO(file.getvalue()))
        assert {name: saved[name].tolist() for name in saved} == {k: v.tolist() for k, v in before.items()}


def test_what_only_the_cost_needs_is_not_added_to_the_parameters_given() -> None:
    _, cost = regression()
    with pytest.raises(PaddleError, match=r"'_out\.w0'.*given parameters"):
        paddle.trainer.SGD(cost, paddle.parameters.Parameters(), optimizer.Momentum())


def test_names_of_earlier_versions_lead_to_the_same_layers() -> None:
    assert layer.mse_cost is layer.square_error_cost
    assert layer.huber_cost is layer.huber_classification_cost
    with pytest.raises(AttributeError, match="v2 calls this layer 'max_id'"):
        _ = layer.maxid_layer
    with pytest.raises(AttributeError, match="v2 calls this layer 'fc'"):
        _ = layer.fc_layer
    with pytest.raises(AttributeError, match="did you mean 'square_error_cost'"):
        _ = layer.square_eror_cost
