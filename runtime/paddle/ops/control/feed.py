# SPDX-License-Identifier: Apache-2.0
"""feed and fetch, which list the feeds and fetches of program files in order; read, a reader's next batch; and print.

print passes a value through unchanged and prints it to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from paddle.backend import Array, to_host
from paddle.ops.base.errors import AttrError
from paddle.ops.base.lod import lod_of, plain
from paddle.ops.base.registry import GRAD, GradOp, Names, Spec, gradient_maker, operator

_ATTRS = {
    "message": "",
    "summarize": -1,
    "print_tensor_name": True,
    "print_tensor_type": True,
    "print_tensor_shape": True,
    "print_tensor_lod": True,
    "first_n": -1,
    "print_phase": "BOTH",
    "is_forward": True,
}


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


@operator("print", "In+ -> Out+", attrs=_ATTRS, infer=_infer_print, has_effect=True)
def print_(
    x: Any,
    *,
    message: str,
    summarize: int,
    print_tensor_name: bool,
    print_tensor_type: bool,
    print_tensor_shape: bool,
    print_tensor_lod: bool,
    first_n: int,
    print_phase: str,
    is_forward: bool,
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
