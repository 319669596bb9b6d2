# SPDX-License-Identifier: Apache-2.0
"""Random numbers: uniform_random, gaussian_random, truncated_gaussian_random and sampling_id.

The results depend only on the seed, the name of the output, and the step.

uniform_random_batch_size_like and gaussian_random_batch_size_like draw as many rows as another value has; sampling_id
draws one sample per row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.registry import Spec, operator

_GAUSSIAN = {"shape": tuple, "mean": 0.0, "std": 1.0, "seed": 0, "dtype": VarType.FP32}
_SIZES = {"shape": tuple, "input_dim_idx": 0, "output_dim_idx": 0, "seed": 0, "dtype": VarType.FP32}
_INT64 = np.dtype("int64")


@operator(
    "uniform_random",
    "-> Out",
    attrs={"shape": tuple, "min": -1.0, "max": 1.0, "seed": 0, "dtype": VarType.FP32},
    infer="-> dtype(*shape)",
)
def uniform_random(
    *, shape: tuple[int, ...], min: float, max: float, dtype: VarType, rng: np.random.Generator, xp: Any
) -> Array:
    """Draw uniform random numbers in [min, max), in the given shape and dtype."""
    return xp.asarray(rng.uniform(min, max, shape).astype(dtype.numpy))


@operator("gaussian_random", "-> Out", attrs=_GAUSSIAN, infer="-> dtype(*shape)")
def gaussian_random(
    *, shape: tuple[int, ...], mean: float, std: float, dtype: VarType, rng: np.random.Generator, xp: Any
) -> Array:
    """Draw normal random numbers with the given mean and standard deviation, in the given shape and dtype."""
    return xp.asarray(rng.normal(mean, std, shape).astype(dtype.numpy))


@operator("truncated_gaussian_random", "-> Out", attrs=_GAUSSIAN, infer="-> dtype(*shape)")
def truncated_gaussian_random(
    *, shape: tuple[int, ...], mean: float, std: float, dtype: VarType, rng: np.random.Generator, xp: Any
) -> Array:
    """Draw normal random numbers, truncated at two standard deviations from the mean, in the given shape and dtype."""
    drawn = rng.standard_normal(prod(shape))
    far = np.flatnonzero(np.abs(drawn) > 2)
    while len(far):
        drawn[far] = rng.standard_normal(len(far))
        far = far[np.abs(drawn[far]) > 2]
    return xp.asarray((drawn * std + mean).astype(dtype.numpy).reshape(shape))


def _infer_random_like(
    like: Spec, *, shape: tuple[int, ...], dtype: VarType, input_dim_idx: int, output_dim_idx: int
) -> Spec:
    return Spec(_sizes(shape, like.shape[input_dim_idx], output_dim_idx), dtype.numpy)


@operator(
    "uniform_random_batch_size_like",
    "Input -> Out",
    attrs={**_SIZES, "min": -1.0, "max": 1.0},
    infer=_infer_random_like,
)
def uniform_random_batch_size_like(
    like: Array, *, min: float, max: float, attrs: Mapping[str, Any], rng: np.random.Generator
) -> Array:
    """Draw uniform random numbers in [min, max), in the given shape with one size from the input."""
    return _drawn_like(like, rng.uniform, min, max, attrs)


@operator(
    "gaussian_random_batch_size_like",
    "Input -> Out",
    attrs={**_SIZES, "mean": 0.0, "std": 1.0},
    infer=_infer_random_like,
)
def gaussian_random_batch_size_like(
    like: Array, *, mean: float, std: float, attrs: Mapping[str, Any], rng: np.random.Generator
) -> Array:
    """Draw normal random numbers, in the given shape with one size from the input."""
    return _drawn_like(like, rng.normal, mean, std, attrs)


def _drawn_like(
    like: Array, draw: Callable[..., Any], first: float, second: float, attrs: Mapping[str, Any]
) -> Array:
    sizes = _sizes(attrs["shape"], like.shape[attrs["input_dim_idx"]], attrs["output_dim_idx"])
    return from_host(draw(first, second, sizes).astype(attrs["dtype"].numpy), like)


@operator("sampling_id", "X -> Out", attrs={"min": 0.0, "max": 1.0, "seed": 0}, infer="X(N, ...) -> int64(N)")
def sampling_id(x: Array, *, min: float, max: float, rng: np.random.Generator) -> Array:
    """Sample one column per row of probabilities (rows, columns); return the column numbers, (rows,) int64."""
    drawn = from_host(rng.uniform(min, max, (len(x), 1)), x)
    places = (array_module(x).cumsum(x, axis=1) < drawn).sum(axis=1)
    return places.clip(0, x.shape[1] - 1).astype(_INT64)


def _sizes(shape: tuple[int, ...], batch: int, at: int) -> tuple[int, ...]:
    return (*shape[:at], batch, *shape[at + 1 :])
