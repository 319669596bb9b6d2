# SPDX-License-Identifier: Apache-2.0
"""What gradients and append_backward derive, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.graph.errors import BackwardError


def _slopes(pairs: list[Any], feed: dict[str, Any]) -> list[Any]:
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=[grad for _, grad in pairs])


def test_a_parameter_list_may_name_data_and_what_is_computed_of_it() -> None:
    x, still = fluid.layers.data("x", [3], stop_gradient=False), fluid.layers.data("still", [3])
    hidden = fluid.layers.square(x)
    out = fluid.layers.fc(hidden * still, 1, param_attr="w", bias_attr=False)
    loss = fluid.layers.reduce_sum(out)
    pairs = fluid.backward.append_backward(loss, parameter_list=[hidden, "x", "w"])
    assert [variable.name for variable, _ in pairs] == [hidden.name, "x", "w"]
    xs, held = np.random.default_rng(0).standard_normal((2, 2, 3)).astype("float32")
    of_hidden, of_x, of_w = _slopes(pairs, {"x": xs, "still": held})
    weights = np.array(fluid.global_scope().get("w"))[:, 0]
    np.testing.assert_allclose(of_hidden, held * weights, rtol=1e-5)
    np.testing.assert_allclose(of_x, 2 * xs * held * weights, rtol=1e-5)
    np.testing.assert_allclose(of_w[:, 0], (xs**2 * held).sum(0), rtol=1e-5)


def test_a_parameter_list_that_nothing_can_be_derived_for_is_refused() -> None:
    x, ids = fluid.layers.data("x", [3]), fluid.layers.data("ids", [1], dtype="int64")
    other = fluid.layers.data("other", [3], stop_gradient=False)
    rows = fluid.layers.embedding(ids, [5, 3])
    loss = fluid.layers.mean(fluid.layers.fc(rows * x, 1, param_attr="w"))
    cases: tuple[tuple[list[Any], str], ...] = (
        ([x], "parameter_list: x .* cannot have a gradient: set x.stop_gradient = False"),
        (["w", ids], "parameter_list: ids .*: only floating-point variables have a gradient"),
        ([other], "does not depend on other"),
        ([], "does not depend on the empty parameter_list"),
        (["no_such"], "block 0 has no variable 'no_such'"),
    )
    for asked, told in cases:
        with pytest.raises((BackwardError, ValueError), match=told):
            fluid.backward.append_backward(loss, parameter_list=asked)
    x.stop_gradient = False
    with pytest.raises(BackwardError, match="does not depend on x"):
        fluid.backward.append_backward(loss, parameter_list=[x], no_grad_set={"x"})
    with pytest.raises(TypeError, match="is not a parameter"):
        fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=[x])


def test_gradients_leave_out_what_is_in_a_no_grad_set() -> None:
    x = fluid.layers.data("x", [3])
    left, right = fluid.layers.square(x), fluid.layers.scale(x, 3.0)
    total = left + right
    plain = fluid.gradients(total, [x, left])
    cut = fluid.backward.calc_gradient([total], [x], no_grad_set={left.name})
    assert fluid.gradients(right, left) == [None]
    xs = np.array([[1, -2, 3]], "float32")
    asked: list[Any] = [*plain, cut]
    got = fluid.Executor().run(feed={"x": xs}, fetch_list=asked)
    for value, expected in zip(got, (2 * xs + 3, np.ones_like(xs), 0 * xs + 3), strict=True):
        np.testing.assert_allclose(value, expected)


def test_gradients_of_a_sparse_table_are_known_as_rows() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    loss = fluid.layers.reduce_sum(fluid.layers.embedding(ids, [5, 2], is_sparse=True, param_attr="table"))
    table = fluid.default_main_program().global_block().var("table")
    (grad,) = fluid.gradients(loss, table)
    assert grad is not None
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
    fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1)).apply_gradients([(table, grad)])
    assert grad.type == fluid.core.VarDesc.VarType.SELECTED_ROWS
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    before = np.array(fluid.global_scope().get("table"))
    executor.run(feed={"ids": np.array([[1], [1]], "int64")})
    assert np.isfinite(fluid.global_scope().get("table")).all()
    assert (fluid.global_scope().get("table") != before).all()


def test_errors_are_clipped_at_activations_data_parameters_and_sparse_tables() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    x = fluid.layers.data("x", [2], stop_gradient=False)
    rows = fluid.layers.embedding(ids, [5, 2], is_sparse=True, param_attr="table")
    hidden = fluid.layers.scale(rows + x, 2.0)
    block = fluid.default_main_program().global_block()
    for variable, clip in (
        (hidden, fluid.clip.ErrorClipByValue(0.5)),
        (x, fluid.clip.ErrorClipByValue(0.25)),
        (block.var("table"), fluid.clip.ErrorClipByValue(1.5, -0.5)),
    ):
        variable._set_error_clip(clip)
    g = fluid.layers.data("g", [2])
    loss = fluid.layers.reduce_sum(hidden * g)
    pairs = fluid.backward.append_backward(loss, parameter_list=["x", "table"])
    slope = np.array([[3, -3], [0.1, -3], [-2, 0.05]], "float32")
    feed = {"ids": np.array([[1], [2], [1]]), "x": np.zeros((3, 2), "float32"), "g": slope}
    of_x, of_table = _slopes(pairs, feed)
    inner = 2 * slope.clip(-0.5, 0.5)
    np.testing.assert_allclose(of_x, inner.clip(-0.25, 0.25))
    dense = np.zeros((5, 2), "float32")
    np.add.at(dense, [1, 2, 1], inner)
    np.testing.assert_allclose(of_table.to_dense(), dense.clip(-0.5, 1.5), rtol=1e-6)


def test_errors_are_clipped_inside_a_loop_over_steps() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    rows = fluid.layers.embedding(words, [4, 2], param_attr="table")
    steps = fluid.layers.DynamicRNN()
    with steps.block():
        row = steps.step_input(rows)
        before = steps.memory(shape=[2], value=0.0)
        now = fluid.layers.scale(row + before, 3.0)
        now._set_error_clip(fluid.clip.ErrorClipByValue(0.1, -0.2))
        steps.update_memory(before, now)
        steps.output(now)
    outputs = steps()
    assert isinstance(outputs, fluid.framework.Variable)
    last = fluid.layers.sequence_last_step(outputs)
    sign = fluid.layers.assign(np.array([1, -1], "float32"))
    loss = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(last, sign))
    pairs = fluid.backward.append_backward(loss)
    ids = fluid.create_lod_tensor(np.array([[1], [2], [1]]), [[2, 1]], fluid.CPUPlace())
    (of_table,) = _slopes(pairs, {"words": ids})
    # 1 and -1 are cut to 0.1 and -0.2, times 3 they go to the row and the step before, and are cut there again
    expected = np.array([[0, 0], [0.6, -1.2], [0.3, -0.6], [0, 0]])
    np.testing.assert_allclose(of_table, expected, rtol=1e-6)


def test_a_second_loss_derives_for_what_the_first_one_updated() -> None:
    x = fluid.layers.data("x", [2])

    def out() -> fluid.framework.Variable:
        return fluid.layers.fc(x, 1, param_attr="w", bias_attr=False)

    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out()))
    second = fluid.layers.mean(fluid.layers.square(out()))
    fluid.optimizer.SGD(0.1).minimize(second)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    weights = np.array(fluid.global_scope().get("w"))
    xs = np.array([[1, 2], [3, 4]], "float32")
    (found,) = executor.run(feed={"x": xs}, fetch_list=[second])
    weights = weights - 0.1 * xs.mean(0)[:, None]
    guess = xs @ weights
    np.testing.assert_allclose(found, (guess**2).mean(), rtol=1e-5)
    expected = weights - 0.1 * (guess * xs).sum(0)[:, None]
    np.testing.assert_allclose(fluid.global_scope().get("w"), expected, rtol=1e-4)


def test_a_second_loss_trains_a_generator_through_an_updated_judge() -> None:
    noise, x = fluid.layers.data("noise", [2]), fluid.layers.data("x", [2])
    made = fluid.layers.fc(noise, 2, param_attr="maker", bias_attr=False)

    def judged(what: fluid.framework.Variable) -> fluid.framework.Variable:
        return fluid.layers.mean(fluid.layers.fc(what, 1, param_attr="judge", bias_attr=False))

    fluid.optimizer.SGD(0.1).minimize(judged(x) - judged(made), parameter_list=["judge"])
    _, pairs = fluid.optimizer.SGD(0.1).minimize(judged(made), parameter_list=["maker"])
    assert [parameter.name for parameter, _ in pairs] == ["maker"]
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    maker, judge = (np.array(fluid.global_scope().get(name)) for name in ("maker", "judge"))
    zs, xs = np.random.default_rng(0).standard_normal((2, 3, 2)).astype("float32")
    executor.run(feed={"noise": zs, "x": xs})
    judge = judge - 0.1 * (xs.mean(0) - (zs @ maker).mean(0))[:, None]
    np.testing.assert_allclose(fluid.global_scope().get("judge"), judge, rtol=1e-4)
    expected = maker - 0.1 * np.outer(zs.mean(0), judge)
    np.testing.assert_allclose(fluid.global_scope().get("maker"), expected, rtol=1e-4, atol=1e-6)


def test_a_gradient_with_stop_gradient_counts_as_given() -> None:
    x = fluid.layers.data("x", [2], stop_gradient=False)
    (slope,) = fluid.gradients(fluid.layers.square(x) * x, x)
    assert slope is not None
    slope.stop_gradient = True
    (of_x,) = fluid.gradients(slope * x, x)
    assert of_x is not None
    found = fluid.Executor().run(feed={"x": np.array([[2, 3]], "float32")}, fetch_list=[of_x])
    np.testing.assert_allclose(found[0], [[12, 27]])


@pytest.mark.parametrize("names", [{"w_typo"}, "w_layer"])
def test_names_without_a_variable_in_no_grad_set_are_warned_of(names: str | set[str]) -> None:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1, param_attr="w_layer"))
    with pytest.warns(UserWarning, match="no_grad_set=.*: the program has no variable"):
        fluid.optimizer.SGD(0.1).minimize(loss, no_grad_set=names)
