# SPDX-License-Identifier: Apache-2.0
"""StaticRNN and DynamicRNN take the same variable several times: as input, memory, static input and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers

Variable = fluid.framework.Variable
Twin = Callable[[Variable], Variable]


def _static(x: Variable, first: Variable, twin: Twin) -> Any:
    rnn = layers.StaticRNN()
    others = twin(x), twin(first)
    with rnn.step():
        now, other = rnn.step_input(x), rnn.step_input(others[0])
        one, two = rnn.memory(init=first), rnn.memory(init=others[1])
        after = layers.tanh(now + 2 * one) * layers.sigmoid(other + two)
        rnn.update_memory(one, after)
        rnn.update_memory(two, after)
        rnn.output(after, twin(after), one)
    return rnn()


def _dynamic(x: Variable, first: Variable, twin: Twin) -> Any:
    rnn = layers.DynamicRNN()
    others = twin(x), twin(first)
    with rnn.block():
        now, other = rnn.step_input(x), rnn.step_input(others[0])
        still, also = rnn.static_input(first), rnn.static_input(others[1])
        one, two = rnn.memory(init=first), rnn.memory(init=others[1])
        after = layers.tanh(now + 2 * one + still * also) * layers.sigmoid(other + two)
        rnn.update_memory(one, after)
        rnn.update_memory(two, after)
        rnn.output(after, twin(after), one)
    return rnn()


def _results(rnn: Callable[..., Any], twin: Twin) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        if rnn is _static:
            x = layers.data("x", [3, 2, 4], append_batch_size=False)
            fed: Any = rng.normal(size=(3, 2, 4)).astype("float32")
        else:
            x = layers.data("x", [4], lod_level=1)
            fed = fluid.create_lod_tensor(rng.normal(size=(5, 4)).astype("float32"), [[2, 3]])
        first = layers.data("first", [2, 4], append_batch_size=False)
        x.stop_gradient = first.stop_gradient = False
        outs = rnn(x, first, twin)
        loss = layers.reduce_sum(outs[0] * outs[1]) + layers.reduce_sum(outs[2])
        grads: Any = fluid.gradients(loss, [x, first])
        feed = {"x": fed, "first": rng.normal(size=(2, 4)).astype("float32")}
        fetched = fluid.Executor().run(feed=feed, fetch_list=[loss, *outs, *grads], return_numpy=False)
        return [np.array(each) for each in fetched]


@pytest.mark.parametrize("rnn", [_static, _dynamic])
def test_a_variable_given_twice_is_like_its_copy(rnn: Callable[..., Any]) -> None:
    for once, copy in zip(_results(rnn, lambda x: x), _results(rnn, layers.assign), strict=True):
        np.testing.assert_allclose(once, copy, rtol=1e-6)


def test_a_step_returns_its_input_its_memory_and_a_variable_from_outside() -> None:
    x = layers.data("x", [2, 1], append_batch_size=False)
    y = layers.data("y", [1], lod_level=1)
    first = layers.data("first", [1], append_batch_size=False)
    rows = layers.reshape(first, [1, 1])
    static, dynamic = layers.StaticRNN(), layers.DynamicRNN()
    with static.step():
        memory = static.memory(init=first)
        static.update_memory(memory, static.step_input(x))
        static.output(static.step_input(x), memory, first)
    with dynamic.block():
        memory, now = dynamic.memory(init=rows), dynamic.step_input(y)
        dynamic.update_memory(memory, now)
        dynamic.output(now, memory, dynamic.static_input(rows))
    feed = {
        "x": np.array([[3], [4]], "float32"),
        "y": fluid.create_lod_tensor(np.array([[3], [4]], "float32"), [[2]]),
        "first": np.array([7], "float32"),
    }
    results: Any = [*static(), *dynamic()]
    found = fluid.Executor().run(feed=feed, fetch_list=results, return_numpy=False)
    assert [np.array(each).ravel().tolist() for each in found] == [[3, 4], [7, 3], [7, 7]] * 2


@pytest.mark.parametrize("given", ["memory", "input"])
def test_a_step_cannot_start_from_what_it_computes(given: str) -> None:
    rnn = layers.StaticRNN()
    with rnn.step():
        inner = layers.relu(rnn.step_input(layers.data("x", [3, 2, 4], append_batch_size=False)))
        with pytest.raises(fluid.core.EnforceNotMet, match=rf"static_rnn\.{given}.*relu"):
            rnn.memory(init=inner) if given == "memory" else rnn.step_input(inner)
        rnn.step_output(inner)
        with pytest.raises(
            fluid.core.EnforceNotMet, match="static_rnn: the outputs exist only after the block"
        ):
            rnn()


def test_a_parsed_program_keeps_what_stops_gradients_in_a_step() -> None:
    x = layers.data("x", [3, 2, 4], append_batch_size=False)
    first = layers.data("first", [2, 4], append_batch_size=False)
    x.stop_gradient = False
    rnn = layers.StaticRNN()
    with rnn.step():
        memory = rnn.memory(init=first)
        gate = layers.sigmoid(memory)
        gate.stop_gradient = True
        after = layers.tanh(rnn.step_input(x) + memory) * gate
        rnn.update_memory(memory, after)
        rnn.step_output(after)
    out: Any = rnn()
    grads: Any = fluid.gradients(layers.reduce_sum(out), [x])
    rng = np.random.default_rng(4)
    feed = {each.name: rng.normal(size=each.shape).astype("float32") for each in (x, first)}
    main = fluid.default_main_program()
    parsed = fluid.Program.parse_from_string(main.serialize_to_string())
    (built,), (read,) = (
        fluid.Executor().run(each, feed=feed, fetch_list=[grads[0].name]) for each in (main, parsed)
    )
    np.testing.assert_array_equal(read, built)


def test_the_error_clip_of_a_variable_in_a_step_is_not_lost_in_silence() -> None:
    rnn = layers.StaticRNN()
    with rnn.step():
        after = layers.tanh(rnn.step_input(layers.data("x", [3, 2], append_batch_size=False)))
        after._set_error_clip(fluid.clip.ErrorClipByValue(0.5))
        rnn.step_output(after)
    with pytest.warns(UserWarning, match=after.name):
        fluid.default_main_program().serialize_to_string()


def test_the_steps_of_level_1_are_those_of_all_inner_sequences() -> None:
    x = layers.data("x", [1], lod_level=2)
    x.stop_gradient = False
    rnn = layers.DynamicRNN()
    with rnn.block():
        now, before = rnn.step_input(x, level=1), rnn.memory(shape=[1])
        total = now + before
        rnn.update_memory(before, total)
        rnn.output(total)
    totals: Any = rnn()
    grads: Any = fluid.gradients(layers.reduce_sum(layers.square(totals)), [x])
    run, values = fluid.Executor().run, np.array([[1], [2], [3], [4], [5]], "float32")
    feed = {"x": fluid.create_lod_tensor(values, [[2, 1], [2, 1, 2]])}
    found, slope = run(feed=feed, fetch_list=[totals, *grads], return_numpy=False)
    assert np.array(found).ravel().tolist() == [1, 3, 3, 4, 9]
    assert found.recursive_sequence_lengths() == [[2, 1], [2, 1, 2]]
    assert np.array(slope).ravel().tolist() == [8, 6, 6, 26, 18]
    with pytest.raises(fluid.core.EnforceNotMet, match=r"level=1.*2 levels.*got 1"):
        run(feed={"x": fluid.create_lod_tensor(values, [[2, 3]])}, fetch_list=[totals])


def test_a_rank_table_can_be_fetched_twice() -> None:
    table = layers.lod_rank_table(layers.data("x", [1], lod_level=1))
    feed = {"x": fluid.create_lod_tensor(np.zeros((5, 1), "float32"), [[2, 3]])}
    first, second = fluid.Executor().run(feed=feed, fetch_list=[table, table])
    assert first.item().items == second.item().items == [(1, 3), (0, 2)]
