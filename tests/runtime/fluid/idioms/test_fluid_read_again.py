# SPDX-License-Identifier: Apache-2.0
"""A variable that a body steps over is read in other ways too, and an array is written more than once."""

from __future__ import annotations

import numpy as np

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.program.variable import Variable

ROWS = np.arange(1.0, 7.0, dtype="float32").reshape(6, 1)
LENGTHS = [2, 1, 3]


def _sums_seen(kind: str) -> np.ndarray:
    """Return, for each row, itself times the sum of what a step sees besides of the same variable."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = layers.data("x", [1], lod_level=1)
        rnn = layers.DynamicRNN()
        with rnn.block():
            row = rnn.step_input(x)
            if kind == "stepped over again":
                again = rnn.step_input(x)
            elif kind == "given whole":
                again = layers.sequence_pool(rnn.static_input(x), "sum")
            else:
                again = layers.reduce_sum(x)
            rnn.output(layers.elementwise_mul(row, again))
        result = rnn()
        assert isinstance(result, Variable)
    feed = {"x": fluid.create_lod_tensor(ROWS, [LENGTHS], fluid.CPUPlace())}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, feed, [result], return_numpy=False)
    return np.array(found)


def test_a_dynamic_rnn_steps_over_a_variable_twice() -> None:
    np.testing.assert_allclose(_sums_seen("stepped over again"), ROWS * ROWS)


def test_a_dynamic_rnn_steps_over_a_sequence_that_it_also_attends_to() -> None:
    sums = np.repeat([3.0, 3.0, 15.0], LENGTHS)[:, None]
    np.testing.assert_allclose(_sums_seen("given whole"), ROWS * sums)


def test_a_step_of_a_dynamic_rnn_reads_all_rows_of_what_it_steps_over() -> None:
    np.testing.assert_allclose(_sums_seen("read from outside"), ROWS * ROWS.sum())


def test_a_gradient_goes_through_two_writes_to_one_array() -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = layers.data("x", [2], append_batch_size=False, stop_gradient=False)
        first, second = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 1)
        array = layers.array_write(x, first)
        layers.array_write(layers.scale(x, 3.0), second, array)
        product = layers.array_read(array, first) * layers.array_read(array, second)
        fluid.backward.append_backward(layers.reduce_sum(product))
    feed = {"x": np.array([1.0, 2.0], "float32")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, feed, ["x@GRAD"])
    np.testing.assert_allclose(found, [6.0, 12.0])


def test_a_gradient_goes_through_an_array_that_a_loop_continues() -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = layers.data("x", [2], append_batch_size=False, stop_gradient=False)
        step, end = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 3)
        array = layers.array_write(layers.scale(x, 2.0), step)
        more = layers.less_than(step, end)
        loop = layers.While(more)
        with loop.block():
            square = layers.square(layers.array_read(array, step))
            layers.increment(step, in_place=True)
            layers.array_write(square, step, array)
            layers.less_than(step, end, cond=more)
        fluid.backward.append_backward(layers.reduce_sum(layers.array_read(array, step)))
    feed = {"x": np.array([0.5, -0.6], "float32")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(program, feed, ["x@GRAD"])
    np.testing.assert_allclose(found, 16.0 * (2.0 * feed["x"]) ** 7, rtol=1e-5)
