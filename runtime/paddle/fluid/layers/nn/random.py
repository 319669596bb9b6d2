# SPDX-License-Identifier: Apache-2.0
"""Random numbers: normal ones, ones for each row of a value, columns drawn by chances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable
from paddle.ops.base.dtypes import VarType

__all__ = [
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "sampling_id",
    "uniform_random_batch_size_like",
]


def gaussian_random(
    shape: Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: npt.DTypeLike = "float32",
) -> Variable:
    """Return normal numbers, others in each step."""
    attrs = {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "mean": float(mean),
        "std": float(std),
        "seed": seed,
    }
    return LayerHelper("gaussian_random").apply("gaussian_random", {}, attrs, dtype=dtype)


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


def _places(
    shape: Sequence[int], dtype: npt.DTypeLike, input_dim_idx: int, output_dim_idx: int
) -> dict[str, object]:
    return {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
    }
