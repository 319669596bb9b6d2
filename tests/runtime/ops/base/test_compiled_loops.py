# SPDX-License-Identifier: Apache-2.0
"""Compiled loops agree with the plain forms that serve small arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.ops.base.kernels import adagrad, adagrad_rows, adam, add_segments, momentum
from paddle.ops.base.registry import lookup
from paddle.ops.base.selected_rows import SelectedRows, merge_rows
from paddle.ops.update.steps import take_step
from paddle.optim.rules.adagrad import FluidAdagrad
from paddle.optim.rules.adam import FluidAdam
from paddle.optim.rules.momentum import FluidMomentum
from tests.runtime.ops.run_op import run_op

_WIDE = (300, 256)  # large enough for compiled loops


def _drawn(*shape: int, seed: int = 3) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_adagrad_on_all_elements() -> None:
    w, g, s = _drawn(1000), _drawn(1000, seed=4), np.abs(_drawn(1000, seed=5))
    compiled, plain = (w.copy(), s.copy()), (w.copy(), s.copy())
    adagrad(compiled[0], g, compiled[1], np.float32(0.003), np.float32(1e-6))
    take_step(FluidAdagrad(1e-6, 0.0), plain[0], g, {"s": plain[1]}, 0.003)
    np.testing.assert_array_equal(compiled[0], plain[0])
    np.testing.assert_array_equal(compiled[1], plain[1])


@pytest.mark.parametrize("count", [0, 1, 7])
def test_adagrad_on_rows(count: int) -> None:
    w, s, g = _drawn(20, 5), np.abs(_drawn(20, 5, seed=5)), _drawn(count, 5, seed=6)
    rows = np.random.default_rng(7).permutation(20)[:count]
    after, state = w.copy(), s.copy()
    adagrad_rows(after, rows, g, state, np.float32(0.1), np.float32(1e-6))
    some, kept = w[rows], s[rows]
    take_step(FluidAdagrad(1e-6, 0.0), some, g, {"s": kept}, 0.1)
    w[rows], s[rows] = some, kept
    np.testing.assert_array_equal(after, w)
    np.testing.assert_array_equal(state, s)


def test_adam_on_all_elements() -> None:
    w, g, m, v = (_drawn(1000, seed=seed) for seed in range(4))
    v = np.abs(v)
    compiled, plain = [each.copy() for each in (w, m, v)], [each.copy() for each in (w, m, v)]
    betas, rests = (np.float32(0.9), np.float32(0.999)), (np.float32(1 - 0.9), np.float32(1 - 0.999))
    adam(compiled[0], g, compiled[1], compiled[2], np.float32(0.01), betas, rests, np.float32(1e-8))
    rule = FluidAdam(0.9, 0.999, 1e-8)
    take_step(rule, plain[0], g, {"m": plain[1], "v": plain[2]}, np.float32(0.01))
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_on_all_elements(nesterov: bool) -> None:
    w, g, v = (_drawn(1000, seed=seed) for seed in range(3))
    compiled, plain = [w.copy(), v.copy()], [w.copy(), v.copy()]
    momentum(compiled[0], g, compiled[1], np.float32(0.1), np.float32(0.9), nesterov)
    take_step(FluidMomentum(0.9, nesterov), plain[0], g, {"v": plain[1]}, 0.1)
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rule", ["adam", "momentum"])
def test_large_and_small_parameters_take_the_same_step(rule: str) -> None:
    grad, rate, steps = _drawn(*_WIDE, seed=8), np.array([0.1], "float32"), []
    for height in (_WIDE[0], 5):
        w, g = _drawn(*_WIDE)[:height].copy(), grad[:height].copy()
        if rule == "adam":
            powers = np.array([0.9], "float32"), np.array([0.999], "float32")
            inputs = {"Param": w, "Grad": g, "LearningRate": rate, "Moment1": w * 0, "Moment2": w * 0}
            after = run_op("adam", {**inputs, "Beta1Pow": powers[0], "Beta2Pow": powers[1]})
        else:
            inputs = {"Param": w, "Grad": g, "Velocity": w * 0, "LearningRate": rate}
            after = run_op("momentum", inputs, {"mu": 0.9})
        steps.append([each[:5] for each in after])
    for large, small in zip(*steps, strict=True):
        np.testing.assert_array_equal(large, small)


def test_sums_of_equal_rows() -> None:
    rows, values = np.random.default_rng(1).integers(0, 9, 40), _drawn(40, 3)
    merged, summed = merge_rows(rows, values)
    order = rows.argsort(kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(rows[order]) > 0])
    compiled = np.empty_like(summed)
    add_segments(values, order, starts, compiled)
    np.testing.assert_allclose(compiled, summed, rtol=1e-5, atol=1e-5)
    assert merged.tolist() == sorted(set(rows.tolist()))


@pytest.mark.parametrize("rows", [[-3, 5, 5, -3, 2], [1 << 61, 4, 1 << 61]])
def test_rows_that_no_key_has_room_for_are_merged_too(rows: list[int]) -> None:
    merged, summed = merge_rows(np.array(rows), np.ones((len(rows), 1), "float32"))
    assert merged.tolist() == sorted(set(rows))
    assert summed[:, 0].tolist() == [rows.count(row) for row in sorted(set(rows))]


def test_a_large_and_a_small_table_take_the_same_step() -> None:
    """The large one is updated by compiled loops, its first rows alone by the plain form."""
    table, grad, rate = _drawn(*_WIDE), _drawn(8, _WIDE[1], seed=8), np.array([0.1], "float32")
    rows = np.array([7, 0, 3, 3, 5, 1, 7, 7])
    steps = []
    for height in (_WIDE[0], 10):
        moment = np.zeros((height, _WIDE[1]), "float32")
        sparse = SelectedRows(rows, grad, height)
        after = lookup("adagrad").kernel(table[:height].copy(), sparse, moment, rate, epsilon=1e-6)
        steps.append([each[:10] for each in after])
    for large, small in zip(*steps, strict=True):
        np.testing.assert_array_equal(large, small)
