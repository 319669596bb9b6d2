# SPDX-License-Identifier: Apache-2.0
"""Programs with bodies and arrays, and central differences of what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from paddle.graph import Block, Executor, Program, Scope, append_backward
from paddle.ops.base.lod import lod_of, plain, with_lod

# Operators whose gradients are checked in programs and not one by one.
CHECKED_IN_PROGRAMS = {
    "while",
    "conditional_block",
    "write_to_array",
    "read_from_array",
    "recurrent",
    "dynamic_recurrent",
    "lod_tensor_to_array",
    "array_to_lod_tensor",
    "shrink_rnn_memory",
    "reorder_lod_tensor_by_rank",
    "lambda_rank",  # test_v2_steps_and_windows: its gradient is that of pairs, not of its value
    "scale_sub_region",  # test_v2_old_scripts
    "cvm",  # test_rare_ops: its gradient begins with counts
    "multibox_loss",  # test_v2_detection
    "py_func",  # test_fluid_py_func
    "tensor_array_to_tensor",  # test_rare_ops
}

_STEP = 1e-6


class Build:
    """A program of float64 values under construction."""

    def __init__(self) -> None:
        self.program = Program()
        self.block = self.program.global_block()

    def data(self, name: str, shape: tuple[int, ...], dtype: str = "float64", lod_level: int = 0) -> str:
        """Add an input; those of floats get gradients."""
        self.block.create_var(name, shape, dtype, lod_level=lod_level)
        return name

    def op(
        self, op_type: str, inputs: Mapping[str, Any], out: str | None = None, slot: str = "Out", **attrs: Any
    ) -> str:
        """Append an operator with one output to the current block, and return the output's name."""
        block = self.program.current_block()
        name = out or f"t{sum(len(each.ops) for each in self.program.blocks)}"
        outputs = {slot: name}
        if op_type == "write_to_array":
            outputs["Place"] = f"{name}@{sum(len(each.ops) for each in self.program.blocks)}"
        block.append_op(op_type, inputs, outputs, attrs)
        return name

    def constant(self, value: float, dtype: str = "float64", shape: tuple[int, ...] = (1,)) -> str:
        """Return the name of a constant that gets no gradient."""
        name = self.op("fill_constant", {}, shape=shape, value=value, dtype=dtype)
        self.program.current_block().var(name).stop_gradient = True
        return name

    def body(self, fill: Callable[[], None]) -> Block:
        """Fill a block inside the current one and return it."""
        block = self.program.create_block()
        fill()
        self.program.rollback()
        return block

    def scopes(self) -> str:
        """Add the variable that holds how bodies ran."""
        return self.program.current_block().create_var(stop_gradient=True).name

    def loop(self, condition: str, reads: list[str], writes: list[str], fill: Callable[[], None]) -> None:
        """Append a while operator."""
        body = self.body(fill)
        self.program.current_block().append_op(
            "while",
            {"X": reads, "Condition": condition},
            {"Out": writes, "StepScopes": self.scopes()},
            {"sub_block": body.idx},
        )

    def scored(self, out: str) -> str:
        """Return a loss: the sum of the squares of a value."""
        return self.op("reduce_sum", {"X": self.op("square", {"X": out})}, "loss", reduce_all=True)


def check_gradients(build: Build, loss: str, feed: dict[str, Any], names: list[str]) -> None:
    """Compare the gradients of the loss with central differences.

    Raises:
        AssertionError: they differ.
    """
    forward, executor = build.program.clone(), Executor()
    append_backward(build.block.var(loss))
    computed = executor.run(build.program, feed, [f"{name}@GRAD" for name in names], Scope(), step=0)
    for name, gradient in zip(names, computed, strict=True):
        values = plain(feed[name]).copy()
        expected = np.zeros_like(values)
        for at in np.ndindex(values.shape):
            sides = []
            for step in (_STEP, -_STEP):
                moved = values.copy()
                moved[at] += step
                given = {**feed, name: with_lod(moved, lod_of(feed[name]))}
                sides.append(executor.run(forward, given, [loss], Scope(), step=0)[0].item())
            expected[at] = (sides[0] - sides[1]) / (2 * _STEP)
        np.testing.assert_allclose(plain(gradient), expected, rtol=1e-6, atol=1e-8, err_msg=name)
