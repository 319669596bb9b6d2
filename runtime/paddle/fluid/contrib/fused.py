# SPDX-License-Identifier: Apache-2.0
"""fused_elemwise_activation: combines a binary and a unary elementwise operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from paddle.fluid import layers
from paddle.fluid.errors import FluidError
from paddle.fluid.program.variable import Variable

__all__ = ["fused_elemwise_activation"]

_BINARY = ("elementwise_add", "elementwise_mul")
_UNARY = ("scale", "relu", "tanh")


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: Sequence[str] | str,
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """Append a binary and a unary elementwise operation: unary(binary(x, y)) or binary(x, unary(y)).

    The order in `functor_list` is that of the formula. The executor fuses the operators where it can.

    Args:
        x: first operand.
        y: second operand, broadcast to x starting at dimension `axis`.
        functor_list: two names, or "first,second": elementwise_add or elementwise_mul, and scale, relu or tanh.
        axis: the dimension of x that y starts at; see `layers.elementwise_add`.
        scale: factor of "scale".
        save_intermediate_out: ignored.

    Raises:
        FluidError: the list does not name one binary and one unary function.
    """
    names = functor_list.split(",") if isinstance(functor_list, str) else list(functor_list)
    kinds = [name in _BINARY for name in names]
    if sorted(kinds) != [False, True] or names[kinds.index(False)] not in _UNARY:
        raise FluidError(
            f"fused_elemwise_activation: expected one of {', '.join(_BINARY)} and one of {', '.join(_UNARY)}, "
            f"got {functor_list!r}"
        )
    unary: Callable[[Variable], Variable] = getattr(layers, names[kinds.index(False)])
    binary: Callable[..., Variable] = getattr(layers, names[kinds.index(True)])
    if unary is layers.scale:
        unary = partial(layers.scale, scale=scale)
    return binary(x, unary(y), axis=axis) if kinds[0] else unary(binary(x, y, axis=axis))
