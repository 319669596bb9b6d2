# SPDX-License-Identifier: Apache-2.0
"""Operators write into values that nobody reads any more, and into no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Scope
from paddle.graph.in_place import spent_inputs
from tests.runtime.graph.sample_programs import Builder, filled_scope, with_gradients, word_feed, word_program

_X = np.random.default_rng(2).standard_normal((3, 4))


def _spent(build: Builder, *kept: str) -> dict[str, frozenset[str]]:
    slots = spent_inputs(build.block.ops, {"x", *kept})
    return {op.writes[0]: found for op, found in zip(build.block.ops, slots, strict=True) if found}


def test_a_chain_of_new_values_needs_one_array() -> None:
    build = Builder()
    x = build.data("x", (3, 4))
    made = build.op("elementwise_add", {"X": x, "Y": x})
    twice = build.op("elementwise_mul", {"X": made, "Y": x})
    last = build.op("relu", {"X": twice})
    assert _spent(build) == {twice.name: {"X"}, last.name: {"X"}}
    assert _spent(build, made.name) == {last.name: {"X"}}


@pytest.mark.parametrize("between", ["reshape", "relu"])
def test_a_value_is_not_spent_while_a_view_of_it_may_live(between: str) -> None:
    build = Builder()
    made = build.op("relu", {"X": build.data("x", (3, 4))})
    seen = build.op(between, {"X": made}, {"shape": (4, 3)} if between == "reshape" else {})
    last = build.op("tanh", {"X": made})
    build.op("elementwise_add", {"X": seen, "Y": seen})
    assert _spent(build) == ({} if between == "reshape" else {last.name: {"X"}})


def test_a_value_that_stands_in_two_slots_is_not_spent() -> None:
    build = Builder()
    made = build.op("relu", {"X": build.data("x", (3, 4))})
    build.op("elementwise_mul", {"X": made, "Y": made})
    assert _spent(build) == {}


def test_what_was_fed_and_what_is_fetched_is_never_written_to() -> None:
    build = Builder()
    x = build.data("x", (3, 4))
    made = build.op("relu", {"X": x})
    last = build.op("tanh", {"X": made})
    fed = _X.copy()
    scope = Scope()
    got_made, got_last = Executor().run(build.program, {"x": fed}, [made, last], scope)
    np.testing.assert_array_equal(fed, _X)
    np.testing.assert_array_equal(got_made, np.maximum(_X, 0))
    np.testing.assert_array_equal(got_last, np.tanh(np.maximum(_X, 0)))


def test_gradients_are_the_same_whether_or_not_values_were_written_over() -> None:
    build, loss = word_program(dropout=0.0)
    gradients = with_gradients(loss)
    everything = [name for op in build.block.ops for name in op.writes]
    scope, feed = filled_scope(build.program), word_feed()
    reused = Executor().run(build.program, feed, gradients, scope)
    kept: list[Any] = Executor().run(build.program, feed, everything, scope)
    plain = dict(zip(everything, kept, strict=True))
    for name, value in zip(gradients, reused, strict=True):
        expected = plain[name]
        rows = value.to_dense() if hasattr(value, "to_dense") else value
        expected = expected.to_dense() if hasattr(expected, "to_dense") else expected
        np.testing.assert_allclose(rows, expected, rtol=1e-12, atol=1e-14)


def test_a_name_that_is_written_anew_is_another_value() -> None:
    build = Builder()
    x = build.data("x", (3, 4))
    made = build.op("relu", {"X": x})
    seen = build.op("reshape", {"X": made}, {"shape": (4, 3)})
    build.block.append_op("tanh", {"X": x}, {"Out": made}, {})
    last = build.op("relu", {"X": made})
    build.op("elementwise_add", {"X": seen, "Y": seen})
    assert _spent(build) == {last.name: {"X"}}


@pytest.mark.parametrize("early", [True, False])
def test_what_was_made_of_a_parameter_keeps_its_value_when_the_parameter_changes(early: bool) -> None:
    build = Builder()
    w = build.parameter("w", (2, 3))
    rate, grad = build.data("rate", (1,)), build.data("grad", (2, 3))
    if not early:
        build.block.append_op("sgd", {"Param": w, "Grad": grad, "LearningRate": rate}, {"ParamOut": w}, {})
    flat = build.op("reshape", {"X": w}, {"shape": (6,)})
    split = build.op("reshape", {"X": flat}, {"shape": (3, 2)})
    if early:
        build.block.append_op("sgd", {"Param": w, "Grad": grad, "LearningRate": rate}, {"ParamOut": w}, {})
    out = build.op("scale", {"X": split}, {"scale": 1.0})
    scope = Scope()
    scope.set("w", np.ones((2, 3)))
    feed = {"rate": np.array([1.0]), "grad": np.ones((2, 3))}
    (found,) = Executor().run(build.program, feed, [out], scope)
    np.testing.assert_array_equal(found, np.full((3, 2), 1.0 if early else 0.0))
    np.testing.assert_array_equal(scope.get("w"), np.zeros((2, 3)))
