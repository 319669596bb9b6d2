# SPDX-License-Identifier: Apache-2.0
"""Small models learn small synthetic tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

Variable = fluid.framework.Variable


def mlp(image: Variable) -> Variable:
    return fluid.layers.fc(fluid.layers.fc(image, 32, act="tanh"), 4, act="softmax")


def conv_net(image: Variable) -> Variable:
    hidden = fluid.layers.conv2d(image, 6, 3)
    hidden = fluid.layers.batch_norm(fluid.layers.pool2d(hidden, 2, "max", 2), act="relu")
    return fluid.layers.fc(hidden, 4, act="softmax")


def images(batches: int) -> Iterator[list[tuple[Any, int]]]:
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((4, 144)).astype("float32")
    for _ in range(batches):
        labels = rng.integers(0, 4, 32)
        yield [(kinds[k] + 0.5 * rng.standard_normal(144).astype("float32"), int(k)) for k in labels]


@pytest.mark.parametrize("net", [mlp, conv_net])
def test_a_net_learns_to_tell_images_apart(net: Callable[[Variable], Variable]) -> None:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 5
    image = fluid.layers.data("image", [1, 12, 12])
    label = fluid.layers.data("label", [1], dtype="int64")
    prediction = net(image)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
    accuracy = fluid.layers.accuracy(prediction, label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(0.01).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([image, label], fluid.CPUPlace())
    losses = [exe.run(feed=feeder.feed(batch), fetch_list=[loss])[0] for batch in images(25)]
    assert losses[0].shape == (1,)
    assert losses[-1] < 0.1 * losses[0]
    tested = exe.run(test_program, feed=feeder.feed(next(images(1))), fetch_list=[loss, accuracy])
    assert float(tested[1][0]) > 0.95


@pytest.mark.parametrize("is_sparse", [False, True])
def test_an_ngram_model_learns_which_word_comes_next(is_sparse: bool) -> None:
    fluid.default_startup_program().random_seed = 5
    words = [fluid.layers.data(f"word_{at}", [1], dtype="int64") for at in range(4)]
    target = fluid.layers.data("target", [1], dtype="int64")
    embedded = [fluid.layers.embedding(w, [20, 8], is_sparse=is_sparse, param_attr="shared_w") for w in words]
    hidden = fluid.layers.fc(fluid.layers.concat(embedded, 1), 32, act="sigmoid")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 20, act="softmax"), target))
    fluid.optimizer.Adagrad(0.1, regularization=fluid.regularizer.L2DecayRegularizer(1e-5)).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([*words, target], fluid.CPUPlace())
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(60):
        starts = rng.integers(0, 20, 32)
        batch = [tuple(int((s + 3 * at) % 20) for at in range(5)) for s in starts]
        losses.append(float(exe.run(feed=feeder.feed(batch), fetch_list=[loss])[0][0]))
    assert losses[-1] < 0.3 * losses[0]


def test_updates_change_the_arrays_of_the_scope_and_nothing_that_was_fetched() -> None:
    x = fluid.layers.data("x", [2])
    weight = fluid.layers.create_parameter([2, 2], "float32", name="w")
    flat = fluid.layers.reshape(weight, [4])
    loss = fluid.layers.mean(fluid.layers.mul(x, weight))
    fluid.optimizer.SGD(1.0).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    held = fluid.global_scope().get("w")
    before = held.copy()
    seen, _ = exe.run(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[flat, loss])
    np.testing.assert_array_equal(seen, before.reshape(-1))
    assert held is fluid.global_scope().get("w")
    np.testing.assert_allclose(held, before - 0.5, rtol=1e-6)


def test_the_startup_program_gives_the_same_values_each_time() -> None:
    fluid.default_startup_program().random_seed = 3
    fluid.layers.fc(fluid.layers.data("x", [4]), 4, param_attr="w")
    exe = fluid.Executor(fluid.CPUPlace())
    values = []
    for _ in range(2):
        exe.run(fluid.default_startup_program())
        values.append(fluid.global_scope().get("w").copy())
    np.testing.assert_array_equal(*values)


def test_weights_can_be_normalised() -> None:
    attr = fluid.WeightNormParamAttr(name="w", dim=1)
    out = fluid.layers.fc(fluid.layers.data("x", [4]), 3, param_attr=attr, bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    v = fluid.global_scope().get("w_v").copy()
    (got,) = exe.run(feed={"x": np.eye(4, dtype="float32")}, fetch_list=[out])
    np.testing.assert_allclose(got, v / np.linalg.norm(v, axis=0), rtol=1e-5)
