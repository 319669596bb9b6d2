# SPDX-License-Identifier: Apache-2.0
"""Control-flow layers: comparisons, tensor arrays, loops over time steps, and Print; `blocks` has more.

DynamicRNN and StaticRNN are blocks that run once per time step, of sequences or of dense inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from paddle.fluid.errors import FluidError, answering
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.blocks import ConditionalBlock, IfElse, ParallelDo, Switch, While
from paddle.fluid.layers.nn.sequences import sequence_first_step
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.layers.tensor import assign, cast, fill_constant_batch_size_like
from paddle.fluid.program import bodies
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Variable, VarType
from paddle.graph import unique_name
from paddle.signatures import takes

__all__ = [
    "ConditionalBlock", "DynamicRNN", "IfElse", "ParallelDo", "Print", "StaticRNN", "Switch", "While", "array_length",
    "array_read", "array_to_lod_tensor", "array_write", "create_array", "equal", "greater_equal", "greater_than",
    "increment", "is_empty", "less_equal", "less_than", "lod_rank_table", "lod_tensor_to_array", "max_sequence_len",
    "merge_lod_tensor", "not_equal", "reorder_lod_tensor_by_rank", "shrink_memory", "split_lod_tensor",
]  # fmt: skip


class _Unrolled:
    """Base class of DynamicRNN and StaticRNN, which run a body with states and outputs."""

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
        if self._body is not None:
            raise FluidError(
                f"{self._helper.layer_type}: the outputs exist only after the block; end its `with` statement before "
                "this call"
            )
        self._require(self._results)
        return self._results[0] if len(self._results) == 1 else self._results

    def _require(self, outputs: Sequence[Variable]) -> None:
        if not outputs:
            raise FluidError(
                f"{self._helper.layer_type}: the block declares no output; call output(...) in it"
            )

    def _update(self, before: Variable, after: Variable) -> None:
        self._open("update_memory")
        self._after[before.name] = after

    def _open(self, what: str) -> Block:
        if self._body is None:
            raise FluidError(
                f"{self._helper.layer_type}.{what} must be called inside its block: `with rnn.block():` or, for "
                "StaticRNN, `with rnn.step():`"
            )
        return self._body

    def _open_for(self, what: str, outer: Variable) -> Block:
        """Return the body, after checking that it does not compute `outer` itself."""
        body = self._open(what)
        if outer.block is body:
            raise FluidError(
                f"{self._helper.layer_type}.{what}: {outer.describe()} is computed inside the block; compute it before"
            )
        return body

    def _inner(self, outer: Variable, shape: Sequence[int], lod_level: int = 0) -> Variable:
        """Add the variable that replaces an outer one within a step; it has the same name, which it shadows."""
        variable = self._open_for("input", outer).create_var(
            outer.name, shape, outer.dtype, lod_level=lod_level
        )
        variable.stop_gradient = outer.stop_gradient
        return variable

    def _state(self, first: Variable) -> Variable:
        body = self._open_for("memory", first)
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

    def _output(self, what: str, out: Variable) -> None:
        """Declare an output; its own name allows any variable, even the same one again, or one from outside."""
        self._open(what)
        self._outputs.append(self._helper.apply("rnn_memory_helper", {"X": out}))

    @contextmanager
    def _filling(self) -> Iterator[Block]:
        self._body = bodies.begin()
        yield self._body
        self._body.program.rollback()


class DynamicRNN(_Unrolled):
    """A recurrent network over sequences of different lengths: a block that runs once per time step.

    A step sees one row of each sequence that has not ended. `need_reorder` is ignored, because memories always follow
    their sequences.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__("dynamic_rnn", name)
        self._statics: list[Variable] = []
        self._level = 0

    @contextmanager
    def block(self) -> Iterator[None]:
        """Collect the operators of one step in a `with` statement."""
        with self._filling() as body:
            yield
        self._require(self._outputs)
        block = bodies.parent_of(body)
        for out in self._outputs:
            levels = self._level + 1
            result = block.create_var(out.name, (-1, *out.shape[1:]), out.dtype, lod_level=levels)
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
                "level": self._level,
            },
        )
        self._body = None

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """Return the current step's rows of sequences; all step inputs must have the same sequence lengths.

        The first step input determines the level: 1 runs over the inner sequences of all outer ones together.
        """
        if not self._inputs:
            self._level = level
        return self._seen(x, self._inputs, 0)

    def static_input(self, x: Variable) -> Variable:
        """Return the part of x for the current sequences: one row per sequence, or one sequence each if x has LoD."""
        return self._seen(x, self._statics, x.lod_level)

    def _seen(self, x: Variable, given: list[Variable], lod_level: int) -> Variable:
        """Return the variable with a step's part of x; its name is new, since a step may also read all of x."""
        with bodies.around(self._open_for("step_input or static_input", x)):
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
        """Return a memory (recurrent state) with one row per sequence.

        Its first value is `init`, or rows of `shape` filled with `value`.
        """
        body = self._open("memory")
        if init is None:
            if shape is None or not self._inputs:
                raise FluidError("memory: give init, or give shape after the first step_input")
            with bodies.around(body):
                like = self._inputs[0]
                # A step can have sequences; a memory has one row for each sequence of steps.
                for _ in range(like.lod_level - 1 - self._level):
                    like = sequence_first_step(cast(like, "float32"))
                init = fill_constant_batch_size_like(like, [-1, *shape], dtype, value)
        return self._state(init)

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Set the memory `ex_mem` to `new_mem` for the next step."""
        self._update(ex_mem, new_mem)

    def output(self, *outputs: Variable) -> None:
        """Declare variables as outputs of each step; the RNN's results have the LoD of the step inputs."""
        for each in outputs:
            self._output("output", each)


