# SPDX-License-Identifier: Apache-2.0
"""py_func: functions of Python among the layers, their gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.graph.errors import ExecutionError

Array = np.ndarray[Any, Any]


def made(name: str, *shape: int, lod_level: int = 0) -> Any:
    block = fluid.default_main_program().current_block()
    return block.create_var(name=name, dtype="float32", shape=list(shape), lod_level=lod_level)


def _anything(value: Any) -> Any:
    return value


def run(feed: dict[str, Any], fetches: list[Any]) -> list[Array]:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [np.array(each) for each in exe.run(feed=feed, fetch_list=fetches, return_numpy=False)]


@pytest.mark.parametrize("skips", [True, False])
def test_a_net_of_functions_has_the_gradients_of_the_layers(skips: bool) -> None:
    x = layers.data("x", [3])
    hidden = layers.fc(x, 4, param_attr="w", bias_attr=False)
    calls = []

    def tanh(value: Any) -> Array:
        out: Array = np.tanh(np.array(value))
        return out

    def tanh_grad(*values: Any) -> Array:
        calls.append(len(values))
        out, dout = (np.array(each) for each in values[-2:])
        dx: Array = dout * (1 - np.square(out))
        return dx

    own = layers.py_func(tanh, hidden, made("own", -1, 4), tanh_grad, hidden if skips else None)
    plain = layers.tanh(hidden)
    losses = [layers.mean(layers.square(each)) for each in (own, plain)]
    found = [fluid.gradients([loss], [hidden])[0] for loss in losses]
    feed = {"x": np.random.default_rng(3).standard_normal((5, 3)).astype("float32")}
    by_hand, by_layer = run(feed, found)
    np.testing.assert_allclose(by_hand, by_layer, rtol=1e-5)
    assert calls == [2 if skips else 3]


def test_a_net_with_a_cost_of_ones_own_learns() -> None:
    x, label = layers.data("x", [2]), layers.data("label", [1])
    out = layers.fc(x, 1)
    cost = layers.py_func(
        lambda a, b: (np.array(a) - np.array(b)) ** 2,
        [out, label],
        made("cost", -1, 1),
        lambda a, b, c, dc: [2 * (np.array(a) - np.array(b)) * np.array(dc), None],
    )
    loss = layers.mean(cost)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rows = np.random.default_rng(1).standard_normal((20, 2)).astype("float32")
    feed = {"x": rows, "label": rows @ np.array([[1.0], [-2]], "float32")}
    losses = [float(exe.run(feed=feed, fetch_list=[loss])[0][0]) for _ in range(40)]
    assert losses[-1] < 0.01 * losses[0]


def test_a_function_sees_sequences_and_gives_them() -> None:
    rows = layers.data("rows", [2], lod_level=1)
    seen = []

    def first_rows(value: fluid.LoDTensor) -> tuple[Array, fluid.LoDTensor]:
        seen.append(value.recursive_sequence_lengths())
        twice = fluid.LoDTensor()
        twice.set(np.array(value) * 2, fluid.CPUPlace())
        twice.set_lod(value.lod())
        return np.array(value)[value.lod()[0][:-1]], twice

    outs = [made("first", -1, 2), made("twice", -1, 2, lod_level=1)]
    assert layers.py_func(first_rows, rows, outs) is outs
    total = layers.sequence_pool(outs[1], "sum")
    value = fluid.create_lod_tensor(np.arange(6, dtype="float32").reshape(3, 2), [[2, 1]], fluid.CPUPlace())
    first, added = run({"rows": value}, [outs[0], total])
    assert seen == [[[2, 1]]]
    np.testing.assert_array_equal(first, [[0, 1], [4, 5]])
    np.testing.assert_array_equal(added, [[4, 8], [8, 10]])


def test_a_function_runs_for_its_effect_alone() -> None:
    x, seen = layers.data("x", [1]), []
    layers.py_func(lambda value: seen.append(float(np.array(value).sum())), x, None)
    out = made("out", 1)
    layers.py_func(lambda: np.ones(1, "float32") * 7, None, out)
    (found,) = run({"x": np.full((2, 1), 3, "float32")}, [out])
    assert seen == [6.0]
    assert found.tolist() == [7.0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: layers.py_func(_anything(3), x, None), TypeError, "expected a function"),
        (lambda x: layers.py_func(len, _anything(3), None), TypeError, "expected variables"),
        (lambda x: layers.py_func(len, x, layers.create_tensor("float32")), ValueError, "has no shape"),
        (
            lambda x: layers.py_func(len, x, made("o", 1), len, layers.data("other", [1])),
            ValueError,
            "neither in x nor in out",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(layers.data("x", [1]))


def test_another_number_of_results_is_refused_in_the_run() -> None:
    out = layers.py_func(lambda value: (value, value), layers.data("x", [1]), made("out", -1, 1))
    with pytest.raises(ExecutionError, match="returned 2 values for 1 outputs"):
        run({"x": np.ones((1, 1), "float32")}, [out])
