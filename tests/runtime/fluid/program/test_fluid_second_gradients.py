# SPDX-License-Identifier: Apache-2.0
"""Gradients of gradients: against differences of the first ones, and a critic with a penalty on its slope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.graph.errors import BackwardError

layers = fluid.layers
FLAT, IMAGE = (3, 4), (1, 2, 4, 4)
_KEEP: Any = {"param_attr": fluid.initializer.Uniform(-0.5, 0.5, seed=3)}
CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "fc": (lambda x: layers.fc(x, 3, act="tanh", **_KEEP), FLAT),
    "matmul": (lambda x: layers.matmul(x, x, transpose_y=True), FLAT),
    "spread_mul": (lambda x: layers.elementwise_mul(x, layers.reduce_sum(x, dim=1), axis=0), FLAT),
    "spread_add": (lambda x: layers.elementwise_add(x, layers.reduce_mean(x, dim=1), axis=0), FLAT),
    "spread_sub": (lambda x: layers.elementwise_sub(x, layers.square(x)), FLAT),
    "div": (lambda x: layers.elementwise_div(x, layers.square(x) + 0.5), FLAT),
    "spread_div": (
        lambda x: layers.elementwise_div(x, layers.reduce_mean(layers.exp(x), dim=1), axis=0),
        FLAT,
    ),
    "number_div": (lambda x: 1.0 / (x + 3.0), FLAT),
    "mean": (lambda x: layers.mean(layers.square(x)), FLAT),
    "reshape": (lambda x: layers.reshape(layers.exp(x), [-1, 2]), FLAT),
    "squeeze": (lambda x: layers.squeeze(layers.unsqueeze(layers.sin(x), [0]), [0]), FLAT),
    "transpose": (lambda x: layers.transpose(x, [1, 0]), FLAT),
    "pad": (lambda x: layers.pad(layers.cos(x), [0, 1, 1, 0]), FLAT),
    "concat": (lambda x: layers.concat([x, layers.square(x)], 1), FLAT),
    "split": (lambda x: layers.elementwise_mul(*layers.split(x, 2, 1)), FLAT),
    "slice": (lambda x: layers.tanh(x[:, 1:3]), FLAT),
    "expand": (lambda x: layers.expand(layers.tanh(x), [2, 1]), FLAT),
    "leaky_relu": (lambda x: layers.leaky_relu(layers.square(x) - 0.5, 0.1), FLAT),
    "pow": (lambda x: layers.pow(x + 2.0, 2.5), FLAT),
    "stanh": (lambda x: layers.stanh(x), FLAT),
    "logs": (lambda x: layers.log(layers.square(x) + 1.0) + layers.logsigmoid(x) + layers.softplus(x), FLAT),
    "roots": (lambda x: layers.sqrt(x + 2.0) + layers.rsqrt(x + 2.0) + layers.reciprocal(x + 2.0), FLAT),
    "flatten": (lambda x: layers.flatten(layers.exp(x)), IMAGE),
    "pad2d": (lambda x: layers.sin(layers.pad2d(x, [1, 0, 0, 1], mode="reflect")), IMAGE),
    "crop": (lambda x: layers.crop(layers.exp(x), [2, 3], [1, 1]), FLAT),
    "gather": (lambda x: layers.exp(layers.gather(x, layers.assign(np.array([2, 0, 2], "int32")))), FLAT),
    "stack": (lambda x: layers.stack([x, layers.square(x)], 1), FLAT),
    "unstack": (lambda x: layers.elementwise_mul(*layers.unstack(layers.exp(x), 0)[:2]), FLAT),
    "bounds": (lambda x: layers.clip(layers.square(x), 0.1, 0.9) + layers.relu(layers.sin(x)), FLAT),
    "abs": (lambda x: layers.abs(layers.sin(x)) + layers.relu6(layers.exp(x)), FLAT),
    "conv2d": (lambda x: layers.conv2d(x, 3, 3, padding=1, act="tanh", **_KEEP), IMAGE),
    "conv2d_transpose": (lambda x: layers.tanh(layers.conv2d_transpose(x, 2, filter_size=3, **_KEEP)), IMAGE),
    "pool2d": (lambda x: layers.sigmoid(layers.pool2d(x, 2, "avg", 2)), IMAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_of_a_gradient_is_that_of_its_differences(name: str) -> None:
    make, shape = CASES[name]
    x = layers.data("x", list(shape), append_batch_size=False, dtype="float64")
    x.stop_gradient = False
    y = make(x)
    (dx,) = fluid.gradients(layers.reduce_sum(layers.square(y)), x)
    total = layers.reduce_sum(layers.square(dx))
    (found,) = fluid.gradients(total, x)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    value = np.random.default_rng(0).uniform(-1.2, 1.2, shape)

    def run(at: np.ndarray, what: Any) -> np.ndarray:
        return np.asarray(exe.run(feed={"x": at}, fetch_list=[what])[0])

    got, step = run(value, found), 1e-4
    for place in np.ndindex(*shape):
        moved = np.zeros(shape)
        moved[place] = step
        slope = (run(value + moved, total) - run(value - moved, total)).item() / (2 * step)
        assert got[place] == pytest.approx(slope, rel=2e-3, abs=2e-3)


def test_a_critic_is_trained_with_a_penalty_on_its_slope() -> None:
    """WGAN-GP (Gulrajani et al., 2017): parameters get the gradient of the norm of a gradient."""
    real, fake, mix = (layers.data(name, [1, 6, 6]) for name in ("real", "fake", "mix"))

    def critic(image: Any) -> Any:
        hidden = layers.leaky_relu(
            layers.conv2d(image, 4, 3, stride=2, padding=1, param_attr="c", bias_attr="cb")
        )
        return layers.fc(hidden, 1, param_attr="w", bias_attr="b")

    between = real * mix + fake * (1.0 - mix)
    (slope,) = fluid.gradients(critic(between), between)
    assert slope is not None
    norm = layers.sqrt(layers.reduce_sum(layers.square(layers.reshape(slope, [-1, 36])), dim=1) + 1e-12)
    penalty = layers.mean(layers.square(norm - 1.0))
    apart = layers.mean(critic(real)) - layers.mean(critic(fake))
    fluid.optimizer.Adam(1e-2, beta1=0.5).minimize(10.0 * penalty - apart)
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.default_startup_program().random_seed = 5
    exe.run(fluid.default_startup_program())
    rng = np.random.default_rng(1)
    seen = []
    for _ in range(120):
        feed = {
            "real": rng.normal(0.4, 0.2, (16, 1, 6, 6)).astype("float32"),
            "fake": rng.normal(-0.4, 0.2, (16, 1, 6, 6)).astype("float32"),
            "mix": np.broadcast_to(rng.random((16, 1, 1, 1)), (16, 1, 6, 6)).astype("float32"),
        }
        seen.append([float(each[0]) for each in exe.run(feed=feed, fetch_list=[penalty, apart])])
    # Clouds 4.8 apart: 4.8 n - 10 (n - 1)² is greatest at a slope of norm n = 1.24.
    found = np.mean(seen[-20:], axis=0)
    assert found == pytest.approx([0.24**2, 1.24 * 4.8], rel=0.25)


@pytest.mark.parametrize(
    "make",
    [lambda x: layers.softmax(x), lambda x: layers.transpose(layers.softmax(x), [1, 0])],
    ids=["at once", "behind another"],
)
def test_what_cannot_be_derived_twice_is_refused_by_name(make: Callable[[Any], Any]) -> None:
    x = layers.data("x", [3, 4], append_batch_size=False, stop_gradient=False)
    (dx,) = fluid.gradients(layers.square(make(x)), x)
    with pytest.raises(BackwardError, match=r"softmax_grad.*has none itself"):
        fluid.gradients(layers.square(dx), x)
