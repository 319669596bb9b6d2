# SPDX-License-Identifier: Apache-2.0
"""Received values replace those of the scope, perhaps in their arrays; what was computed before keeps its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.graph import Executor, Scope, Variable
from paddle.graph.plan import PlanRequest, compile_plan
from tests.runtime.graph.sample_programs import Builder


class Servers:
    """Servers whose value of every variable is 5, written to the array that a scope already has."""

    peers = None

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        for name in names:
            if self._scope.has(name):
                self._scope.get(name)[...] = 5.0
            else:
                self._scope.set(name, np.full((2, 3), 5.0))
        return [self._scope.get(name) for name in names]


def received(build: Builder, w: Variable) -> None:
    build.block.append_op("recv", {}, {"Out": w}, {"epmap": ("127.0.0.1:1",), "varnames": (w.name,)})


def filled(build: Builder, w: Variable) -> None:
    build.block.append_op("fill_constant", {}, {"Out": w}, {"shape": (2, 3), "value": 1.0, "dtype": 6})


def operators(build: Builder, *fetches: str) -> list[str]:
    plan = compile_plan(build.program, PlanRequest((), fetches), 0, np, Servers(Scope()))
    return [op.type for _, op in plan.ops]


def test_a_first_value_that_is_received_before_anything_reads_it_is_not_computed() -> None:
    build = Builder()
    w = build.parameter("w", (2, 3))
    filled(build, w)
    received(build, w)
    assert operators(build, "w") == ["recv"]
    scope = Scope()
    (found,) = Executor(remote=Servers(scope)).run(build.program, {}, ["w"], scope)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, np.full((2, 3), 5.0))
    found[...] = 0.0
    np.testing.assert_array_equal(scope.get("w"), np.full((2, 3), 5.0))


def test_a_first_value_that_something_reads_is_computed() -> None:
    build = Builder()
    w = build.parameter("w", (2, 3))
    filled(build, w)
    build.block.append_op("scale", {"X": w}, {"Out": build.parameter("before", (2, 3))}, {"scale": 2.0})
    received(build, w)
    filled(build, w)
    assert operators(build) == ["fill_constant", "scale", "recv", "fill_constant"]


def test_what_was_made_of_a_parameter_keeps_its_value_when_the_parameter_is_received() -> None:
    build = Builder()
    w = build.parameter("w", (2, 3))
    flat = build.op("reshape", {"X": w}, {"shape": (6,)})
    received(build, w)
    scope = Scope()
    scope.set("w", np.ones((2, 3)))
    held = scope.get("w")
    executor = Executor(remote=Servers(scope))  # type: ignore[arg-type]
    before, after = executor.run(build.program, {}, [flat, "w"], scope)
    np.testing.assert_array_equal(before, np.ones(6))
    np.testing.assert_array_equal(after, np.full((2, 3), 5.0))
    assert scope.get("w") is held
