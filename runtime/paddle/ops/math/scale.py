# SPDX-License-Identifier: Apache-2.0
"""scale (scale X + bias), increment (X + step), add_scaled (X + scale Y), and sum (of all inputs).

Only compiled plans contain add_scaled; weight decay uses it to add a parameter to its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base import kernels
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.lod import TensorArray, merged_arrays
from paddle.ops.base.registry import GRAD, NO_SLOTS, GradOp, Names, Spec, gradient_maker, operator
from paddle.ops.base.selected_rows import SelectedRows, concatenated
from paddle.ops.base.shapes import same


def _infer_scale(x: Spec, *, scale: float, bias: float) -> Spec:
    return _holding(x, scale, bias)


def _infer_increment(x: Spec, *, step: float) -> Spec:
    return _holding(x, step)


def _holding(x: Spec, *numbers: float) -> Spec:
    for number in numbers if x.dtype.kind in "iu" else ():
        if not float(number).is_integer():
            raise AttrError(f"X is {x.dtype}, which cannot represent {number:g}: cast X to 'float32' first")
    return x


@operator("scale", "X -> Out", infer=_infer_scale)
def scale(x: Any, *, scale: float = 1.0, bias: float = 0.0, bias_after_scale: bool = True) -> Any:
    """Return scale X + bias, or scale (X + bias) without bias_after_scale; X may be selected rows."""
    if isinstance(x, SelectedRows):
        return SelectedRows(x.rows, _scaled(x.values, scale, bias, bias_after_scale), x.height)
    return _scaled(x, scale, bias, bias_after_scale)


def _scaled(x: Array, factor: float, bias: float, bias_after_scale: bool) -> Array:
    shift = x.dtype.type(bias if bias_after_scale else bias * factor)
    scaled = x if factor == 1.0 else x * x.dtype.type(factor)
    return scaled + shift if bias else scaled


@gradient_maker("scale")
def _scale_grad(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    return [
        GradOp(
            "scale",
            {"X": [outputs["Out"][0] + GRAD]},
            {"Out": [inputs["X"][0] + GRAD]},
            {"scale": attrs["scale"]},
        )
    ]


@operator("increment", "X -> Out", infer=_infer_increment)
def increment(x: Array, *, step: float = 1.0) -> Array:
    """Increment a counter: return X + step, in the dtype of X."""
    return x + x.dtype.type(step)


@operator("add_scaled", "X Y -> Out", attrs={"scale": float}, infer="Y", fresh=True)
def add_scaled(x: Any, y: Array, *, scale: float, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return X + scale Y, an array of Y's shape; X may be selected rows."""
    factor = y.dtype.type(scale)
    if isinstance(x, SelectedRows):
        merged, total = x.merged(), y * factor
        total[merged.rows] += merged.values
        return total
    if x.shape != y.shape or not kernels.pay_off(x, y):
        total = y * factor
        total += x
        return total
    out = x if "X" in spent else np.empty_like(x)
    kernels.add_scaled(x, y, factor, out)
    return out


def _infer(x: list[Spec]) -> Spec:
    shape = reduce(lambda left, right: same(left, right, "inputs of a sum"), (spec.shape for spec in x))
    if len({spec.dtype for spec in x}) != 1:
        raise ShapeError(
            f"inputs of a sum must have the same dtype, got {', '.join(str(spec.dtype) for spec in x)}"
        )
    return x[0]._replace(shape=shape, lod_level=max(spec.lod_level for spec in x))


@operator("sum", "X* -> Out", infer=_infer)
def sum_(x: list[Any]) -> Any:
    """Return the elementwise sum of all inputs. If all are sparse, so is the result, with unique ascending rows.

    Tensor arrays are added item by item.
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
