# SPDX-License-Identifier: Apache-2.0
"""Compiled pooling has the bits of its plain form: windows of all sizes, strides, padding, ties, NaN, infinities."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from paddle.kernels import library
from paddle.ops.conv import pool, pool_loops
from paddle.ops.conv.window import window_of

SIZES = [(1, 1), (7, 5), (12, 13), (9, 30)]
# kernel, strides, paddings
WINDOWS = [
    ((1, 1), (1, 1), (0, 0)),
    ((2, 2), (2, 2), (0, 0)),
    ((3, 3), (2, 2), (1, 1)),
    ((3, 2), (1, 1), (2, 1)),
    ((5, 5), (5, 4), (2, 3)),
    ((13, 13), (1, 1), (6, 6)),
    ((2, 7), (3, 1), (1, 3)),
    ((2, 2), (5, 4), (0, 0)),
    ((7, 5), (1, 1), (0, 0)),
]
CASES = [
    (size, how)
    for size, how in product(SIZES, WINDOWS)
    if all(side + 2 * pad >= kernel for side, kernel, pad in zip(size, how[0], how[2], strict=True))
]
pytestmark = pytest.mark.skipif(not library.level(), reason="no compiled kernels")


@pytest.fixture(params=library.levels(), autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_loops.KERNELS, "loaded", pool_loops.KERNELS.at_level(request.param))
    monkeypatch.setattr(pool_loops, "_PIECE", 64)  # several pieces, of several planes


def equal(ours: np.ndarray, plain: np.ndarray) -> None:
    np.testing.assert_array_equal(ours, plain)
    assert ours.dtype == plain.dtype == np.float32


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("size", "how"), CASES, ids=str)
def test_pooling_and_its_gradient_have_the_bits_of_the_plain_form(
    size: tuple[int, int], how: tuple[tuple[int, int], ...], ceil_mode: bool
) -> None:
    window = window_of(*how, (1, 1))
    places = window.places(size, ceil_mode)
    rng = np.random.default_rng(len(places) + size[1])
    x = rng.standard_normal((2, 3, *size)).astype("f")
    gradient = rng.standard_normal((2, 3, *places)).astype("f")
    for exclusive in (False, True):
        counts = pool._counts(x, window, places, exclusive)
        equal(pool_loops.means(x, window, places, counts), pool._total(x, window, places) / counts)
        equal(
            pool_loops.to_all(x.shape, gradient / counts, window),
            pool._to_all(x.shape, gradient / counts, window),
        )
    x[rng.random(x.shape) < 0.2] = 0.5  # ties
    x[0, 0, 0, 0], x[0, 1], x[1, 0, -1, -1] = np.nan, -np.inf, np.inf
    best = pool._maxima(x, window, places)
    equal(pool_loops.maxima(x, window, places), best)
    equal(pool_loops.to_maxima(x, best, gradient, window), pool._to_maxima(x, best, gradient, window))


def test_large_images_on_the_host_alone_are_served() -> None:
    large = np.zeros((1, 1, 64, 64), np.float32)
    assert pool_loops.are_served(large)
    for other in (large.astype(np.float64), large[..., :1], large[..., None], large[:0]):
        assert not pool_loops.are_served(other)
    assert pool_loops.are_served(np.asfortranarray(np.zeros((2, 3, 64, 64), np.float32)))
