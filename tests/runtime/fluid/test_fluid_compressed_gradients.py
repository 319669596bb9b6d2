# SPDX-License-Identifier: Apache-2.0
"""DGCMomentumOptimizer: what is sent and what waits, against numpy; accuracy; small parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.ops.base.registry import lookup
from paddle.ops.base.selected_rows import SelectedRows

RNG = np.random.default_rng(21)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_largest_elements_are_sent_and_the_rest_waits(nesterov: bool) -> None:
    u, v, g = (RNG.normal(size=(6, 5)).astype("float32") for _ in range(3))
    mu, first_v = np.float32(0.9), v.copy()
    expected_u = mu * (u + g) if nesterov else mu * u + g
    expected_v = first_v + expected_u + (g if nesterov else 0)
    order = np.argsort(-abs(expected_v.ravel()))[:3]
    attrs = {"m": 0.9, "use_nesterov": nesterov, "sparsity": (0.5, 0.875), "rampup_begin_step": 4.0}
    dgc: Any = lookup("dgc").kernel
    whole = dgc(u.copy(), v.copy(), g, np.array([3.0], "f4"), rampup_step=2.0, **attrs)
    np.testing.assert_array_equal(whole[2], g.ravel())
    counts = [
        float(dgc(u.copy(), v.copy(), g, np.array([at], "f4"), rampup_step=2.0, **attrs)[3][0])
        for at in (4.0, 5.0, 6.0, 99.0)
    ]
    assert counts == [15, 3, 3, 3]
    sent = dgc(u, v, g, np.array([5.0], "f4"), rampup_step=2.0, **attrs)[2]
    assert isinstance(sent, SelectedRows)
    chosen = order[: len(sent.rows)]
    assert set(sent.rows.tolist()) == set(chosen.tolist())
    np.testing.assert_allclose(sent.values, expected_v.ravel()[sent.rows], rtol=1e-6)
    expected_u.ravel()[chosen] = 0
    expected_v.ravel()[chosen] = 0
    np.testing.assert_allclose(u, expected_u, rtol=1e-6)
    np.testing.assert_allclose(v, expected_v, rtol=1e-6)


def losses(optimizer: Any, steps: int) -> list[float]:
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x, y = layers.data("x", [40]), layers.data("y", [1], dtype="int64")
        hidden = layers.fc(x, 512, act="relu")  # 20,480 elements: compressed
        loss = layers.mean(layers.cross_entropy(layers.fc(hidden, 3, act="softmax"), y))
        optimizer.minimize(loss)
        exe = fluid.Executor()
        exe.run(startup)
        rng, found = np.random.default_rng(0), []
        centres = rng.normal(size=(3, 40))
        for _ in range(steps):
            labels = rng.integers(0, 3, (32, 1))
            xs = centres[labels[:, 0]] + rng.normal(size=(32, 40))
            found.append(float(exe.run(main, {"x": xs.astype("float32"), "y": labels}, [loss])[0]))
        return found


def test_before_the_first_compressed_step_it_is_momentum() -> None:
    plain = losses(fluid.optimizer.Momentum(0.01, 0.9, True, fluid.regularizer.L2Decay(1e-3)), 4)
    decay = fluid.regularizer.L2Decay(1e-3)
    dgc = fluid.optimizer.DGCMomentumOptimizer(0.01, 0.9, 100, use_nesterov=True, regularization=decay)
    np.testing.assert_allclose(losses(dgc, 4), plain, rtol=1e-6)


def test_a_thousandth_of_a_gradient_trains_to_nearly_the_same_loss() -> None:
    plain = losses(fluid.optimizer.Momentum(0.02, 0.9), 40)
    dgc = fluid.optimizer.DGCMomentumOptimizer(0.02, 0.9, 5, 15, [0.75, 0.9375, 0.984375, 0.996, 0.999])
    found = losses(dgc, 40)
    assert found[0] == plain[0]
    assert np.mean(found[-10:]) < 2 * np.mean(plain[-10:]) + 0.05
    assert np.mean(found[-10:]) < 0.1 * found[0]


def test_small_and_sparse_gradients_are_sent_as_they_are() -> None:
    x = layers.data("x", [1], dtype="int64")
    loss = layers.mean(layers.fc(layers.embedding(x, [5000, 8], is_sparse=True), 2))
    optimizer = fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, local_grad_clip_norm=1.0, num_trainers=2)
    optimizer.minimize(loss)
    types = [op.type for op in fluid.default_main_program().global_block().ops]
    assert "dgc" not in types
    assert types.count("momentum") == 3


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="local_grad_clip_norm needs num_trainers"):
        fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, local_grad_clip_norm=1.0)
    with pytest.raises(ValueError, match=r"sparsity .*\[1\.0\]"):
        fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0, sparsity=[1.0])
    with pytest.raises(ValueError, match=r"rampup_begin_step .* got -1"):
        fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, -1)
