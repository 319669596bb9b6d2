# SPDX-License-Identifier: Apache-2.0
"""No two runs of a random operator draw the same numbers: in loops, in loops within loops, in other executors."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.backend import first_moment, within
from paddle.graph import Executor, Scope

LANES, STEPS = (0, 1, 256, 65535), (0, 1, 2**40 - 1)
TURNS = (0, 1, 255, 256, 257, 2**24 - 1)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_lanes_steps_and_iterations_have_distinct_numbers(depth: int) -> None:
    numbers = []
    for lane, step, *turns in product(LANES, STEPS, *[TURNS] * depth):
        moment = first_moment(lane) + step
        for turn in turns:
            moment = within(moment, turn)
        numbers.append(moment)
    assert len({*numbers}) == len(numbers) == len(LANES) * len(STEPS) * len(TURNS) ** depth
    assert max(numbers) < 2**128


def test_a_block_that_runs_one_time_draws_as_its_surroundings() -> None:
    assert within(first_moment(3) + 7, None) == first_moment(3) + 7


def _drawn(outer: int, inner: int, lane: int = 0) -> Any:
    """Return what an operator draws in each iteration of two nested loops."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 7
    layers = fluid.layers
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        i, at = (layers.fill_constant([1], "int64", 0) for _ in range(2))
        found = layers.array_write(layers.fill_constant([1, 2], "float32", 0.0), at)
        i_end, j_end = (layers.fill_constant([1], "int64", n) for n in (outer, inner))
        more = layers.less_than(i, i_end)
        loop = layers.While(more)
        with loop.block():
            j = layers.fill_constant([1], "int64", 0)
            also = layers.less_than(j, j_end)
            within_loop = layers.While(also)
            with within_loop.block():
                layers.array_write(layers.uniform_random([1, 2]), at, found)
                layers.increment(at)
                layers.increment(j)
                layers.less_than(j, j_end, cond=also)
            layers.increment(i)
            layers.less_than(i, i_end, cond=more)
        whole, _ = layers.tensor_array_to_tensor(found, axis=0)
    return np.asarray(Executor(lane=lane).run(main, {}, [whole.name], Scope(), step=first_moment(lane))[0])


def test_iterations_of_nested_loops_draw_distinct_numbers() -> None:
    drawn = _drawn(4, 5)
    assert drawn.shape == (20, 2)
    assert len({row.tobytes() for row in drawn}) == 20


def test_another_lane_does_not_repeat_later_iterations() -> None:
    drawn, other = _drawn(1, 300), _drawn(1, 1, lane=1)
    assert len({row.tobytes() for row in (*drawn, *other)}) == 301
