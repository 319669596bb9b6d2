# SPDX-License-Identifier: Apache-2.0
"""py_func: calls a Python function as a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.tensor import LoDTensor, tensor_of
from paddle.ops.control.feed import number_of

__all__ = ["py_func"]

_Variables = Variable | Sequence[Variable] | None


def py_func(
    func: Callable[..., Any],
    x: _Variables,
    out: _Variables,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: _Variables = None,
) -> _Variables:
    """Call a Python function as a layer; return `out`, which each run sets to the function's result.

    A program with `py_func` cannot be loaded from a file in another process.

    Args:
        func: takes a LoDTensor for each of x, and returns an array or LoDTensor for each of `out`; it must not modify
            its arguments. A function without parameters is called without arguments.
        x: inputs: one variable, several, or None.
        out: output variables, created by the caller with a shape and a dtype; or None.
        backward_func: takes inputs, outputs and gradients of outputs, in this order, with None for a zero gradient;
            returns the gradients of inputs, with None for inputs without one. None means no gradient is propagated.
        skip_vars_in_backward_input: inputs and outputs that are not passed to backward_func.

    Raises:
        FluidTypeError: a function is not callable, or x or out contains something other than variables.
        FluidError: an output has no shape, or a skipped variable is neither an input nor an output.
    """
    for function in (func, backward_func):
        if function is not None and not callable(function):
            raise FluidTypeError(f"py_func: expected a function, got {function!r}")
    inputs, outputs, skipped = map(_listed, (x, out, skip_vars_in_backward_input))
    for each in outputs:
        if not each.shape:
            raise FluidError(
                f"py_func: output {each.describe()} has no shape; declare it, because a function can return any shape"
            )
    names = {each.name for each in (*inputs, *outputs)}
    for each in skipped:
        if each.name not in names:
            raise FluidError(
                f"py_func: skip_vars_in_backward_input: {each.describe()} is neither in x nor in out"
            )
    attrs = {
        "forward_callable_id": number_of(_of_tensors(func)),
        "backward_callable_id": -1 if backward_func is None else number_of(_of_tensors(backward_func)),
        "backward_skip_vars": [each.name for each in skipped],
    }
    LayerHelper("py_func").append_op("py_func", {"X": inputs or None}, {"Out": outputs}, attrs)
    return out


def _listed(given: _Variables) -> list[Variable]:
    found: list[Any] = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    for each in found:
        if not isinstance(each, Variable):
            raise FluidTypeError(f"py_func: expected variables, got {each!r}")
    return found


def _of_tensors(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Wrap a function of tensors as a function of arrays."""

    def call(*values: Any) -> list[Any]:
        found = function(*(None if each is None else tensor_of(each) for each in values))
        results = list(found) if isinstance(found, list | tuple) else [found]
        return [
            None if each is None else each.value() if isinstance(each, LoDTensor) else np.asarray(each)
            for each in results
        ]

    return call
