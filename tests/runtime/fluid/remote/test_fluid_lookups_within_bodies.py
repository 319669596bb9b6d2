# SPDX-License-Identifier: Apache-2.0
"""Sparse embeddings that are looked up within loops and conditions: trainers with servers follow one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, halves, one_process

ROWS, WIDTH = 500, 40


def of(name: str) -> Any:
    return fluid.ParamAttr(name, fluid.initializer.Uniform(-0.2, 0.2, seed=5))


def rows(ids: Any) -> Any:
    return layers.embedding(ids, [ROWS, WIDTH], is_sparse=True, param_attr=of("table"))


def step(word: Any, before: Any) -> Any:
    return layers.fc([rows(word), before], WIDTH, act="tanh", param_attr=[of("a"), of("b")], bias_attr=False)


def dynamic(words: Any, x: Any) -> Any:
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, before = rnn.step_input(words), rnn.memory(shape=[WIDTH], value=0.0)
        after = step(word, before)
        rnn.update_memory(before, after)
        rnn.output(after)
    last: Any = rnn()
    return layers.sequence_last_step(last)


def static(words: Any, x: Any) -> Any:
    turns = layers.transpose(layers.reshape(words, [-1, 3, 1]), [1, 0, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        word, before = rnn.step_input(turns), rnn.memory(init=x)
        after = step(word, before)
        rnn.update_memory(before, after)
        rnn.step_output(after)
    steps: Any = rnn()
    return layers.reshape(layers.slice(steps, [0], [2], [3]), [-1, WIDTH])


def loop(words: Any, x: Any) -> Any:
    turn, turns = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 2)
    states = layers.create_array("float32")
    layers.array_write(x, turn, states)
    going = layers.less_than(turn, turns)
    body = layers.While(going)
    with body.block():
        after = step(
            layers.slice(layers.reshape(words, [-1, 3]), [1], [0], [1]), layers.array_read(states, turn)
        )
        layers.increment(turn, 1, in_place=True)
        layers.array_write(after, turn, states)
        layers.less_than(turn, turns, cond=going)
    return layers.array_read(states, turns)


def condition(words: Any, x: Any) -> Any:
    """Look up only in batches whose `flag` is set, the second of three."""
    flag = layers.mean(fluid.default_main_program().global_block().var("flag"))
    last = layers.scale(x, 1.0)
    taken = layers.less_than(layers.zeros([1], "float32"), flag)
    with layers.ConditionalBlock([taken], is_scalar_condition=True).block():
        layers.assign(layers.elementwise_add(x, layers.sequence_pool(rows(words), "sum")), last)
    return last


def batches() -> list[Feed]:
    rng = np.random.default_rng(4)
    return [
        {
            "words": fluid.create_lod_tensor(rng.integers(0, ROWS, (24, 1)), [[3] * 8], fluid.CPUPlace()),
            "x": rng.standard_normal((8, WIDTH)).astype("float32"),
            "y": rng.standard_normal((8, 1)).astype("float32"),
            "flag": np.full((8, 1), number == 1, "float32"),
        }
        for number in range(3)
    ]


@pytest.mark.parametrize("also_outside", [False, True])
@pytest.mark.parametrize("body", [dynamic, static, loop, condition])
def test_servers_follow_one_process(body: Callable[[Any, Any], Any], also_outside: bool) -> None:
    def net() -> Any:
        words = layers.data("words", [1], dtype="int64", lod_level=1)
        x, y, _ = layers.data("x", [WIDTH]), layers.data("y", [1]), layers.data("flag", [1])
        last = body(words, x)
        if also_outside:
            last = layers.concat([last, layers.reshape(rows(words), [-1, 3 * WIDTH])], axis=1)
        loss = layers.mean(layers.square_error_cost(layers.fc(last, 1, param_attr=of("out")), y))
        fluid.optimizer.Adagrad(0.05).minimize(loss)
        return loss

    expected, first = one_process(net, batches())
    job = TranspiledJob(net, first=first)
    got = job.run(lambda at: job.train(at, [halves(each, at, 2) for each in batches()]))
    np.testing.assert_allclose(np.mean(got, axis=0), expected, rtol=1e-5)
