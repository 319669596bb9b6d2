# SPDX-License-Identifier: Apache-2.0
"""DynamicRNN and StaticRNN: blocks that run over the steps of sequences or of dense inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy.typing as npt

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.tensor import assign, fill_constant_batch_size_like
from paddle.fluid.program import bodies
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Variable
from paddle.graph import unique_name

__all__ = ["DynamicRNN", "StaticRNN"]


class _Unrolled:
    """Common base: a body with states and outputs."""

    def __init__(self, layer_type: str, name: str | None) -> None:
        self._helper = LayerHelper(layer_type, name)
        self._body: Block | None = None
        self._inputs: list[Variable] = []
        self._first: list[Variable] = []
        self._before: list[Variable] = []
        self._after: dict[str, Variable] = {}
        self._outputs: list[Variable] = []
        self._results: list[Variable] = []

    def __call__(self) -> Variable | list[Variable]:
        """Return the outputs of all steps: one variable, or a list."""
        if not self._results:
            raise FluidError(f"{self._helper.layer_type}: the block is empty, or it has no output")
        return self._results[0] if len(self._results) == 1 else self._results

    def _update(self, before: Variable, after: Variable) -> None:
        self._open("update_memory")
        self._after[before.name] = after

    def _open(self, what: str) -> Block:
        if self._body is None:
            raise FluidError(f"{self._helper.layer_type}.{what} must be called inside its block")
        return self._body

    def _inner(self, outer: Variable, shape: Sequence[int], lod_level: int = 0) -> Variable:
        """Add the variable that a step sees instead of an outer one; it has the same name and hides it."""
        variable = self._open("input").create_var(outer.name, shape, outer.dtype, lod_level=lod_level)
        variable.stop_gradient = outer.stop_gradient
        return variable

    def _state(self, first: Variable) -> Variable:
        body = self._open("memory")
        name = unique_name.generate(f"{self._helper.name}.mem")
        inner = body.create_var(name, (-1, *first.shape[1:]), first.dtype)
        self._first.append(first)
        self._before.append(inner)
        return inner

    def _states_after(self) -> list[str]:
        missing = [state.name for state in self._before if state.name not in self._after]
        if missing:
            raise FluidError(f"{self._helper.layer_type}: call update_memory for {', '.join(missing)}")
        return [self._after[state.name].name for state in self._before]

    @contextmanager
    def _filling(self) -> Iterator[Block]:
        self._body = bodies.begin()
        yield self._body
        self._body.program.rollback()


class DynamicRNN(_Unrolled):
    """A block that runs over the steps of sequences.

    A step sees the rows of the sequences that have not ended. Memories belong to their sequences in any order:
    `need_reorder` is ignored.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__("dynamic_rnn", name)
        self._statics: list[Variable] = []

    @contextmanager
    def block(self) -> Iterator[None]:
        """Fill the block."""
        with self._filling() as body:
            yield
        block = bodies.parent_of(body)
        for out in self._outputs:
            result = block.create_var(out.name, (-1, *out.shape[1:]), out.dtype, lod_level=1)
            self._results.append(result)
        block.append_op(
            "dynamic_recurrent",
            {
                "Inputs": self._inputs,
                "Statics": self._statics,
                "States": self._first,
                "Parameters": bodies.reads(body),
            },
            {"Outputs": self._results, "StepScopes": bodies.scopes(block)},
            {
                "sub_block": body.idx,
                "before": [state.name for state in self._before],
                "after": self._states_after(),
            },
        )
        self._body = None

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """Return the rows of a step of sequences; all step inputs have equal lengths."""
        if level:
            raise FluidError(f"step_input: LoD level {level} is not supported, only 0")
        return self._seen(x, self._inputs, 0)

    def static_input(self, x: Variable) -> Variable:
        """Return the part of x for the sequences of a step: one row per sequence, or one sequence each if x has LoD."""
        return self._seen(x, self._statics, x.lod_level)

    def _seen(self, x: Variable, given: list[Variable], lod_level: int) -> Variable:
        """Return the variable that a step sees of x, under a name of its own: a step may read all of x as well."""
        with bodies.around(self._open("input")):
            own = assign(x)
        given.append(own)
        return self._inner(own, x.shape, lod_level)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: npt.DTypeLike = "float32",
    ) -> Variable:
        """Return a memory that starts as `init`, one row per sequence, or as rows of `shape` filled with `value`."""
        body = self._open("memory")
        if init is None:
            if shape is None or not self._inputs:
                raise FluidError("memory: give init, or shape after the first step_input")
            with bodies.around(body):
                init = fill_constant_batch_size_like(self._inputs[0], [-1, *shape], dtype, value)
        return self._state(init)

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Set the memory to `new_mem` for the next step."""
        self._update(ex_mem, new_mem)

    def output(self, *outputs: Variable) -> None:
        """Set the outputs of a step; the results have the LoD of the step inputs."""
        self._open("output")
        self._outputs += outputs


class StaticRNN(_Unrolled):
    """A block that runs over the first dimension of its inputs."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("static_rnn", name)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Fill the block."""
        with self._filling() as body:
            yield
        block = bodies.parent_of(body)
        steps = self._inputs[0].shape[0] if self._inputs else -1
        for out in self._outputs:
            self._results.append(block.create_var(out.name, (steps, *out.shape), out.dtype))
        block.append_op(
            "recurrent",
            {"inputs": self._inputs, "initial_states": self._first, "parameters": bodies.reads(body)},
            {"outputs": self._results, "step_scopes": bodies.scopes(block)},
            {
                "sub_block": body.idx,
                "ex_states": [state.name for state in self._before],
                "states": self._states_after(),
                "has_states": bool(self._before),
            },
        )
        self._body = None

    def step_input(self, x: Variable) -> Variable:
        """Return one step of an input (steps, ...)."""
        inner = self._inner(x, x.shape[1:])
        self._inputs.append(x)
        return inner

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """Return a memory that starts as `init`, or as `shape` with as many rows as `batch_ref`, all one value."""
        body = self._open("memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise FluidError("memory: give init, or shape and batch_ref")
            with bodies.around(body) as block:
                outer = block._var_recursive(batch_ref.name)
                init = fill_constant_batch_size_like(
                    outer, shape, outer.dtype, init_value, ref_batch_dim_idx, init_batch_dim_idx
                )
        return self._state(init)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Set the memory to `var` for the next step."""
        self._update(mem, var)

    def step_output(self, o: Variable) -> None:
        """Add an output of a step."""
        self._open("step_output")
        self._outputs.append(o)

    def output(self, *outputs: Variable) -> None:
        """Add several outputs of a step."""
        for each in outputs:
            self.step_output(each)
