# SPDX-License-Identifier: Apache-2.0
"""The book's first two chapters on their real data, as far as a test has time."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput

DATA = Path(__file__).resolve().parents[5] / "shared" / "data"


@pytest.fixture
def data_home(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not DATA.is_dir():
        pytest.skip(f"needs the data sets in {DATA}")
    monkeypatch.setenv("PADDLE_DATA_HOME", str(DATA))
    return DATA


def test_fit_a_line_learns_house_prices(data_home: Path) -> None:
    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(13))
    y_predict = paddle.layer.fc(input=x, size=1, act=paddle.activation.Linear())
    y = paddle.layer.data(name="y", type=paddle.data_type.dense_vector(1))
    cost = paddle.layer.square_error_cost(input=y_predict, label=y)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(momentum=0)
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)
    test = paddle.batch(paddle.dataset.uci_housing.test(), batch_size=2)
    before = trainer.test(reader=test, feeding={"x": 0, "y": 1}).cost
    trainer.train(
        reader=paddle.batch(paddle.dataset.uci_housing.train(), batch_size=2),
        feeding={"x": 0, "y": 1},
        num_passes=30,
    )
    after = trainer.test(reader=test, feeding={"x": 0, "y": 1}).cost
    assert after < 40 < before
    houses = [(item[0],) for item in paddle.dataset.uci_housing.test()()]
    prices = np.array([item[1] for item in paddle.dataset.uci_housing.test()()])
    found = paddle.infer(output_layer=y_predict, parameters=parameters, input=houses)
    assert float(((found - prices) ** 2).mean()) == pytest.approx(after, rel=1e-4)


def digits(home: Path, name: str, count: int) -> list[tuple[np.ndarray, int]]:
    with gzip.open(home / "mnist" / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + 784 * count), np.uint8, offset=16)
    with gzip.open(home / "mnist" / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count), np.uint8, offset=8)
    images = pixels.reshape(count, 784).astype(np.float32) / 255 * 2 - 1
    return [(image, int(label)) for image, label in zip(images, labels, strict=True)]


def softmax_regression(img: LayerOutput) -> LayerOutput:
    return paddle.layer.fc(input=img, size=10, act=paddle.activation.Softmax())


def multilayer_perceptron(img: LayerOutput) -> LayerOutput:
    hidden1 = paddle.layer.fc(input=img, size=128, act=paddle.activation.Relu())
    hidden2 = paddle.layer.fc(input=hidden1, size=64, act=paddle.activation.Relu())
    return paddle.layer.fc(input=hidden2, size=10, act=paddle.activation.Softmax())


def convolutional_neural_network(img: LayerOutput) -> LayerOutput:
    conv_pool_1 = paddle.networks.simple_img_conv_pool(
        input=img,
        filter_size=5,
        num_filters=20,
        num_channel=1,
        pool_size=2,
        pool_stride=2,
        act=paddle.activation.Relu(),
    )
    conv_pool_2 = paddle.networks.simple_img_conv_pool(
        input=conv_pool_1,
        filter_size=5,
        num_filters=50,
        num_channel=20,
        pool_size=2,
        pool_stride=2,
        act=paddle.activation.Relu(),
    )
    return paddle.layer.fc(input=conv_pool_2, size=10, act=paddle.activation.Softmax())


@pytest.mark.parametrize(
    ("network", "count", "most_wrong"),
    [
        (softmax_regression, 4000, 0.2),
        (multilayer_perceptron, 4000, 0.2),
        (convolutional_neural_network, 1500, 0.25),
    ],
)
def test_recognize_digits_learns(data_home: Path, network: object, count: int, most_wrong: float) -> None:
    train, tested = digits(data_home, "train", count), digits(data_home, "t10k", 500)
    images = paddle.layer.data(name="pixel", type=paddle.data_type.dense_vector(784))
    label = paddle.layer.data(name="label", type=paddle.data_type.integer_value(10))
    assert callable(network)
    predict = network(images)
    cost = paddle.layer.classification_cost(input=predict, label=label)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.1 / 128.0,
        momentum=0.9,
        regularization=paddle.optimizer.L2Regularization(rate=0.0005 * 128),
    )
    trainer = paddle.trainer.SGD(cost=cost, parameters=parameters, update_equation=optimizer)

    def reader() -> Iterator[tuple[np.ndarray, int]]:
        yield from train

    trainer.train(reader=paddle.batch(reader, batch_size=64), num_passes=2)
    result = trainer.test(reader=paddle.batch(lambda: iter(tested), batch_size=128))
    assert result.metrics["classification_error_evaluator"] < most_wrong
    probs = paddle.infer(output_layer=predict, parameters=parameters, input=[(tested[0][0],)])
    assert np.argsort(-probs)[0][0] == tested[0][1] == 7
