# SPDX-License-Identifier: Apache-2.0
"""py_func: an operator that calls a Python function.

A program refers to functions by numbers that are valid only within one process, not in programs loaded from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.backend import from_host, to_host
from paddle.ops.base.errors import InputError, OpError
from paddle.ops.base.lod import LoDArray, lod_of, plain, with_lod
from paddle.ops.base.registry import GRAD, GradOp, Names, gradient_maker, operator

Function = Callable[..., Sequence[Any]]
"""Takes values on the host (arrays, LoDArrays, or None for a missing one) and returns one value per output."""

_FUNCTIONS: list[Function] = []


def number_of(function: Function) -> int:
    """Register a Python function, and return the number by which programs of this process refer to it."""
    _FUNCTIONS.append(function)
    return len(_FUNCTIONS) - 1


@operator(
    "py_func",
    "X+*? -> Out+*?",
    attrs={"forward_callable_id": 0, "backward_callable_id": -1, "backward_skip_vars": ()},
    has_effect=True,
)
def py_func(
    values: Sequence[Any] | None, *, forward_callable_id: int, names: Mapping[str, Sequence[str]]
) -> list[Any]:
    """Call a Python function with the values of X and return its results, which can be None.

    Raises:
        OpError: this process has no function with that number.
        InputError: the function returns an unexpected number of values.
    """
    if not 0 <= forward_callable_id < len(_FUNCTIONS):
        raise OpError(
            f"py_func: this process has no function number {forward_callable_id}; "
            "build the program in the process that runs it"
        )
    wanted = len(names.get("Out", ()))
    like = next((plain(each) for each in values or () if each is not None), None)
    results = _FUNCTIONS[forward_callable_id](*map(_on_host, values or ()))
    if len(results) != wanted and not (wanted == 0 and all(each is None for each in results)):
        raise InputError(f"py_func: the function returned {len(results)} values for {wanted} outputs")
    return [_beside(each, like) for each in results[:wanted]]


@gradient_maker("py_func")
def _gradient(inputs: Names, outputs: Names, attrs: Mapping[str, Any]) -> list[GradOp]:
    """Return an operator that calls the gradient function with inputs, outputs and output gradients.

    The variables that it skips are left out.
    """
    if attrs["backward_callable_id"] < 0:
        return []
    skipped = attrs["backward_skip_vars"]
    given = [name for name in (*inputs.get("X", ()), *outputs.get("Out", ())) if name not in skipped]
    return [
        GradOp(
            "py_func",
            {"X": [*given, *(name + GRAD for name in outputs.get("Out", ()))]},
            {"Out": [name + GRAD for name in inputs["X"]]},
            {"forward_callable_id": attrs["backward_callable_id"]},
        )
    ]


def _on_host(value: Any) -> Any:
    return None if value is None else with_lod(to_host(plain(value)), lod_of(value))


def _beside(value: Any, like: Any) -> Any:
    if value is None or like is None:
        return value
    moved = from_host(plain(value), like)
    return LoDArray(moved, value.lod) if isinstance(value, LoDArray) else moved
