# SPDX-License-Identifier: Apache-2.0
"""What random operators draw: decided by seed and step alone."""

from __future__ import annotations

import numpy as np

from paddle.graph import Executor
from tests.runtime.graph.sample_programs import Builder, filled_scope, word_feed, word_program


def test_the_same_seed_and_step_draw_the_same_masks() -> None:
    build, loss = word_program()
    scope, feed = filled_scope(build.program), word_feed()
    first = [Executor().run(build.program, feed, [loss], scope, step=step)[0].item() for step in range(3)]
    executor = Executor()
    counted = [executor.run(build.program, feed, [loss], scope)[0].item() for _ in range(3)]
    assert first == counted
    assert len(set(first)) == 3


def test_another_seed_draws_other_masks() -> None:
    build, loss = word_program()
    scope, feed = filled_scope(build.program), word_feed()
    first = Executor().run(build.program, feed, [loss], scope, step=0)[0]
    build.program.random_seed = 6
    assert Executor().run(build.program, feed, [loss], scope, step=0)[0] != first


def test_seed_zero_draws_other_masks_in_every_executor() -> None:
    build, loss = word_program()
    build.program.random_seed = 0
    scope, feed = filled_scope(build.program), word_feed()
    assert len({Executor().run(build.program, feed, [loss], scope, step=0)[0].item() for _ in range(4)}) > 1


def test_runs_of_another_program_do_not_shift_the_steps() -> None:
    build, loss = word_program()
    scope, feed, executor = filled_scope(build.program), word_feed(), Executor()
    expected = [executor.run(build.program, feed, [loss], scope)[0].item() for _ in range(2)]
    executor, testing = Executor(), build.program.clone(for_test=True)
    got = []
    for _ in range(2):
        got.append(executor.run(build.program, feed, [loss], scope)[0].item())
        executor.run(testing, feed, [loss.name], scope)
    assert got == expected


def test_pruning_does_not_change_what_is_drawn() -> None:
    build = Builder()
    build.op("dropout", {"X": build.data("x", (50,))})
    kept = build.op("dropout", {"X": build.data("x", (50,))})
    feed = {"x": np.ones(50)}
    (whole,) = Executor().run(build.program, feed, [kept], step=0)
    (pruned,) = Executor().run(build.program.prune([kept]), feed, [kept.name], step=0)
    np.testing.assert_array_equal(whole, pruned)
