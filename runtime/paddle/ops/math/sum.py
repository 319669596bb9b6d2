# SPDX-License-Identifier: Apache-2.0
"""sum: adds arrays, selected rows, or both, in the order they are given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import TensorArray, merged_arrays
from paddle.ops.base.registry import GRAD, GradOp, Names, Spec, gradient_maker, operator
from paddle.ops.base.selected_rows import SelectedRows, concatenated
from paddle.ops.base.shapes import same


def _infer(x: list[Spec]) -> Spec:
    shape = reduce(lambda left, right: same(left, right, "inputs of a sum"), (spec.shape for spec in x))
    if len({spec.dtype for spec in x}) != 1:
        raise ShapeError(
            f"inputs of a sum must have one dtype, got {', '.join(str(spec.dtype) for spec in x)}"
        )
    return x[0]._replace(shape=shape, lod_level=max(spec.lod_level for spec in x))


@operator("sum", "X* -> Out", infer=_infer)
def sum_(x: list[Any]) -> Any:
    """Add all inputs; the result is sparse if all of them are, and its rows are then unique and ascending.

    Arrays of values are added number by number.
    """
    if isinstance(x[0], TensorArray):
        return merged_arrays(x, sum_)
    sparse = [each for each in x if isinstance(each, SelectedRows)]
    dense = [each for each in x if not isinstance(each, SelectedRows)]
    if not dense:
        return concatenated(sparse).merged() if len(sparse) > 1 else sparse[0].merged()
    total = _add_dense(dense)
    if sparse:
        total = total if len(dense) > 1 else total.copy()
        for each in sparse:
            merged = each.merged()
            total[merged.rows] += merged.values
    return total


def _add_dense(arrays: list[Array]) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    for each in arrays[1:]:
        same(arrays[0].shape, each.shape, "inputs of a sum")
    total = arrays[0] + arrays[1]
    for each in arrays[2:]:
        total += each
    return total


@gradient_maker("sum")
def _sum_grad(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    grad = outputs["Out"][0] + GRAD
    return [GradOp("scale", {"X": [grad]}, {"Out": [name + GRAD]}, {}) for name in inputs["X"]]
