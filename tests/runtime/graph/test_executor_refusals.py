# SPDX-License-Identifier: Apache-2.0
"""What an executor refuses: feeds, fetches and values that do not fit, named, and nothing is changed by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Program, Scope
from paddle.graph.errors import ExecutionError, FeedError, NotInitialisedError
from tests.runtime.graph.sample_programs import Builder, filled_scope


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        ({"x": np.zeros((2, 3))}, r"'x' fed: expected \(-1, 4\) float64, got \(2, 3\) float64"),
        ({"x": np.zeros((2, 4), "float32")}, r"'x' fed: expected \(-1, 4\) float64, got \(2, 4\) float32"),
        ({"x": np.zeros(4)}, r"'x' fed: expected \(-1, 4\) float64, got \(4,\)"),
        ({"x": [[1.0]]}, r"'x' fed: expected an array .* got list"),
        ({}, r"'x', read by operator 0 'mul' in slot 'X', is neither fed, persistable nor computed"),
        (
            {"x": np.zeros((2, 4)), "xx": np.zeros(1)},
            "'xx' was fed, and the program has no variable of that name",
        ),
    ],
)
def test_a_feed_that_does_not_fit_is_refused(feed: dict[str, Any], text: str) -> None:
    build = Builder()
    out = build.fc(build.data("x", (-1, 4)), 2, "fc")
    with pytest.raises(FeedError, match=text):
        Executor().run(build.program, feed, [out], filled_scope(build.program))


def test_a_parameter_without_a_value_is_named() -> None:
    build = Builder()
    out = build.fc(build.data("x", (-1, 4)), 2, "fc")
    scope = Scope()
    scope.set("fc.b", np.zeros(2))
    with pytest.raises(NotInitialisedError, match=r"'fc.w' \(4, 2\) has no value"):
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
    assert "id 5 at position 1 is not in [0, 5)" in str(caught.value)
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
