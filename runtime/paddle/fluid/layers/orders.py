# SPDX-License-Identifier: Apache-2.0
"""Sorting, running sums, ranking losses, smoothed labels, and random numbers for each row of a value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable
from paddle.ops.base.dtypes import VarType

__all__ = [
    "argsort",
    "bpr_loss",
    "cumsum",
    "gaussian_random_batch_size_like",
    "has_inf",
    "has_nan",
    "isfinite",
    "label_smooth",
    "margin_rank_loss",
    "reverse",
    "sampling_id",
    "shape",
    "uniform_random_batch_size_like",
]


def argsort(input: Variable, axis: int = -1, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the values in ascending order along an axis, and where each was."""
    helper = LayerHelper("argsort", name)
    out = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    places = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op("argsort", {"X": input}, {"Out": out, "Indices": places}, {"axis": axis})
    return out, places


def cumsum(x: Variable, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Variable:
    """Return running sums along an axis, without the value itself if exclusive, from the end if reverse."""
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    return LayerHelper("cumsum").apply("cumsum", {"X": x}, attrs, dtype=x.dtype)


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """Turn x round along one or several axes."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return LayerHelper("reverse").apply("reverse", {"X": x}, {"axis": axes}, dtype=x.dtype)


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Return max(0, -label (left - right) + margin)."""
    helper = LayerHelper("margin_rank_loss", name)
    inputs = {"Label": label, "X1": left, "X2": right}
    return helper.apply("margin_rank_loss", inputs, {"margin": margin}, dtype=left.dtype)


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Return the mean of -ln sigmoid(x[label] - x[j]) over all other classes j, (rows, 1)."""
    inputs = {"X": input, "Label": label}
    return LayerHelper("bpr_loss", name).apply("bpr_loss", inputs, out="Y", dtype=input.dtype)


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: npt.DTypeLike = "float32",
    name: str | None = None,
) -> Variable:
    """Return (1 - epsilon) label + epsilon prior_dist, or epsilon / classes without one."""
    inputs = {"X": label} if prior_dist is None else {"X": label, "PriorDist": prior_dist}
    return LayerHelper("label_smooth", name).apply("label_smooth", inputs, {"epsilon": epsilon}, dtype=dtype)


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: npt.DTypeLike = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Return numbers uniform in [min, max), one of whose sizes is one of the input's."""
    attrs = {"min": min, "max": max, "seed": seed, **_places(shape, dtype, input_dim_idx, output_dim_idx)}
    helper = LayerHelper("uniform_random_batch_size_like")
    return helper.apply(helper.layer_type, {"Input": input}, attrs, dtype=dtype, stop_gradient=True)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: npt.DTypeLike = "float32",
) -> Variable:
    """Return normal numbers, one of whose sizes is one of the input's."""
    attrs = {"mean": mean, "std": std, "seed": seed, **_places(shape, dtype, input_dim_idx, output_dim_idx)}
    helper = LayerHelper("gaussian_random_batch_size_like")
    return helper.apply(helper.layer_type, {"Input": input}, attrs, dtype=dtype, stop_gradient=True)


def sampling_id(
    x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: npt.DTypeLike = "int64"
) -> Variable:
    """Return for each row of chances a column drawn by them."""
    attrs = {"min": min, "max": max, "seed": seed}
    return LayerHelper("sampling_id").apply("sampling_id", {"X": x}, attrs, dtype="int64", stop_gradient=True)


def shape(input: Variable) -> Variable:
    """Return the sizes of a variable, int32."""
    return LayerHelper("shape").apply("shape", {"Input": input}, dtype="int32", stop_gradient=True)


def isfinite(x: Variable) -> Variable:
    """Return whether all values are finite, (1,) bool."""
    return LayerHelper("isfinite").apply("isfinite", {"X": x}, dtype="bool")


def has_inf(x: Variable) -> Variable:
    """Return whether any value is infinite, (1,) bool."""
    return LayerHelper("isinf").apply("isinf", {"X": x}, dtype="bool")


def has_nan(x: Variable) -> Variable:
    """Return whether any value is no number, (1,) bool."""
    return LayerHelper("isnan").apply("isnan", {"X": x}, dtype="bool")


def _places(
    shape: Sequence[int], dtype: npt.DTypeLike, input_dim_idx: int, output_dim_idx: int
) -> dict[str, object]:
    return {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
    }
