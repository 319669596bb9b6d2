# SPDX-License-Identifier: Apache-2.0
"""Small models learn small synthetic tasks, and what the book's scripts write works as it stands in them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle
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


@pytest.mark.parametrize(("dim", "shape"), [(1, (1, 3)), (0, (4, 1)), (None, (1, 1))])
def test_a_normalised_weight_begins_as_its_initializer_says_and_has_the_norm_of_its_gain(
    dim: int | None, shape: tuple[int, ...]
) -> None:
    values = np.arange(1, 13, dtype="float32").reshape(4, 3)
    attr = fluid.WeightNormParamAttr(dim, "w", fluid.initializer.NumpyArrayInitializer(values))
    out = fluid.layers.fc(fluid.layers.data("x", [4]), 3, param_attr=attr, bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    (got,) = exe.run(feed={"x": np.eye(4, dtype="float32")}, fetch_list=[out])
    np.testing.assert_allclose(got, values, rtol=1e-5)
    gain = fluid.global_scope().get("w_g").copy()
    assert gain.shape == shape
    (got,) = exe.run(feed={"x": np.eye(4, dtype="float32")}, fetch_list=[out])
    norm = np.sqrt((np.array(got) ** 2).sum(None if dim is None else 1 - dim))
    np.testing.assert_allclose(norm, abs(gain).squeeze(), rtol=1e-5)


def test_the_package_alone_has_batches_readers_and_data_sets() -> None:
    script = (
        "import sys, paddle\n"
        "assert 'numpy' not in sys.modules\n"
        "read = paddle.batch(paddle.reader.shuffle(lambda: iter(range(5)), 5), 2, drop_last=True)\n"
        "print(sorted(map(len, read())), paddle.dataset.uci_housing.train, paddle.fluid.Program)\n"
    )
    runtime = str(Path(paddle.__file__).parent.parent)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": runtime},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.startswith("[2, 2] <function train"), ran.stderr


def test_a_decoding_that_is_built_after_minimize_is_saved_without_the_training(tmp_path: Path) -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    target = fluid.layers.data("target", [1], dtype="int64", lod_level=1)
    scores = fluid.layers.fc(fluid.layers.embedding(words, [9, 4]), 3)
    crf = fluid.ParamAttr(name="crfw")
    loss = fluid.layers.mean(fluid.layers.linear_chain_crf(scores, target, param_attr=crf))
    fluid.optimizer.SGD(0.1).minimize(loss)
    path = fluid.layers.crf_decoding(scores, param_attr=fluid.ParamAttr(name="crfw"))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path), ["words"], [path], exe)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, targets = fluid.io.load_inference_model(str(tmp_path), exe)
        fed = fluid.create_lod_tensor(np.array([[1], [2], [3]]), [[2, 1]], fluid.CPUPlace())
        (decoded,) = exe.run(program, feed={"words": fed}, fetch_list=targets, return_numpy=False)
    assert feeds == ["words"]
    assert decoded.recursive_sequence_lengths() == [[2, 1]]


def test_states_that_carry_the_levels_of_a_beam_search_are_expanded_row_by_row() -> None:
    state = fluid.layers.data("state", [1], lod_level=2)
    scores = fluid.layers.data("scores", [1], lod_level=2)
    out = fluid.layers.sequence_expand(state, scores)
    place = fluid.CPUPlace()
    (got,) = fluid.Executor(place).run(
        feed={
            "state": fluid.create_lod_tensor(np.array([[1.0], [2.0]], np.float32), [[1, 1], [1, 1]], place),
            "scores": fluid.create_lod_tensor(np.zeros((3, 1), np.float32), [[1, 1], [2, 1]], place),
        },
        fetch_list=[out],
        return_numpy=False,
    )
    assert np.array(got).ravel().tolist() == [1, 1, 2]
    assert got.recursive_sequence_lengths() == [[1, 1], [2, 1]]


@pytest.mark.parametrize("bias", [None, False])
def test_a_batch_norm_folded_into_its_convolution_gives_the_same(bias: bool | None) -> None:
    image = fluid.layers.data("image", [2, 5, 5])
    out = fluid.layers.batch_norm(fluid.layers.conv2d(image, 3, 3, bias_attr=bias), act="relu")
    inference = fluid.default_main_program().clone(for_test=True)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    draws = np.random.default_rng(0)
    for parameter in inference.global_block().all_parameters():
        shape = [abs(size) for size in parameter.shape]
        tensor = fluid.global_scope().find_var(parameter.name).get_tensor()  # type: ignore[union-attr]
        tensor.set(draws.uniform(0.5, 2, shape).astype("float32"))
    feed = {"image": draws.normal(size=(4, 2, 5, 5)).astype("float32")}
    folded = inference.clone()
    fluid.transpiler.InferenceTranspiler().transpile(folded, fluid.CPUPlace())
    assert [op.type for op in folded.global_block().ops] == ["conv2d", "elementwise_add", "relu"]
    (expected,) = exe.run(inference, feed=feed, fetch_list=[out])
    (got,) = exe.run(folded, feed=feed, fetch_list=[out])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert got.any()
