# SPDX-License-Identifier: Apache-2.0
"""The executor: what it caches, checks, frees, owns and refuses; what random operators draw."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Program, Scope, SelectedRows
from paddle.graph.errors import ExecutionError, FeedError, NotInitializedError
from tests.runtime.graph.sample_programs import Builder, filled_scope, with_gradients, word_feed, word_program


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, SelectedRows):
        return np.array_equal(left.rows, right.rows) and np.array_equal(left.values, right.values)
    return np.array_equal(left, right)


def test_a_changed_program_is_compiled_anew() -> None:
    build = Builder()
    y = build.op("square", {"X": build.data("x", (2,))})
    executor, feed = Executor(), {"x": np.array([2.0, 3.0])}
    assert executor.run(build.program, feed, [y])[0].tolist() == [4.0, 9.0]
    z = build.op("scale", {"X": y}, {"scale": 10.0})
    assert executor.run(build.program, feed, [z])[0].tolist() == [40.0, 90.0]


def test_other_feeds_and_fetches_of_one_program_run_side_by_side() -> None:
    build = Builder()
    x = build.data("x", (1,))
    y = build.op("square", {"X": x})
    z = build.op("exp", {"X": y})
    executor = Executor()
    for _ in range(2):
        assert executor.run(build.program, {"x": np.array([3.0])}, [y])[0] == 9.0
        assert executor.run(build.program, {y.name: np.array([0.0])}, [z])[0] == 1.0


def test_what_is_freed_on_the_way_does_not_change_results() -> None:
    build, loss = word_program()
    names = with_gradients(loss)
    scope, feed, executor = filled_scope(build.program), word_feed(), Executor()
    everything = [name for op in build.block.ops for name in op.writes]
    kept = dict(zip(everything, executor.run(build.program, feed, everything, scope, step=3), strict=True))
    for name, value in zip(names, executor.run(build.program, feed, names, scope, step=3), strict=True):
        if isinstance(value, SelectedRows):
            assert np.array_equal(value.rows, kept[name].rows)
            np.testing.assert_allclose(value.values, kept[name].values, rtol=1e-12)
        else:
            np.testing.assert_allclose(value, kept[name], rtol=1e-12, atol=1e-15)


def test_gradients_and_values_are_fetched_in_the_order_asked_for() -> None:
    build, loss = word_program()
    names = with_gradients(loss)
    fetched = Executor().run(
        build.program, word_feed(), [names[4], loss, names[1]], filled_scope(build.program)
    )
    assert [value.shape for value in fetched] == [(30,), (1,), (12, 6)]


def test_operators_whose_results_nobody_reads_are_not_run() -> None:
    build = Builder()
    x = build.data("x", (2, 1), "int64")
    build.op("one_hot", {"X": x}, {"depth": 2})
    build.op("cast", {"X": x}, {"in_dtype": "int64", "out_dtype": "float64"})
    outside = {"x": np.array([[7], [1]])}
    assert Executor().run(build.program, outside, ["cast_2"])[0].tolist() == [[7.0], [1.0]]
    with pytest.raises(ExecutionError, match="one_hot"):
        Executor().run(build.program, outside, ["one_hot_1"])


def test_the_caller_owns_what_was_fetched() -> None:
    build = Builder()
    w = build.parameter("w", (2, 2))
    same = build.op("reshape", {"X": w}, {"shape": [4]})
    both = build.op("assign", {"X": build.data("x", (2,))})
    scope, x = filled_scope(build.program), np.array([1.0, 2.0])
    before = scope.get("w").copy()
    fetched = Executor().run(build.program, {"x": x}, [w, same, same, both, "x"], scope)
    for value in fetched:
        value += 100
    np.testing.assert_array_equal(scope.get("w"), before)
    np.testing.assert_array_equal(x, [1.0, 2.0])
    np.testing.assert_array_equal(fetched[0].reshape(4), fetched[1])
    np.testing.assert_array_equal(fetched[1], fetched[2])


def test_two_gradients_that_share_memory_are_handed_out_apart() -> None:
    build = Builder()
    total = build.op("elementwise_add", {"X": build.parameter("a", (3,)), "Y": build.parameter("b", (3,))})
    names = with_gradients(
        build.op("reduce_sum", {"X": build.op("square", {"X": total})}, {"reduce_all": True})
    )
    a, b = Executor().run(build.program, {}, names, filled_scope(build.program))
    expected = a.copy()
    b *= 0
    np.testing.assert_array_equal(a, expected)


def test_a_persistable_output_is_written_into_the_array_of_the_scope() -> None:
    build = Builder()
    counter = build.block.create_var("counter", (1,), "int64", persistable=True)
    build.block.append_op("increment", {"X": counter}, {"Out": counter}, {"step": 2.0})
    scope, held = Scope(), np.array([5])
    scope.set("counter", held)
    executor = Executor()
    executor.run(build.program, scope=scope)
    executor.run(build.program, scope=scope)
    assert held.tolist() == [9]


def test_running_statistics_move_in_the_scope_and_stand_still_in_test_mode() -> None:
    build = Builder()
    x = build.data("x", (-1, 2))
    for name in ("scale", "bias"):
        build.parameter(name, (2,))
    for name in ("mean", "variance"):
        build.parameter(name, (2,), trainable=False)
    inputs: dict[str, Any] = {
        "X": x,
        "Scale": "scale",
        "Bias": "bias",
        "Mean": "mean",
        "Variance": "variance",
    }
    outputs = {"Y": "y", "MeanOut": "mean", "VarianceOut": "variance", "SavedMean": "m", "SavedVariance": "v"}
    build.block.append_op("batch_norm", inputs, outputs, {"momentum": 0.9})
    scope = Scope()
    for name, value in (("scale", 1.0), ("bias", 0.0), ("mean", 0.0), ("variance", 0.0)):
        scope.set(name, np.full(2, value))
    batch = np.array([[1.0, 10.0], [3.0, 30.0]])
    Executor().run(build.program, {"x": batch}, ["y"], scope)
    np.testing.assert_allclose(scope.get("mean"), [0.2, 2.0])
    np.testing.assert_allclose(scope.get("variance"), [0.1, 10.0])
    (y,) = Executor().run(build.program.clone(for_test=True), {"x": batch}, ["y"], scope)
    np.testing.assert_allclose(scope.get("mean"), [0.2, 2.0])
    np.testing.assert_allclose(y, (batch - [0.2, 2.0]) / np.sqrt(np.array([0.1, 10.0]) + 1e-5))


def test_a_first_value_is_stored_as_a_copy_of_its_own() -> None:
    build = Builder()
    for name in ("a", "b"):
        build.block.create_var(name, (2,), "float64", persistable=True)
        build.block.append_op("assign", {"X": build.data("x", (2,))}, {"Out": name})
    scope, x = Scope(), np.array([1.0, 2.0])
    Executor().run(build.program, {"x": x}, scope=scope)
    scope.get("a")[...] = 0
    assert scope.get("b").tolist() == x.tolist() == [1.0, 2.0]


def test_one_program_runs_against_two_scopes_in_turn() -> None:
    build = Builder()
    y = build.op("square", {"X": build.parameter("w", (1,))})
    scopes = [Scope(), Scope()]
    for number, scope in enumerate(scopes):
        scope.set("w", np.array([float(number + 2)]))
    executor = Executor()
    assert [executor.run(build.program, {}, [y], scope)[0].item() for scope in [*scopes, *scopes]] == [
        4,
        9,
        4,
        9,
    ]


def test_a_name_set_in_a_child_scope_hides_the_parents_value_from_then_on() -> None:
    build = Builder()
    y = build.op("square", {"X": build.parameter("w", (1,))})
    parent = Scope()
    parent.set("w", np.array([2.0]))
    child, executor = parent.new_scope(), Executor()
    assert executor.run(build.program, {}, [y], child)[0] == 4.0
    child.set("w", np.array([3.0]))
    assert executor.run(build.program, {}, [y], child)[0] == 9.0
    assert executor.run(build.program, {}, [y], parent)[0] == 4.0


def test_a_table_may_be_a_cache_of_rows() -> None:
    build, loss = word_program(dropout=0)
    names = with_gradients(loss)
    feed, executor = word_feed(), Executor()
    whole = filled_scope(build.program)
    expected = executor.run(build.program, feed, [loss, *names], whole)
    rows = np.unique(np.concatenate([feed[f"word_{n}"] for n in range(4)]))
    cached = filled_scope(build.program)
    table = SelectedRows(rows, whole.get("table")[rows], 30)
    cached.set("table", table)
    assert all(map(_equal, executor.run(build.program, feed, [loss, *names], cached), expected))
    assert cached.get("table") is table
    feed["word_0"][3, 0] = np.setdiff1d(np.arange(30), rows)[0]
    with pytest.raises(
        ExecutionError, match=rf"lookup_table.*row {feed['word_0'][3, 0]} is not among the {len(rows)}"
    ):
        executor.run(build.program, feed, [loss], cached)


def test_a_program_is_not_kept_alive_by_the_executor() -> None:
    executor = Executor()
    build = Builder()
    out = build.op("square", {"X": build.data("x", (1,))}).name
    executor.run(build.program, {"x": np.ones(1)}, [out])
    watched = weakref.ref(build.program)
    del build
    gc.collect()
    assert watched() is None


def test_an_empty_batch_runs_forward_and_backward() -> None:
    build, loss = word_program()
    names = with_gradients(loss)
    cost, table, *rest = Executor().run(
        build.program, word_feed(batch=0), [loss, *names], filled_scope(build.program)
    )
    assert cost.tolist() == [0.0]
    assert len(table.rows) == 0
    assert all(not gradient.any() for gradient in rest)


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


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        ({"x": np.zeros((2, 4), "float32")}, r"'x'.* \(-1, 4\) float64, .*\(2, 4\) float32"),
        ({"x": [[1.0]]}, r"'x' fed: expected an array .* got list"),
        ({"X": np.zeros((2, 4))}, r"'x', read by operator 0 'mul' .*'X'.*'x'"),
        ({}, r"'x', read by operator 0 'mul' in slot 'X', is neither fed nor persistable.*feed 'x' as well"),
        ({"label": np.zeros(1)}, "feed 'x', instead of label, which the program does not have"),
        (
            {"x": np.zeros((2, 4)), "xx": np.zeros(1)},
            "'xx' was fed, but the program has no variable of that name",
        ),
    ],
)
def test_a_feed_that_does_not_fit_is_refused(feed: dict[str, Any], text: str) -> None:
    build = Builder()
    out = build.fc(build.data("x", (-1, 4)), 2, "fc")
    with pytest.raises(FeedError, match=text):
        Executor().run(build.program, feed, [out], filled_scope(build.program))


@pytest.mark.parametrize("shape", [(2, 3), (4,)])
def test_an_operator_that_does_not_take_a_fed_shape_is_named_with_the_declared_one(
    shape: tuple[int, ...],
) -> None:
    build = Builder()
    out = build.fc(build.data("x", (-1, 4)), 2, "fc")
    with pytest.raises(ExecutionError) as caught:
        Executor().run(build.program, {"x": np.zeros(shape)}, [out], filled_scope(build.program))
    assert f"'x' was fed with shape {shape}, but is declared (-1, 4)" in str(caught.value)
    assert caught.value.op_type == "mul"
    assert not type(caught.value).__name__.startswith("_")


def test_fed_variables_with_different_rows_are_named() -> None:
    build = Builder()
    x, y = build.data("x", (-1, 4)), build.data("y", (-1, 4))
    out = build.op("elementwise_sub", {"X": x, "Y": y})
    with pytest.raises(ExecutionError, match=r"'x' has 3, 'y' has 2$"):
        Executor().run(build.program, {"x": np.zeros((3, 4)), "y": np.zeros((2, 4))}, [out], Scope())


def test_operators_that_take_a_fed_shape_run_though_another_is_declared() -> None:
    build = Builder()
    out = build.op("relu", {"X": build.data("x", (-1, 4, 1))})
    (found,) = Executor().run(build.program, {"x": np.ones((2, 3, 1))}, [out])
    assert found.shape == (2, 3, 1)


def test_a_parameter_without_a_value_is_named() -> None:
    build = Builder()
    out = build.fc(build.data("x", (-1, 4)), 2, "fc")
    scope = Scope()
    scope.set("fc.b", np.zeros(2))
    with pytest.raises(NotInitializedError, match=r"'fc.w' \(4, 2\) has no value"):
        Executor().run(build.program, {"x": np.zeros((1, 4))}, [out], scope)


def test_a_parameter_of_the_wrong_shape_is_refused_even_if_it_would_broadcast() -> None:
    build = Builder()
    out = build.fc(build.data("x", (-1, 4)), 2, "fc")
    scope = filled_scope(build.program)
    scope.set("fc.b", np.zeros(1))
    with pytest.raises(FeedError, match=r"'fc.b' in the scope: expected \(2,\) float64, got \(1,\)"):
        Executor().run(build.program, {"x": np.zeros((1, 4))}, [out], scope)


def test_a_failing_operator_is_named_with_its_inputs() -> None:
    build = Builder()
    rows = build.op(
        "lookup_table", {"W": build.parameter("table", (5, 2)), "Ids": build.data("word", (-1, 1), "int64")}
    )
    with pytest.raises(ExecutionError) as caught:
        Executor().run(build.program, {"word": np.array([[1], [5]])}, [rows], filled_scope(build.program))
    assert (caught.value.op_type, caught.value.position) == ("lookup_table", 0)
    assert "row 1 of Ids: id 5 is not in [0, 5)" in str(caught.value)
    assert "Ids=word (2, 1) int64" in str(caught.value)


def test_an_unknown_fetch_is_refused() -> None:
    with pytest.raises(FeedError, match="'nowhere', read by fetch_list"):
        Executor().run(Program(), {}, ["nowhere"])


def test_a_failed_run_leaves_the_scope_as_it_was() -> None:
    build = Builder()
    counter = build.block.create_var("counter", (1,), "int64", persistable=True)
    build.block.append_op("increment", {"X": counter}, {"Out": counter})
    build.op("one_hot", {"X": build.data("x", (1, 1), "int64")}, {"depth": 2})
    scope = Scope()
    scope.set("counter", np.array([1]))
    with pytest.raises(ExecutionError):
        Executor().run(build.program, {"x": np.array([[9]])}, ["one_hot_1"], scope)
    assert scope.get("counter").tolist() == [1]


def test_a_fed_variable_that_is_read_and_then_written_has_its_new_value() -> None:
    build = Builder()
    x = build.data("x", (2,))
    y = build.op("square", {"X": x})
    build.block.append_op("increment", {"X": x}, {"Out": x}, {"step": 1.0})
    z = build.op("scale", {"X": x}, {"scale": 10.0})
    fed = np.array([1.0, 2.0])
    found = Executor().run(build.program, {"x": fed}, [y, z, x])
    assert [each.tolist() for each in found] == [[1.0, 4.0], [20.0, 30.0], [2.0, 3.0]]
    assert fed.tolist() == [1.0, 2.0]
