# SPDX-License-Identifier: Apache-2.0
"""uniform_random, gaussian_random, truncated_gaussian_random: arrays of random numbers.

What comes out depends on the seed, the name of the output and the step, and on nothing else.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.registry import Spec, operator

_GAUSSIAN = {"shape": tuple, "mean": 0.0, "std": 1.0, "seed": 0, "dtype": VarType.FP32}


def _infer(*, shape: tuple[int, ...], dtype: VarType) -> Spec:
    return Spec(shape, dtype.numpy)


@operator(
    "uniform_random",
    "-> Out",
    attrs={"shape": tuple, "min": -1.0, "max": 1.0, "seed": 0, "dtype": VarType.FP32},
    infer=_infer,
)
def uniform_random(
    *, shape: tuple[int, ...], min: float, max: float, dtype: VarType, rng: np.random.Generator, xp: Any
) -> Array:
    """Uniform in [min, max)."""
    return xp.asarray(rng.uniform(min, max, shape).astype(dtype.numpy))


@operator("gaussian_random", "-> Out", attrs=_GAUSSIAN, infer=_infer)
def gaussian_random(
    *, shape: tuple[int, ...], mean: float, std: float, dtype: VarType, rng: np.random.Generator, xp: Any
) -> Array:
    """Normal with the given mean and deviation."""
    return xp.asarray(rng.normal(mean, std, shape).astype(dtype.numpy))


@operator("truncated_gaussian_random", "-> Out", attrs=_GAUSSIAN, infer=_infer)
def truncated_gaussian_random(
    *, shape: tuple[int, ...], mean: float, std: float, dtype: VarType, rng: np.random.Generator, xp: Any
) -> Array:
    """Normal, drawn again where it is more than two deviations off."""
    drawn = rng.standard_normal(prod(shape))
    far = np.flatnonzero(np.abs(drawn) > 2)
    while len(far):
        drawn[far] = rng.standard_normal(len(far))
        far = far[np.abs(drawn[far]) > 2]
    return xp.asarray((drawn * std + mean).astype(dtype.numpy).reshape(shape))
