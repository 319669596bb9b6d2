# SPDX-License-Identifier: Apache-2.0
"""ModelAverage and ExponentialMovingAverage against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid

Array = Any
O = fluid.optimizer  # noqa: E741


def _trained(steps: int, **window: Any) -> tuple[Any, Any, list[Any]]:
    """Return the average, the executor, and the parameter after each update."""
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr="w", bias_attr=False))
    fluid.optimizer.SGD(0.5).minimize(loss)
    average = fluid.optimizer.ModelAverage(**window)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    seen = []
    rng = np.random.default_rng(1)
    for _ in range(steps):
        executor.run(feed={"x": rng.standard_normal((3, 2)).astype("float32")}, fetch_list=[loss])
        seen.append(fluid.global_scope().get("w").copy())
    return average, executor, seen


def test_all_updates_are_in_the_mean_until_the_window_is_cut() -> None:
    average, executor, seen = _trained(5, average_window_rate=1.0)
    with average.apply(executor):
        np.testing.assert_allclose(fluid.global_scope().get("w"), np.mean(seen, axis=0), rtol=1e-5)
    np.testing.assert_array_equal(fluid.global_scope().get("w"), seen[-1])


def test_a_window_that_is_too_long_is_cut_and_the_one_before_still_counts() -> None:
    window = {"average_window_rate": 1.0, "min_average_window": 2, "max_average_window": 3}
    average, executor, seen = _trained(7, **window)
    with average.apply(executor, need_restore=False):
        pass
    # Cut after the second and the fifth update: the mean has the window before and what came since.
    np.testing.assert_allclose(fluid.global_scope().get("w"), np.mean(seen[2:], axis=0), rtol=1e-5)
    average.restore(executor)
    np.testing.assert_array_equal(fluid.global_scope().get("w"), seen[-1])


def test_training_goes_on_from_the_values_that_were_given_back() -> None:
    average, executor, seen = _trained(2, average_window_rate=1.0)
    with average.apply(executor):
        pass
    executor.run(feed={"x": np.zeros((3, 2), "float32")})
    np.testing.assert_array_equal(fluid.global_scope().get("w"), seen[-1])


def test_a_mean_of_nothing_is_refused() -> None:
    average, executor, _ = _trained(0, average_window_rate=1.0)
    with pytest.raises(RuntimeError, match="train first"), average.apply(executor):
        pass


def _moving(decay: float, steps: int, scheduled: bool) -> tuple[Any, fluid.Executor, list[Array]]:
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr="w", bias_attr=False))
    O.SGD(0.5).minimize(loss)
    counter = fluid.layers.autoincreased_step_counter() if scheduled else None
    average = O.ExponentialMovingAverage(decay, thres_steps=counter)
    average.update()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    seen = []
    rng = np.random.default_rng(1)
    for _ in range(steps):
        executor.run(feed={"x": rng.standard_normal((3, 2)).astype("float32")}, fetch_list=[loss])
        seen.append(fluid.global_scope().get("w").copy())
    return average, executor, seen


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_moving_average_forgets_by_its_decay_and_has_no_trace_of_its_first_value(scheduled: bool) -> None:
    average, executor, seen = _moving(0.5, 12, scheduled)
    expected, rest = np.zeros_like(seen[0]), 1.0
    for step, value in enumerate(seen, start=1):
        decay = min(0.5, (1 + step) / (10 + step)) if scheduled else 0.5
        expected, rest = decay * expected + (1 - decay) * value, rest * decay
    with average.apply(executor):
        np.testing.assert_allclose(fluid.global_scope().get("w"), expected / (1 - rest), rtol=1e-5)
    np.testing.assert_array_equal(fluid.global_scope().get("w"), seen[-1])
    with average.apply(executor, need_restore=False):
        pass
    assert (fluid.global_scope().get("w") != seen[-1]).any()
    average.restore(executor)
    np.testing.assert_array_equal(fluid.global_scope().get("w"), seen[-1])


def test_a_moving_average_of_nothing_is_refused() -> None:
    average, executor, _ = _moving(0.9, 0, scheduled=False)
    with pytest.raises(RuntimeError, match="ExponentialMovingAverage"), average.apply(executor):
        pass
    with pytest.raises(ValueError, match="update was called twice"):
        average.update()
    with pytest.raises(ValueError, match="expected 0 <= decay < 1, got 1"):
        O.ExponentialMovingAverage(1)


def test_means_are_listed_loaded_and_update_nothing() -> None:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [2]), 1, bias_attr=False))
    fluid.optimizer.SGD(0.1).minimize(loss)
    average = fluid.optimizer.ModelAverage(1.0)
    names = average.get_opti_var_name_list()
    assert len(names) == 6
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    exe.run(feed={"x": np.ones((1, 2), "float32")})
    kept = {name: np.array(fluid.global_scope().get(name)) for name in names}
    exe.run(feed={"x": np.ones((1, 2), "float32")})
    average.load(kept)
    assert all(np.array_equal(fluid.global_scope().get(name), kept[name]) for name in names)
    with pytest.raises(ValueError, match="updates no parameters"):
        average.minimize(loss)
