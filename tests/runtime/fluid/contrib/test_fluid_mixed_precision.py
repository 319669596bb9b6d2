# SPDX-License-Identifier: Apache-2.0
"""mixed_precision: which operators compute in float16, the factor of the loss, and what it does on a processor."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.contrib.mixed_precision import AutoMixedPrecisionLists, decorate, rewrite_program

X = np.random.RandomState(3).randn(8, 5).astype("float32")
Y = (X.sum(1, keepdims=True) > 0).astype("int64")


def net() -> fluid.framework.Variable:
    x, y = layers.data("x", [5]), layers.data("y", [1], dtype="int64")
    hidden = layers.fc(x, 6, act="relu", param_attr=fluid.initializer.Constant(0.1))
    out = layers.fc(hidden, 2, act="softmax", param_attr=fluid.initializer.Uniform(seed=3))
    return layers.mean(layers.cross_entropy(out, y))


def train(optimizer: Any, steps: int = 5, x: Any = X) -> tuple[list[float], dict[str, Any]]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss = net()
        optimizer.minimize(loss)
        exe = fluid.Executor()
        exe.run(startup)
        losses = [float(exe.run(main, {"x": x, "y": Y}, [loss])[0]) for _ in range(steps)]
        kept = {
            each.name: np.array(fluid.global_scope().get(each.name))
            for each in main.list_vars()
            if each.persistable
        }
    return losses, kept


def test_a_factor_changes_nothing_and_a_warning_tells_of_float32(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        plain, weights = train(fluid.optimizer.Momentum(0.1, 0.9))
        scaled, found = train(decorate(fluid.optimizer.Momentum(0.1, 0.9), init_loss_scaling=128.0))
        train(decorate(fluid.optimizer.SGD(0.1)), 1)
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)
    np.testing.assert_allclose(found["fc_0.w_0"], weights["fc_0.w_0"], rtol=1e-5)
    if not fluid.is_compiled_with_cuda():
        assert caplog.text.count("has no GPU") <= 1  # once a process


def test_a_dynamic_factor_grows_and_shrinks_and_infinite_gradients_count_as_0() -> None:
    def made() -> Any:
        return decorate(
            fluid.optimizer.SGD(0.1), None, 8.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=2,
            use_dynamic_loss_scaling=True, decr_ratio=0.5,
        )  # fmt: skip

    _, kept = train(made(), 5)
    assert kept["loss_scaling_0"].tolist() == [32.0]
    assert kept["num_good_steps_0"].tolist() == [1]
    before = train(made(), 0)[1]
    with np.errstate(all="ignore"):
        _, kept = train(made(), 3, np.where(X > 0, X, np.inf).astype("float32"))
    assert kept["loss_scaling_0"].tolist() == [4.0]
    assert kept["num_bad_steps_0"].tolist() == [1]
    assert all(np.array_equal(kept[name], before[name]) for name in kept if name.startswith("fc_"))


def test_operators_in_white_compute_in_float16_and_parameters_stay_float32() -> None:
    loss = net()
    main = fluid.default_main_program()
    plain = main.clone()
    rewrite_program(main, AutoMixedPrecisionLists())
    dtypes = {op.type: main.global_block().var(op.writes[0]).dtype.name for op in main.global_block().ops}
    assert dtypes == {
        "cast": dtypes["cast"], "mul": "float16", "elementwise_add": "float16", "relu": "float16",
        "softmax": "float32", "cross_entropy": "float32", "mean": "float32",
    }  # fmt: skip
    assert [op.type for op in main.global_block().ops].count("cast") == 6
    fluid.optimizer.SGD(0.5).minimize(loss)
    assert all(each.dtype == np.float32 for each in main.global_block().all_parameters())
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    (exact,) = exe.run(plain, {"x": X, "y": Y}, [loss.name])
    losses = [float(exe.run(main, {"x": X, "y": Y}, [loss])[0]) for _ in range(20)]
    np.testing.assert_allclose(losses[0], exact[0], rtol=2e-3)
    assert losses[-1] < 0.8 * losses[0]


def test_custom_lists_move_operators_and_must_not_overlap() -> None:
    lists = AutoMixedPrecisionLists({"softmax"}, {"mul", "relu"})
    assert "softmax" in lists.white_list
    assert "softmax" not in lists.black_list
    assert {"mul", "relu"} <= lists.black_list
    assert "mul" not in lists.white_list
    assert "relu" not in lists.gray_list
    with pytest.raises(ValueError, match="'tanh' is in both"):
        AutoMixedPrecisionLists({"tanh"}, {"tanh"})
