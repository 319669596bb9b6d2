# SPDX-License-Identifier: Apache-2.0
"""Variables that a program reads and then overwrites: the earlier values remain what they were."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import paddle.fluid as fluid

layers = fluid.layers


def _variable(name: str, value: float) -> fluid.framework.Variable:
    return layers.create_global_var([2], value, "float32", persistable=True, name=name)


def _stored(name: str) -> list[float]:
    tensor: Any = fluid.global_scope().find_var(name)
    return [float(each) for each in np.array(tensor.get_tensor())]


def _run(*fetches: Any, **feed: Any) -> list[Any]:
    exe = fluid.Executor(fluid.CPUPlace())
    return [value.tolist() for value in exe.run(feed=feed, fetch_list=list(fetches))]


def _start() -> None:
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())


def test_a_fetched_copy_of_a_variable_keeps_the_value_from_before_an_assignment() -> None:
    weight = _variable("weight", 1.0)
    before = layers.assign(weight)
    layers.assign(layers.scale(weight, 2.0), weight)
    _start()
    found = [_run(before, weight) for _ in range(3)]
    assert found == [[[1, 1], [2, 2]], [[2, 2], [4, 4]], [[4, 4], [8, 8]]]


def test_two_variables_are_swapped() -> None:
    a, b = _variable("a", 1.0), _variable("b", 2.0)
    held = layers.assign(a)
    layers.assign(b, a)
    layers.assign(held, b)
    _start()
    for low, high in [(2, 1), (1, 2), (2, 1)]:
        assert _run(a, b) == [[low, low], [high, high]]
        assert (_stored("a"), _stored("b")) == ([low, low], [high, high])


def test_a_window_of_variables_moves_by_one_in_each_run() -> None:
    window = [_variable(f"h{at}", float(at)) for at in range(4)]
    x = layers.data("x", [2], append_batch_size=False)
    for older, newer in itertools.pairwise(window):
        layers.assign(newer, older)
    layers.assign(x, window[-1])
    _start()
    expected = [0, 1, 2, 3]
    for value in (10, 11, 12, 13, 14):
        expected = [*expected[1:], value]
        assert _run(*window, x=np.full(2, value, "float32")) == [[each] * 2 for each in expected]
        assert [_stored(each.name)[0] for each in window] == expected


def _descend(weight: fluid.framework.Variable) -> None:
    rate, grad = layers.ones([1], "float32"), layers.ones([2], "float32")
    fluid.default_main_program().current_block().append_op(
        type="sgd",
        inputs={"Param": [weight], "Grad": [grad], "LearningRate": [rate]},
        outputs={"ParamOut": [weight]},
    )


def test_values_from_before_an_update_in_a_condition_remain() -> None:
    weight = _variable("weight", 1.0)
    before = layers.assign(weight)
    with (
        layers.Switch() as switch,
        switch.case(layers.less_than(layers.zeros([1], "float32"), layers.ones([1], "float32"))),
    ):
        _descend(weight)
    change = layers.elementwise_sub(weight, before)
    _start()
    assert _run(before, weight, change) == [[1, 1], [0, 0], [-1, -1]]
    assert _run(before, weight, change) == [[0, 0], [-1, -1], [-1, -1]]


def test_values_from_before_an_update_in_a_loop_remain() -> None:
    weight, changes = _variable("weight", 1.0), _variable("changes", 0.0)
    turn, turns = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 3)
    more = layers.less_than(turn, turns)
    loop = layers.While(more)
    with loop.block():
        before = layers.reshape(weight, [1, 2])
        _descend(weight)
        layers.sums([changes, layers.elementwise_sub(layers.reshape(before, [2]), weight)], out=changes)
        layers.increment(turn)
        layers.less_than(turn, turns, cond=more)
    _start()
    assert _run(weight, changes) == [[-2, -2], [3, 3]]


def test_a_fetched_value_does_not_share_memory_with_the_fed_array_that_was_overwritten() -> None:
    x = layers.data("x", [2])
    copy = layers.assign(x)
    layers.assign(layers.scale(x, 5.0), x)
    fed = np.ones((1, 2), "float32")
    first, second = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[copy, x])
    first[:] = 7
    assert fed.tolist() == [[1, 1]]
    assert second.tolist() == [[5, 5]]
