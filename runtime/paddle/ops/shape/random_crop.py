# SPDX-License-Identifier: Apache-2.0
"""random_crop: crops each sample at a random position."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, operator

_INT64 = np.dtype("int64")
_BELOW = 2**31 - 1


def _infer(x: Spec, seed: Spec | None, *, shape: tuple[int, ...]) -> tuple[Spec, Spec]:
    around = x.shape[len(x.shape) - len(shape) :]
    if len(shape) > len(x.shape) or any(
        0 <= size < wanted for size, wanted in zip(around, shape, strict=True)
    ):
        raise ShapeError(f"expected a shape that fits into X {x.shape}, got {shape}")
    return x._replace(shape=(*x.shape[: len(x.shape) - len(shape)], *shape)), Spec((1,), _INT64)


@operator(
    "random_crop",
    "X Seed? -> Out SeedOut~",
    attrs={"shape": tuple, "startup_seed": 0},
    infer=_infer,
    shares_lod=False,
)
def random_crop(
    x: Array, seed: Array | None, *, shape: tuple[int, ...], startup_seed: int, runs: Iterator[int]
) -> tuple[Array, Array]:
    """Return crops (..., *shape) of X (..., *larger), each at its own position, and the next seed (1,) int64.

    Positions are drawn with Seed (1,) or, without Seed, with startup_seed and the number of the run.
    """
    numbers = (startup_seed, next(runs)) if seed is None else (int(to_host(seed).reshape(-1)[0]),)
    drawn = np.random.default_rng([number % _BELOW for number in numbers])
    leading = x.ndim - len(shape)
    samples = x.reshape(prod(x.shape[:leading]), *x.shape[leading:])
    room = [size - wanted + 1 for size, wanted in zip(x.shape[leading:], shape, strict=True)]
    firsts = drawn.integers(0, room, (len(samples), len(shape)))
    index = [np.arange(len(samples)).reshape(-1, *(1,) * len(shape))]
    for axis, wanted in enumerate(shape):
        places = firsts[:, axis, None] + np.arange(wanted)
        index.append(places.reshape(-1, *(wanted if at == axis else 1 for at in range(len(shape)))))
    out = samples[tuple(from_host(each, x) for each in index)].reshape(*x.shape[:leading], *shape)
    return out, from_host(drawn.integers(1, _BELOW, 1, _INT64), x)
