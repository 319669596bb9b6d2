# SPDX-License-Identifier: Apache-2.0
"""Compiled steps of parameters and sums of rows give the bits of their plain forms, at every speed level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paddle.kernels import library
from paddle.ops.base import kernels
from paddle.ops.math.scale import add_scaled
from paddle.ops.update.steps import take_step
from paddle.optim.rules.adagrad import FluidAdagrad
from paddle.optim.rules.adam import FluidAdam
from paddle.optim.rules.momentum import FluidMomentum

SIZES = (0, 1, 3, 7, 8, 9, 31, 1000)
STRANGE = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38)
RULES: dict[str, tuple[Any, tuple[str, ...], tuple[Any, ...]]] = {
    "adagrad": (FluidAdagrad(epsilon=1e-6), ("s",), (1e-6,)),
    "adam": (
        FluidAdam(beta1=0.9, beta2=0.999, epsilon=1e-8),
        ("m", "v"),
        ((0.9, 0.999), (1 - 0.9, 1 - 0.999), 1e-8),
    ),
    "momentum": (FluidMomentum(momentum=0.9), ("v",), (0.9, False)),
    "nesterov": (FluidMomentum(momentum=0.9, nesterov=True), ("v",), (0.9, True)),
}
needs_library = pytest.mark.skipif(not library.level(), reason="no compiled kernels")


@pytest.fixture(params=library.levels())
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.KERNELS, "loaded", kernels.KERNELS.at_level(request.param))


def drawn(size: int, seed: int, odd_at: int = 0) -> Any:
    """Numbers of all sizes, some of them strange, in memory that begins anywhere."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(size + odd_at).astype("float32") * np.float32(10) ** rng.integers(
        -9, 9, size + odd_at
    )
    numbers[rng.integers(0, max(size, 1), 5 * (size > 8))] = rng.choice(STRANGE, 5 * (size > 8))
    return numbers.astype("float32")[odd_at:]


@needs_library
@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RULES)
def test_a_step_gives_the_same_bits(name: str, size: int) -> None:
    rule, keeps, numbers = RULES[name]
    w, g, state = drawn(size, 1, 1), drawn(size, 2, 3), {key: abs(drawn(size, 3, 1)) for key in keeps}
    after, kept = w.copy(), {key: each.copy() for key, each in state.items()}
    with np.errstate(all="ignore"):
        take_step(rule, after, g, kept, np.float32(0.01))
    getattr(kernels, "momentum" if name == "nesterov" else name)(w, g, *state.values(), 0.01, *numbers)
    for one, other in zip((w, *state.values()), (after, *kept.values()), strict=True):
        np.testing.assert_array_equal(one, other)


@needs_library
@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("count", [0, 1, 5, 19])
@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_rows_get_the_same_bits(name: str, count: int, width: int) -> None:
    rule, keeps, numbers = RULES[name]
    w, g = (drawn(20 * width, seed).reshape(20, width) for seed in (1, 3))
    state = {key: abs(drawn(20 * width, 2).reshape(20, width)) for key in keeps}
    g, rows = g[:count].copy(), np.random.default_rng(7).permutation(20)[:count]
    after, kept = w.copy(), {key: each.copy() for key, each in state.items()}
    some, own = w[rows], {key: each[rows] for key, each in state.items()}
    with np.errstate(all="ignore"):
        take_step(rule, some, g, own, np.float32(0.1))
    after[rows] = some
    for key, each in own.items():
        kept[key][rows] = each
    getattr(kernels, f"{name}_rows")(w, rows, g, *state.values(), 0.1, *numbers)
    for one, other in zip((w, *state.values()), (after, *kept.values()), strict=True):
        np.testing.assert_array_equal(one, other)


@needs_library
@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("size", SIZES)
def test_sums_get_the_same_bits(size: int) -> None:
    x, y = drawn(size, 1, 1), drawn(size, 2)
    with np.errstate(all="ignore"):
        wanted = y * np.float32(0.3) + x
    kernels.add_scaled(x, y, 0.3, x)
    np.testing.assert_array_equal(x, wanted)
    rows = np.random.default_rng(1).integers(0, 9, 40)
    values, order = drawn(40 * size, 3).reshape(40, size), rows.argsort(kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(rows[order]) > 0])
    out = np.empty((len(starts), size), "float32")
    kernels.add_segments(values, order, starts, out)
    with np.errstate(all="ignore"):
        for at, part in enumerate(np.split(order, starts[1:])):
            one_by_one = values[part[0]].copy()
            for each in part[1:]:
                one_by_one += values[each]
            np.testing.assert_array_equal(out[at], one_by_one)


@needs_library
def test_arrays_that_do_not_fit_are_refused_before_a_loop_sees_them() -> None:
    w, g = np.zeros(8, "float32"), np.zeros(7, "float32")
    with pytest.raises(ValueError, match="8 aligned, contiguous float32"):
        kernels.momentum(w, g, w.copy(), 0.1, 0.9, False)
    for rows in ([-1], [4]):
        with pytest.raises(IndexError, match="rows from 0 to 3"):
            kernels.adagrad_rows(w.reshape(4, 2), np.array(rows), g[:2], w.reshape(4, 2).copy(), 0.1, 1e-6)
        table, numbers = w.reshape(4, 2), RULES["adam"][2]
        with pytest.raises(IndexError, match="rows from 0 to 3"):
            kernels.adam_rows(table, np.array(rows), g[:2], table.copy(), table.copy(), 0.1, *numbers)
    assert not kernels.are_served(w.astype(float))
    assert not kernels.are_served(np.zeros((4, 4), "float32").T)
    assert not kernels.are_served(unaligned(16))


def unaligned(size: int) -> np.ndarray:
    """Return zeros that begin at an odd address, as behind a header in a file or a message."""
    return np.zeros(4 * size + 1, np.uint8)[1:].view(np.float32)


def test_an_unaligned_array_is_left_to_the_plain_form() -> None:
    x, y = unaligned(1 << 15), np.ones(1 << 15, np.float32)
    np.testing.assert_array_equal(add_scaled(x, y, scale=2.0), 2 * y)


@needs_library
def test_a_read_only_array_is_not_changed() -> None:
    one = np.ones((4, 2), "float32")
    fixed = np.frombuffer(one.tobytes(), np.float32).reshape(4, 2)
    steps: tuple[Callable[[Any, Any], None], ...] = (
        lambda w, s: kernels.adagrad(w, one, s, 0.1, 1e-6),
        lambda w, s: kernels.adagrad_rows(w, np.arange(4), one, s, 0.1, 1e-6),
        lambda w, s: kernels.adam(w, one, s, one.copy(), 0.1, (0.9, 0.9), (0.1, 0.1), 1e-6),
        lambda w, s: kernels.adam_rows(
            w, np.arange(4), one, s, one.copy(), 0.1, (0.9, 0.9), (0.1, 0.1), 1e-6
        ),
        lambda w, s: kernels.momentum(w, one, s, 0.1, 0.9, False),
        lambda w, s: kernels.add_scaled(one, s, 0.1, w),
    )
    for step in steps:
        with pytest.raises(ValueError, match="cannot change a read-only array"):
            step(fixed, one.copy())
    np.testing.assert_array_equal(fixed, one)
