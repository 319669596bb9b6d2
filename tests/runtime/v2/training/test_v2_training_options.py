# SPDX-License-Identifier: Apache-2.0
"""Training in one process with dropout, static, pruned, averaged and decayed parameters; what optimizers refuse."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import model
from paddle.v2.parameters import Parameters
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
from tests.runtime.v2.training.word2vec import network, samples

CLASSES = ["Momentum", "Adam", "Adamax", "AdaGrad", "DecayedAdaGrad", "AdaDelta", "RMSProp"]


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


def test_a_trainer_that_learns_alone_in_a_job_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:7164,127.0.0.2:7164")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    paddle.init()
    try:
        _, cost = network()
        trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad())
        trainer.train(batches(samples(16), 16))
    finally:
        monkeypatch.undo()
        paddle.init()
    assert "SGD(is_local=True) in a job with 2 servers: this trainer trains by itself" in caplog.text
    assert "use is_local=False" in caplog.text


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
        rates = {each.name: each.decay_rate for each in trainer.get_topology_proto().parameters}
        assert rates == dict.fromkeys(rates, 8e-4)

    def test_and_outlive_the_optimizer(self) -> None:
        adagrad()
        _, cost = regression()
        trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer.Momentum(momentum=0))
        assert {each.name: each.decay_rate for each in trainer.get_topology_proto().parameters}[
            "_out.w0"
        ] == 8e-4


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


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_the_mean_of_a_table_is_that_of_a_dense_parameter(decay: float) -> None:
    def means(sparse: bool) -> dict[str, np.ndarray]:
        with model.fresh():
            words = layer.data("words", data_type.integer_value_sequence(50))
            table = attr.Param(name="table", sparse_update=sparse, l2_rate=decay, initial_std=1.0)
            pooled = layer.pooling(layer.embedding(words, 3, param_attr=table))
            label = layer.data("label", data_type.dense_vector(1))
            cost = layer.square_error_cost(layer.fc(pooled, 1, act=None, bias_attr=False), label)
            parameters = paddle.parameters.create(cost)
            rule = optimizer.Momentum(
                momentum=0, learning_rate=0.01, model_average=optimizer.ModelAverage(average_window=0.5)
            )
            trainer = paddle.trainer.SGD(cost, parameters, rule)
            trainer.train(lambda: iter([[([at, at + 1], [1.0])] for at in range(8)]), num_passes=2)
            with trainer.to_save() as saved:
                return {name: saved[name].copy() for name in saved}

    sparse, dense = means(True), means(False)
    for name, value in dense.items():
        np.testing.assert_allclose(sparse[name], value, rtol=1e-5, atol=1e-6)


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


def test_the_short_name_of_the_learning_rate_is_told_the_long_one() -> None:
    with pytest.raises(TypeError, match="'lr'; did you mean 'learning_rate'"):
        paddle.optimizer.Adam(lr=0.1)


@pytest.mark.parametrize("name", CLASSES)
def test_an_unknown_argument_is_named_with_the_class_and_the_nearest_one(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"optimizer.{name} takes no argument 'learning_rat'; did you mean 'learning_rate'"
    ):
        getattr(paddle.optimizer, name)(learning_rat=0.1)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "beta1": ("Adam", {"beta1": 1.0}, "adam beta1: expected 0 or more and less than 1, got 1.0"),
    "beta2": ("Adamax", {"beta2": 1.5}, "adamax beta2: expected 0 or more and less than 1, got 1.5"),
    "rho": ("RMSProp", {"rho": -1}, "rmsprop rho: expected 0 or more and less than 1, got -1"),
    "epsilon": ("AdaDelta", {"epsilon": -1}, "adadelta epsilon: expected more than 0, got -1"),
    "learning_rate": ("AdaGrad", {"learning_rate": -1}, "learning_rate: expected 0 or more, got -1"),
    "discard ratio": ("AdaGrad", {"async_lagged_grad_discard_ratio": -3}, "discard_ratio: expected 0 to"),
    "momentum": ("Momentum", {"momentum": -0.1}, "momentum must be finite and not negative, got -0.1"),
    "clip": ("AdaGrad", {"gradient_clipping_threshold": math.nan}, "must be finite and not negative"),
    "schedule": (
        "AdaGrad",
        {"learning_rate_decay_a": -1.0},
        "learning_rate_decay_a: schedule poly expects 0 or more, got -1",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_number_out_of_range_is_named(what: str) -> None:
    name, arguments, why = WRONG[what]
    with pytest.raises(ValueError, match=why):
        getattr(paddle.optimizer, name)(**arguments)


@pytest.mark.parametrize(
    ("name", "given", "ignored"),
    [
        ("Adam", {"regularization": paddle.optimizer.L2Regularization(0.1)}, "Adam ignores regularization"),
        (
            "Adamax",
            {"learning_rate_schedule": "manual", "learning_rate_args": "9:1"},
            "Adamax ignores .* schedule",
        ),
        ("AdaGrad", {"learning_rate_decay_a": 0.1}, "AdaGrad ignores .* schedule"),
        ("AdaGrad", {"regularization": paddle.optimizer.L2Regularization(0.1)}, ""),
        (
            "Adam",
            {"learning_rate_decay_a": 0.1, "regularization": None},
            "_a has no effect without .*_decay_b: ",
        ),
        ("Momentum", {"learning_rate_decay_b": 0.5}, "_b has no effect without learning_rate_decay_a: .*lr"),
        ("Adam", {"learning_rate_decay_a": 0.1, "learning_rate_decay_b": 0.5}, ""),
        ("Momentum", {"learning_rate_args": "9:1"}, "schedule='poly' does not use learning_rate_args"),
        (
            "Adam",
            {"learning_rate_schedule": "manual", "learning_rate_args": "9:1", "learning_rate_decay_b": 2.0},
            "'manual' does not use learning_rate_decay_b",
        ),
        ("Momentum", {"regularization": paddle.optimizer.L2Regularization(0.1), "sparse": True}, ""),
    ],
)
def test_arguments_that_an_optimizer_ignores_are_logged(
    name: str, given: dict[str, Any], ignored: str, caplog: pytest.LogCaptureFixture
) -> None:
    with model.fresh():
        getattr(paddle.optimizer, name)(learning_rate=0.1, **given)
    assert bool(caplog.messages) is bool(ignored)
    assert re.search(ignored, "".join(caplog.messages))


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (
            ("Momentum", {"momentum": 0.9}),
            ("AdaGrad", {}),
            "AdaGrad is used with momentum=0.9, which was set elsewhere",
        ),
        (
            ("AdaGrad", {"gradient_clipping_threshold": 2.0}),
            ("Adam", {}),
            "gradient_clipping_threshold=2, which",
        ),
        (("Momentum", {"momentum": 0.9}), ("Momentum", {"momentum": 0.9}), ""),
        (("Momentum", {"momentum": 0.9}), ("Adam", {}), ""),
    ],
)
def test_settings_of_another_optimizer_that_apply_are_logged(
    first: tuple[str, dict[str, Any]],
    second: tuple[str, dict[str, Any]],
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    out = layer.fc(layer.data("x", data_type.dense_vector(2)), 1)
    cost = layer.square_error_cost(out, layer.data("y", data_type.dense_vector(1)))
    optimizer = [
        getattr(paddle.optimizer, name)(learning_rate=0.1, **given) for name, given in (first, second)
    ][1]
    paddle.trainer.SGD(cost, paddle.parameters.create(cost), optimizer)
    assert bool(caplog.messages) is bool(says)
    assert re.search(says, caplog.text)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_data_layer_and_a_parameter_can_have_the_same_name(sparse: bool) -> None:
    def trained(table: str, weight: str) -> list[np.ndarray]:
        words = layer.data("words", data_type.integer_value_sequence(5))
        x = layer.data("x", data_type.dense_vector(2))
        rows = layer.embedding(words, 2, param_attr=attr.Param(name=table, sparse_update=sparse))
        out = layer.fc(
            [layer.pooling(rows), x], 1, param_attr=[attr.Param(name="up"), attr.Param(name=weight)]
        )
        cost = layer.sum_cost(out)
        parameters = paddle.parameters.create(cost)
        for number, name in enumerate((table, "up", weight)):
            values = np.random.default_rng(number).normal(size=parameters.get_shape(name))
            parameters.set(name, values.astype(np.float32))
        trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(learning_rate=0.1))
        trainer.train(lambda: iter([[([1, 3], [1.0, 2.0])]]), num_passes=2)
        return [parameters.get(name) for name in (table, weight)]

    with model.fresh():
        expected = trained("table", "weight")
    for found, each in zip(trained("words", "x"), expected, strict=True):
        np.testing.assert_array_equal(found, each)
