# SPDX-License-Identifier: Apache-2.0
"""InferenceTranspiler: speeds up inference programs by folding batch norms into the preceding convolutions.

The new values are separate parameters, `<name>_fuse_bn`, so that other programs in the scope are not affected.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from paddle import graph
from paddle.backend import to_host
from paddle.fluid.errors import FluidError
from paddle.fluid.program.block import Block
from paddle.fluid.program.program import Program
from paddle.fluid.run.places import Place
from paddle.fluid.run.scope import Scope, global_scope
from paddle_node.contract.classes import dataclass, replace

_SUFFIX = "_fuse_bn"


class InferenceTranspiler:
    """Speeds up inference programs, which come from `clone(for_test=True)` or a file, by folding batch norms."""

    def transpile(self, program: Program, place: Place | None = None, scope: Scope | None = None) -> None:
        """Fold batch norms into the preceding convolutions, in place.

        Intermediate values can then no longer be fetched.

        Args:
            program: a program in test mode, whose parameters have values in the scope.
            place: ignored.
            scope: where parameters are stored; None means the global scope.

        Raises:
            FluidError: a parameter has no value in the scope.
        """
        block = program.global_block()
        values = scope or global_scope()
        for norm in [op for op in block.ops if op.type == "batch_norm"]:
            folding = _folding(block, norm)
            if folding is not None:
                _fold(block, folding, values)


@dataclass(frozen=True)
class _Folding:
    """The operators to fold: a batch norm, the convolution before it, and the bias in between, if any."""

    norm: graph.Operator
    conv: graph.Operator
    add: graph.Operator | None


def _folding(block: Block, norm: graph.Operator) -> _Folding | None:
    attrs = norm.attrs
    if not (attrs["is_test"] or attrs["use_global_stats"]) or attrs["data_layout"] != "NCHW":
        return None
    add, conv = None, _sole_source(block, norm.inputs["X"][0])
    if conv is not None and conv.type == "elementwise_add" and conv.attrs["axis"] == 1:
        add, conv = conv, _sole_source(block, conv.inputs["X"][0])
        if not block.var(add.inputs["Y"][0]).persistable:
            return None
    if conv is None or conv.type not in ("conv2d", "depthwise_conv2d"):
        return None
    return _Folding(norm, conv, add)


def _sole_source(block: Block, name: str) -> graph.Operator | None:
    """Return the operator that writes a variable, if only one operator reads it."""
    readers = [op for op in block.ops if name in op.reads]
    writers = [op for op in block.ops if name in op.writes]
    return writers[0] if len(readers) == len(writers) == 1 else None


def _fold(block: Block, folding: _Folding, scope: Scope) -> None:
    """Fold a batch norm: W' = W s and b' = (b - mean) s + shift per channel, with s = scale / √(variance + epsilon)."""
    norm, conv, add = folding.norm, folding.conv, folding.add
    scale, shift, mean, variance, weights = (
        _value(scope, name)
        for name in (
            *(norm.inputs[slot][0] for slot in ("Scale", "Bias", "Mean", "Variance")),
            conv.inputs["Filter"][0],
        )
    )
    factor = scale / np.sqrt(variance + cast(float, norm.attrs["epsilon"]))
    bias_name = norm.inputs["Bias"][0] if add is None else add.inputs["Y"][0]
    bias = shift - mean * factor + (0 if add is None else _value(scope, bias_name).reshape(-1) * factor)
    filter_name = _kept(block, scope, conv.inputs["Filter"][0], weights * factor[:, None, None, None])
    bias_name = _kept(block, scope, bias_name, bias)
    block._replace_op(block.ops.index(conv), replace(conv, inputs={**conv.inputs, "Filter": (filter_name,)}))
    at = block.ops.index(norm)
    block._remove_op(at)
    summed = {"X": conv.outputs["Output"][0], "Y": bias_name}
    block._insert_op(at, "elementwise_add", summed, {"Out": norm.outputs["Y"][0]}, {"axis": 1})
    if add is not None:
        block._remove_op(block.ops.index(add))


def _value(scope: Scope, name: str) -> npt.NDArray[Any]:
    handle = scope.find_var(name)
    value = None if handle is None else handle.get_tensor().value()
    if value is None:
        raise FluidError(
            f"{name!r} has no value in the scope: load the model into it before calling transpile()"
        )
    return np.asarray(to_host(value))


def _kept(block: Block, scope: Scope, name: str, value: npt.NDArray[Any]) -> str:
    """Create a parameter in the block of an existing one, and return its name.

    A shared one can be folded several times.
    """
    fused = name + _SUFFIX
    while block.has_var(fused):
        fused += "_"
    block.create_parameter(fused, value.shape, value.dtype, trainable=False)
    scope.var(fused).get_tensor().set(value)
    return fused
