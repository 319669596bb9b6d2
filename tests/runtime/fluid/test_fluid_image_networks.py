# SPDX-License-Identifier: Apache-2.0
"""The networks that people train on images are built, learn, and are exported for processes that only infer."""

from __future__ import annotations

import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from tests.runtime.fluid.image_networks import NETWORKS, Maker

_RATE = 1e-6  # the first gradients of deep networks over few pixels are large
_INFER = """
import sys
import numpy as np
import paddle.fluid as fluid
folder, exe = sys.argv[1], fluid.Executor(fluid.CPUPlace())
program, feeds, fetches = fluid.io.load_inference_model(folder + "/model", exe)
found = exe.run(program, feed={feeds[0]: np.load(folder + "/images.npy")}, fetch_list=fetches)
np.save(folder + "/found.npy", np.stack(found))
"""


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_the_whole_width_has_the_weights_that_were_published(name: str) -> None:
    network = NETWORKS[name]
    images = layers.data("images", [3, network.side, network.side])
    for scores in network.scores(Maker(), images):
        assert scores.shape == (-1, 1000)
    weights = [
        each for each in fluid.default_main_program().global_block().all_parameters() if each.trainable
    ]
    assert sum(prod(each.shape) for each in weights) == network.weights


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_learns_and_gives_another_process_what_it_learnt(name: str, tmp_path: Path) -> None:
    network, rng = NETWORKS[name], np.random.default_rng(3)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 5
    images = layers.data("images", [3, network.least, network.least])
    label = layers.data("label", [1], dtype="int64")
    scores = network.scores(Maker(thin=4, classes=7), images)
    chances = [layers.softmax(each) for each in scores]
    costs = [layers.mean(layers.cross_entropy(each, label)) for each in chances]
    infer = main.clone(for_test=True)
    _, pairs = fluid.optimizer.Momentum(_RATE, 0.9).minimize(layers.sums(costs))
    weights, gradients = zip(*pairs, strict=True)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.global_scope()
    exe.run(startup)
    before = [np.array(scope.get(each.name)) for each in weights]
    pixels = rng.standard_normal((4, 3, network.least, network.least)).astype("float32")
    feed = {"images": pixels, "label": rng.integers(0, 7, (4, 1))}
    for weight, old, gradient in zip(weights, before, exe.run(feed=feed, fetch_list=gradients), strict=True):
        assert gradient.any(), weight.name
        moved = old - np.float32(_RATE) * gradient
        np.testing.assert_allclose(scope.get(weight.name), moved, rtol=1e-6, atol=1e-9, err_msg=weight.name)

    fluid.io.save_inference_model(tmp_path / "model", ["images"], [scores[0], chances[0]], exe)
    expected = exe.run(infer, feed={"images": pixels}, fetch_list=[scores[0], chances[0]])
    np.testing.assert_allclose(expected[1].sum(axis=1), 1, rtol=1e-5)
    np.save(tmp_path / "images.npy", pixels)
    subprocess.run([sys.executable, "-c", _INFER, tmp_path], check=True, timeout=100)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected, rtol=1e-6)
