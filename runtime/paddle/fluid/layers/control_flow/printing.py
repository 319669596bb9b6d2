# SPDX-License-Identifier: Apache-2.0
"""Print: shows values while a program runs."""

from __future__ import annotations

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable

__all__ = ["Print"]


def Print(  # noqa: N802 (the name that scripts use)
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = -1,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Return the input; every run shows it on standard error, its first `summarize` values (-1: all).

    Args:
        input: what to show.
        first_n: must be -1: every run shows it.
        message: goes before it.
        summarize: so many values.
        print_tensor_name: show the name.
        print_tensor_type: show the dtype.
        print_tensor_shape: show the sizes.
        print_tensor_lod: show the sequences.
        print_phase: "forward" or "both"; gradients are not shown: print `<name>@GRAD` itself.

    Raises:
        FluidError: first_n or print_phase is something else.
    """
    if first_n != -1 or print_phase not in ("forward", "both"):
        raise FluidError(
            f"Print: expected first_n -1 and print_phase 'forward' or 'both', got {first_n} and {print_phase!r}"
        )
    attrs = {
        "message": message,
        "summarize": summarize,
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_lod": print_tensor_lod,
    }
    return LayerHelper("print").apply("print", {"In": input}, attrs, dtype=input.dtype)