class StaticRNN(_Unrolled):
    """A recurrent network with a fixed number of steps: a block that runs for each index of its inputs' first axis."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("static_rnn", name)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Collect the operators of one step in a `with` statement."""
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
        """Return the current step's slice (...) of an input (steps, ...)."""
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
        """Return a memory (recurrent state), a variable whose value each step passes to the next.

        Its initial value is `init`, or an array of `shape` filled with `init_value`, with as many rows as `batch_ref`.
        """
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
        """Set the memory `mem` to `var` for the next step."""
        self._update(mem, var)

    def step_output(self, o: Variable) -> None:
        """Declare a variable as an output of each step; the result has the shape (steps, ...)."""
        self._output("step_output", o)

    def output(self, *outputs: Variable) -> None:
        """Declare several variables as outputs of each step."""
        for each in outputs:
            self.step_output(each)


def _comparison(
    op_type: str, symbol: str, last: str = "cond=None, force_cpu=None"
) -> Callable[..., Variable]:
    what = f"whether x {symbol} y for each element, bool; stored in `cond` if given"
    return layer(f"{op_type}(x, y, {last})", what, to="cond=Out", fixed="Out")


less_than = _comparison("less_than", "<", "force_cpu=None, cond=None")
less_equal = _comparison("less_equal", "<=")
greater_than = _comparison("greater_than", ">")
greater_equal = _comparison("greater_equal", ">=")
equal = _comparison("equal", "==")
not_equal = _comparison("not_equal", "!=")
is_empty = layer(
    "is_empty(x, cond=None)",
    "whether x has no elements; stored in `cond` if given",
    to="cond=Out",
    fixed="Out",
)


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Add `value` to x, in place unless `in_place` is False, and return the result."""
    helper = LayerHelper("increment")
    (out,) = helper.apply_all("increment", {"X": x}, {"step": float(value)}, {"Out": x} if in_place else {})
    return out


def create_array(dtype: npt.DTypeLike) -> Variable:
    """Create an empty tensor array for values of the given dtype, and return it."""
    helper = LayerHelper("array")
    array = helper.block.create_var(f"{helper.name}.out", dtype=dtype, type=VarType.LOD_TENSOR_ARRAY)
    helper.append_op("create_array", {}, {"Out": array}, {"dtype": VarType.of(dtype)})
    return array


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write x at index i, an int64 variable (1,), of the given tensor array or of a new one; return the array."""
    if array is None:
        array = create_array(x.dtype)
    LayerHelper("array_write").apply_all(
        "write_to_array", {"X": x, "I": i, "Array": array}, None, {"Out": array}
    )
    return array


array_read = layer("array_read(array, i)", "element i of an array", "read_from_array", prefix="array_read")
array_length = layer(
    "array_length(array)",
    "the length of an array, (1,) int64",
    "lod_array_length",
    prefix="array_length",
)
lod_rank_table = layer(
    "lod_rank_table(x, level=0)", "the sequences of a level of x, longest first", fixed="Out"
)
max_sequence_len = layer(
    "max_sequence_len(rank_table)",
    "the length of the longest sequence of a rank table, (1,) int64",
    fixed="Out",
)
lod_tensor_to_array = layer(
    "lod_tensor_to_array(x, table)",
    "a tensor array with the rows of each time step, longest sequence first",
)
array_to_lod_tensor = layer("array_to_lod_tensor(x, table)", "the sequences whose time steps are in an array")
shrink_memory = layer(
    "shrink_memory(x, i, table)",
    "the rows of the sequences that continue at step i",
    "shrink_rnn_memory",
    prefix="shrink_memory",
)
reorder_lod_tensor_by_rank = layer(
    "reorder_lod_tensor_by_rank(x, rank_table)", "the sequences of x, or its rows, in the order of the table"
)
split_lod_tensor = several(
    "split_lod_tensor(input, mask, level=0)", "the rows where a mask (rows, 1) is true, and the other rows"
)
merge_lod_tensor = layer(
    "merge_lod_tensor(in_true, in_false, x, mask, level=0)",
    "the rows of in_true and in_false, in the order of the mask",
    to="in_true=InTrue in_false=InFalse",
)


@takes(
    "input, first_n=-1, message=None, summarize=-1, print_tensor_name=True, print_tensor_type=True, "
    "print_tensor_shape=True, print_tensor_lod=True, print_phase='both'"
)
def Print(given: dict[str, Any]) -> Variable:  # noqa: N802 (the name that scripts use)
    """Return the input unchanged; each run prints its first `summarize` values to standard error.

    Args:
        first_n: number of runs that print; -1 means all runs.
        message: text before the values.
        summarize: number of values to print; -1 means all.
        print_tensor_name: whether to print the name.
        print_tensor_type: whether to print the dtype.
        print_tensor_shape: whether to print the shape.
        print_tensor_lod: whether to print the LoD.
        print_phase: "forward", "backward" or "both": print the value, its gradient, or both.

    Raises:
        FluidError: print_phase is unknown.
    """
    print_phase, inputs = given.pop("print_phase"), {"In": given.pop("input")}
    if str(print_phase).upper() not in ("FORWARD", "BACKWARD", "BOTH"):
        raise FluidError(f"Print: expected print_phase 'forward', 'backward' or 'both', got {print_phase!r}")
    return LayerHelper("print").apply("print", inputs, {**given, "print_phase": print_phase.upper()})


__getattr__ = answering(__name__, "paddle.fluid.layers")
