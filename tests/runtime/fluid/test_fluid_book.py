# SPDX-License-Identifier: Apache-2.0
"""What the book's scripts write works as it stands in them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle
import paddle.fluid as fluid


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


def test_a_fetched_loss_converts_to_a_number_though_it_has_shape_1() -> None:
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(x)
    exe = fluid.Executor(fluid.CPUPlace())
    one, many = exe.run(feed={"x": np.array([[1, 3]], np.float32)}, fetch_list=[loss, x])
    assert one.shape == (1,)
    assert (float(one), int(one), math.isnan(one), f"{one}") == (2.0, 2, False, "[2.]")
    assert repr([one]) == "[array([2.], dtype=float32)]"
    with pytest.raises((TypeError, ValueError)):
        float(many)


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
