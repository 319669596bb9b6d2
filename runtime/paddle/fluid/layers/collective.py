# SPDX-License-Identifier: Apache-2.0
"""Layers that combine a value over all trainers and devices of a data-parallel program."""

from __future__ import annotations

from paddle.fluid.errors import FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable

_KINDS = ("sum", "prod", "max", "min")


def _allreduce(
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", sync_mode: bool = False
) -> Variable:
    """Return the sum, product, maximum or minimum of x over all ranks, without a gradient.

    Args:
        out: the result; None means a new variable.
        reduce_type: "sum", "prod", "max" or "min".
        sync_mode: has no effect: the operator always waits.

    Raises:
        FluidTypeError: reduce_type is unknown.
    """
    if reduce_type not in _KINDS:
        raise FluidTypeError(f"reduce_type: expected one of {', '.join(_KINDS)}, got {reduce_type!r}")
    helper = LayerHelper("allreduce")
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype, stop_gradient=True)
    attrs = {"reduce_type": _KINDS.index(reduce_type), "sync_mode": sync_mode}
    helper.append_op(type="allreduce", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


def _broadcast(x: Variable, root: int, sync_mode: bool = False) -> Variable:
    """Replace x by the value of rank `root`; return it."""
    attrs = {"root": root, "sync_mode": sync_mode}
    LayerHelper("broadcast").append_op(type="broadcast", inputs={"X": x}, outputs={"Out": x}, attrs=attrs)
    return x
