# SPDX-License-Identifier: Apache-2.0
"""Loops, conditions and arrays of steps compute what they say, and so do their gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Scope, append_backward
from paddle.graph.errors import BackwardError, ExecutionError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.control_flow_programs import Build, check_gradients

_RNG = np.random.default_rng(8)
_RANK_RNG = np.random.default_rng(12)
_LENGTHS = [[1, 0, 3, 2]]


def _draw(*shape: int) -> Any:
    return _RNG.standard_normal(shape)


def _counted(build: Build, turns: int) -> tuple[str, str, str]:
    """Return the names of a counter, its limit and a condition."""
    counter, limit = build.constant(0, "int64"), build.constant(turns, "int64")
    return counter, limit, build.op("less_than", {"X": counter, "Y": limit}, "holds")


def _count(build: Build, counter: str, limit: str) -> None:
    build.op("increment", {"X": counter}, counter, step=1.0)
    build.op("less_than", {"X": counter, "Y": limit}, "holds")


def _run(build: Build, feed: dict[str, Any], *fetches: str) -> list[Any]:
    return Executor().run(build.program, feed, list(fetches), Scope())


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_loop_carries_what_it_writes_from_turn_to_turn(turns: int) -> None:
    build = Build()
    x, w = build.data("x", (2, 3)), build.data("w", (3, 3))
    h = build.op("scale", {"X": x}, "h", scale=1.0)
    counter, limit, holds = _counted(build, turns)

    def fill() -> None:
        build.op("tanh", {"X": build.op("mul", {"X": h, "Y": w})}, "h_next")
        build.op("assign", {"X": "h_next"}, h)
        _count(build, counter, limit)

    build.loop(holds, [h, w, counter, limit], [h, counter, holds], fill)
    loss = build.scored(h)
    feed = {"x": _RNG.standard_normal((2, 3)), "w": _RNG.standard_normal((3, 3))}
    expected = feed["x"]
    for _ in range(turns):
        expected = np.tanh(expected @ feed["w"])
    np.testing.assert_allclose(_run(build, feed, h)[0], expected)
    check_gradients(build, loss, feed, ["x", "w"])


def test_a_loop_reads_and_writes_arrays() -> None:
    build = Build()
    names = [build.data(f"x{at}", (2,)) for at in range(3)]
    inputs, states = (
        build.op("create_array", {}, dtype="float64"),
        build.op("create_array", {}, dtype="float64"),
    )
    for at, name in enumerate(names):
        build.op("write_to_array", {"X": name, "I": build.constant(at, "int64"), "Array": inputs}, inputs)
    first = build.op("write_to_array", {"X": "x0", "I": build.constant(0, "int64"), "Array": states}, states)
    counter, limit, holds = _counted(build, 3)

    def fill() -> None:
        read = build.op("read_from_array", {"X": inputs, "I": counter})
        state = build.op("read_from_array", {"X": first, "I": counter})
        after = build.op("elementwise_mul", {"X": read, "Y": build.op("exp", {"X": state})})
        _count(build, counter, limit)
        build.op("write_to_array", {"X": after, "I": counter, "Array": states}, states)

    build.loop(holds, [inputs, states, counter, limit], [states, counter, holds], fill)
    last = build.op("read_from_array", {"X": states, "I": build.constant(3, "int64")})
    middle = build.op("read_from_array", {"X": states, "I": build.constant(1, "int64")})
    loss = build.scored(build.op("sum", {"X": [last, middle]}))
    feed = {name: _RNG.standard_normal(2) * 0.3 for name in names}
    s1 = feed["x0"] * np.exp(feed["x0"])
    s3 = feed["x2"] * np.exp(feed["x1"] * np.exp(s1))
    length = build.op("lod_array_length", {"X": states})
    got = _run(build, feed, last, middle, length)
    np.testing.assert_allclose(got[0], s3)
    np.testing.assert_allclose(got[1], s1)
    assert got[2].tolist() == [4]
    check_gradients(build, loss, feed, names)


def test_reading_where_nothing_was_written_is_refused() -> None:
    build = Build()
    array = build.op("create_array", {}, dtype="float64")
    build.op("read_from_array", {"X": array, "I": build.constant(2, "int64")}, "out")
    with pytest.raises(ExecutionError, match="nothing was written at index 2"):
        _run(build, {}, "out")


@pytest.mark.parametrize("holds", [True, False])
def test_a_block_runs_only_if_its_condition_holds(holds: bool) -> None:
    build = Build()
    x, cond = build.data("x", (2,)), build.data("cond", (1,), "bool")
    out = build.op("scale", {"X": x}, "out", scale=2.0)

    def fill() -> None:
        build.op("assign", {"X": build.op("square", {"X": x})}, out)

    body = build.body(fill)
    outputs = {"Out": [out], "Scope": build.scopes()}
    attrs = {"sub_block": body.idx, "is_scalar_condition": True}
    build.block.append_op("conditional_block", {"Cond": cond, "Input": [x, out]}, outputs, attrs)
    loss = build.scored(out)
    feed = {"x": np.array([3.0, -2.0]), "cond": np.array([holds])}
    assert _run(build, feed, out)[0].tolist() == ([9, 4] if holds else [6, -4])
    check_gradients(build, loss, feed, ["x"])


def test_a_condition_inside_a_loop_has_gradients() -> None:
    build = Build()
    x, w = build.data("x", (2,)), build.data("w", (2,))
    h = build.op("scale", {"X": x}, "h", scale=1.0)
    counter, limit, holds = _counted(build, 4)
    once = build.constant(2, "int64")

    def branch() -> None:
        build.op("assign", {"X": build.op("elementwise_mul", {"X": h, "Y": w})}, h)

    def fill() -> None:
        early = build.op("less_than", {"X": counter, "Y": once})
        body = build.body(branch)
        block = build.program.current_block()
        outputs = {"Out": [h], "Scope": build.scopes()}
        attrs = {"sub_block": body.idx, "is_scalar_condition": True}
        block.append_op("conditional_block", {"Cond": early, "Input": [h, w]}, outputs, attrs)
        build.op("assign", {"X": build.op("tanh", {"X": h})}, h)
        _count(build, counter, limit)

    build.loop(holds, [h, w, counter, limit, once], [h, counter, holds], fill)
    loss = build.scored(h)
    feed = {"x": _RNG.standard_normal(2), "w": _RNG.standard_normal(2)}
    expected = np.tanh(np.tanh(np.tanh(np.tanh(feed["x"] * feed["w"]) * feed["w"])))
    np.testing.assert_allclose(_run(build, feed, h)[0], expected)
    check_gradients(build, loss, feed, ["x", "w"])


@pytest.mark.parametrize("reverse", [False, True])
def test_a_body_runs_over_the_steps_of_dense_inputs(reverse: bool) -> None:
    build = Build()
    x, h0, w = build.data("x", (3, 2, 4)), build.data("h0", (2, 4)), build.data("w", (4, 4))
    build.block.create_var("y", (3, 2, 4), "float64")

    def fill() -> None:
        block = build.program.current_block()
        for name in ("x", "h"):
            block.create_var(name, (2, 4), "float64")
        total = build.op("sum", {"X": [x, build.op("mul", {"X": "h", "Y": w})]})
        block.create_var("y", (2, 4), "float64")
        build.op("tanh", {"X": total}, "y")

    body = build.body(fill)
    build.block.append_op(
        "recurrent",
        {"inputs": x, "initial_states": h0, "parameters": w},
        {"outputs": "y", "step_scopes": build.scopes()},
        {"sub_block": body.idx, "ex_states": ["h"], "states": ["y"], "reverse": reverse},
    )
    loss = build.scored("y")
    feed = {"x": _draw(3, 2, 4), "h0": _draw(2, 4), "w": _draw(4, 4)}
    expected, h = np.zeros((3, 2, 4)), feed["h0"]
    for step in [2, 1, 0] if reverse else [0, 1, 2]:
        h = expected[step] = np.tanh(feed["x"][step] + h @ feed["w"])
    np.testing.assert_allclose(_run(build, feed, "y")[0], expected)
    check_gradients(build, loss, feed, ["x", "h0", "w"])


def test_a_body_runs_over_the_steps_of_sequences() -> None:
    build = Build()
    x, context = build.data("x", (-1, 3), lod_level=1), build.data("context", (-1, 3), lod_level=1)
    s, h0, w = build.data("s", (4, 3)), build.data("h0", (4, 3)), build.data("w", (3, 3))
    build.block.create_var("y", (-1, 3), "float64", lod_level=1)

    def fill() -> None:
        block = build.program.current_block()
        block.create_var("h", (-1, 3), "float64")
        block.create_var("y", (-1, 3), "float64")
        block.append_op("sequence_pool", {"X": context}, {"Out": "seen"}, {"pooltype": "SUM"})
        total = build.op("sum", {"X": [x, s, "seen", build.op("mul", {"X": "h", "Y": w})]})
        build.op("tanh", {"X": total}, "y")

    body = build.body(fill)
    build.block.append_op(
        "dynamic_recurrent",
        {"Inputs": x, "Statics": [context, s], "States": h0, "Parameters": w},
        {"Outputs": "y", "StepScopes": build.scopes()},
        {"sub_block": body.idx, "before": ["h"], "after": ["y"]},
    )
    loss = build.scored("y")
    feed = {
        "x": LoDArray(_draw(6, 3), offsets_of([[2, 0, 3, 1]])),
        "context": LoDArray(_draw(5, 3), offsets_of([[1, 2, 0, 2]])),
        "s": _draw(4, 3),
        "h0": _draw(4, 3),
        "w": _draw(3, 3),
    }
    expected = np.zeros((6, 3))
    for number, (start, end) in enumerate(pairwise([0, 2, 2, 5, 6])):
        h, first = feed["h0"][number], feed["context"].lod[0][number]
        seen = feed["context"].data[first : feed["context"].lod[0][number + 1]].sum(axis=0)
        for row in range(start, end):
            h = expected[row] = np.tanh(feed["x"].data[row] + feed["s"][number] + seen + h @ feed["w"])
    (out,) = _run(build, feed, "y")
    np.testing.assert_allclose(out.data, expected)
    assert out.lengths() == [[2, 0, 3, 1]]
    check_gradients(build, loss, feed, ["x", "context", "s", "h0", "w"])


def test_a_number_that_changes_before_the_gradient_needs_it_is_kept() -> None:
    build = Build()
    x = build.data("x", (2,))
    array, index = build.op("create_array", {}, dtype="float64"), build.constant(0, "int64")
    build.op("write_to_array", {"X": x, "I": index, "Array": array}, array)
    build.op("increment", {"X": index}, index, step=1.0)
    build.op("write_to_array", {"X": build.op("exp", {"X": x}), "I": index, "Array": array}, array)
    first = build.op("read_from_array", {"X": array, "I": build.constant(0, "int64")})
    second = build.op("read_from_array", {"X": array, "I": index})
    loss = build.scored(build.op("elementwise_mul", {"X": first, "Y": second}))
    check_gradients(build, loss, {"x": _draw(2)}, ["x"])


def test_a_value_that_is_replaced_before_the_gradient_needs_it_is_refused() -> None:
    build = Build()
    x, w = build.data("x", (2,)), build.data("w", (2,))
    build.op("scale", {"X": w}, "factor", scale=1.0)
    product = build.op("elementwise_mul", {"X": x, "Y": "factor"})
    build.op("assign", {"X": x}, "factor")
    loss = build.scored(build.op("sum", {"X": [product, "factor"]}))
    with pytest.raises(BackwardError, match="'factor' is written 2 times"):
        append_backward(build.block.var(loss))


def _table(build: Build, x: str) -> str:
    return build.op("lod_rank_table", {"X": x})


def test_time_steps_hold_the_longest_sequence_first_and_join_again() -> None:
    build = Build()
    x = build.data("x", (-1, 2), lod_level=1)
    table = _table(build, x)
    array = build.op("lod_tensor_to_array", {"X": x, "RankTable": table})
    first = build.op("read_from_array", {"X": array, "I": build.constant(0, "int64")})
    joined = build.op("array_to_lod_tensor", {"X": array, "RankTable": table})
    longest = build.op("max_sequence_len", {"RankTable": table}, slot="Out")
    rows = np.arange(12.0).reshape(6, 2)
    got = _run(build, {"x": LoDArray(rows, offsets_of(_LENGTHS))}, first, joined, longest)
    assert got[0].tolist() == rows[[1, 4, 0]].tolist()
    np.testing.assert_array_equal(got[1].data, rows)
    assert got[1].lengths() == _LENGTHS
    assert got[2].tolist() == [3]


def test_rows_and_sequences_are_put_in_the_order_of_a_table() -> None:
    build = Build()
    x, y = build.data("x", (-1, 1), lod_level=1), build.data("y", (-1, 1))
    table = _table(build, x)
    ranked = build.op("reorder_lod_tensor_by_rank", {"X": y, "RankTable": table})
    turned = build.op("reorder_lod_tensor_by_rank", {"X": x, "RankTable": table})
    feed = {"x": LoDArray(np.arange(6.0)[:, None], offsets_of(_LENGTHS)), "y": np.arange(4.0)[:, None]}
    plain, sequences = _run(build, feed, ranked, turned)
    assert plain[:, 0].tolist() == [2, 3, 0, 1]
    assert (sequences.data[:, 0].tolist(), sequences.lengths()) == ([1, 2, 3, 4, 5, 0], [[3, 2, 1, 0]])


def test_a_loop_over_time_steps_has_gradients() -> None:
    build = Build()
    x, h0, w = build.data("x", (-1, 2), lod_level=1), build.data("h0", (4, 2)), build.data("w", (2, 2))
    table = _table(build, x)
    steps = build.op("lod_tensor_to_array", {"X": x, "RankTable": table})
    states = build.op("create_array", {}, dtype="float64")
    outputs = build.op("create_array", {}, dtype="float64")
    counter, limit = build.constant(0, "int64"), build.op("max_sequence_len", {"RankTable": table})
    first = build.op("reorder_lod_tensor_by_rank", {"X": h0, "RankTable": table})
    build.op("write_to_array", {"X": first, "I": counter, "Array": states}, states)
    holds = build.op("less_than", {"X": counter, "Y": limit}, "holds")

    def fill() -> None:
        before = build.op("read_from_array", {"X": states, "I": counter})
        live = build.op("shrink_rnn_memory", {"X": before, "I": counter, "RankTable": table})
        row = build.op("read_from_array", {"X": steps, "I": counter})
        total = build.op("sum", {"X": [row, build.op("mul", {"X": live, "Y": w})]})
        after = build.op("tanh", {"X": total})
        build.op("write_to_array", {"X": after, "I": counter, "Array": outputs}, outputs)
        build.op("increment", {"X": counter}, counter, step=1.0)
        build.op("write_to_array", {"X": after, "I": counter, "Array": states}, states)
        build.op("less_than", {"X": counter, "Y": limit}, holds)

    reads = [states, outputs, steps, table, counter, limit, w]
    build.loop(holds, reads, [states, outputs, counter, holds], fill)
    joined = build.op("array_to_lod_tensor", {"X": outputs, "RankTable": table})
    loss = build.scored(joined)
    feed: dict[str, Any] = {
        "x": LoDArray(_RANK_RNG.standard_normal((6, 2)), offsets_of(_LENGTHS)),
        "h0": _RANK_RNG.standard_normal((4, 2)),
        "w": _RANK_RNG.standard_normal((2, 2)),
    }
    expected, row = np.zeros((6, 2)), 0
    for number, length in enumerate(_LENGTHS[0]):
        h = feed["h0"][number]
        for _ in range(length):
            h = expected[row] = np.tanh(feed["x"].data[row] + h @ feed["w"])
            row += 1
    np.testing.assert_allclose(_run(build, feed, joined)[0].data, expected)
    check_gradients(build, loss, feed, ["x", "h0", "w"])
