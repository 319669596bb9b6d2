# SPDX-License-Identifier: Apache-2.0
"""feed and fetch, which list the feeds and fetches of program files in order; read, a reader's next batch; and print.

print passes a value through unchanged and prints it to standard error.

py_func: an operator that calls a Python function. A program refers to functions by numbers that are valid only within
one process, not in programs loaded from a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError, InputError, OpError
from paddle.ops.base.lod import LoDArray, lod_of, plain, with_lod
from paddle.ops.base.registry import GRAD, GradOp, Names, Spec, gradient_maker, operator


@operator("feed", "X -> Out", attrs={"col": 0}, has_effect=True)
def feed(x: Any) -> Any:
    """Return X unchanged, a value that was fed to the program."""
    return x


@operator("fetch", "X -> Out", attrs={"col": 0}, has_effect=True)
def fetch(x: Any) -> Any:
    """Return X unchanged, a value that the program returns."""
    return x


class BatchSource(Protocol):
    """The interface of sources of batches, the values of reader variables."""

    def read(self) -> list[Any]:
        """Return the values of the next batch, arrays or `LoDArray`s; blocks until it is ready.

        Raises:
            EndOfData: there are no more batches.
        """


@operator("read", "Reader -> Out*+", has_effect=True)
def read(reader: BatchSource) -> list[Any]:
    """Return the values of a reader's next batch."""
    return reader.read()


def _infer_print(x: Spec, *, print_phase: str) -> Spec:
    if print_phase.upper() not in ("FORWARD", "BACKWARD", "BOTH"):
        raise AttrError(f"print_phase: expected 'FORWARD', 'BACKWARD' or 'BOTH', got {print_phase!r}")
    return x


@operator("print", "In+ -> Out+", infer=_infer_print, has_effect=True)
def print_(
    x: Any,
    *,
    message: str = "",
    summarize: int = -1,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    first_n: int = -1,
    print_phase: str = "BOTH",
    is_forward: bool = True,
    names: Mapping[str, Sequence[str]],
    runs: Iterator[int],
) -> Any:
    """Return X.

    Print its description and first `summarize` values (-1: all) to standard error, if print_phase includes it. If
    `first_n` is positive, only the first `first_n` runs print.
    """
    if print_phase.upper() == ("BACKWARD" if is_forward else "FORWARD"):
        return x
    if next(runs) >= first_n > 0:
        return x
    host: Array = to_host(plain(x))
    facts = {
        "Tensor": names["In"][0] if print_tensor_name else None,
        "shape": list(host.shape) if print_tensor_shape else None,
        "dtype": host.dtype if print_tensor_type else None,
        "LoD": [level.tolist() for level in lod_of(x)] or None if print_tensor_lod else None,
        "data": _text(host.reshape(-1), summarize),
    }
    described = " ".join(f"{name}: {fact}" for name, fact in facts.items() if fact is not None)
    sys.stderr.write(f"{message} {described}\n".lstrip())
    return x


@gradient_maker("print")
def _print_grad(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    grads = {"In": [outputs["Out"][0] + GRAD]}, {"Out": [inputs["In"][0] + GRAD]}
    return [GradOp("print", *grads, {**attrs, "is_forward": False})]


def _text(values: Array, count: int) -> str:
    shown = values if count < 0 else values[:count]
    return np.array2string(shown, threshold=sys.maxsize, separator=",", max_line_width=sys.maxsize)


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
