# SPDX-License-Identifier: Apache-2.0
"""Compiled loops that change rows where they lie, by the formulas of the commonest update rules.

A row is brought near well before its turn, and read and written once. Every operation is float32 and rounded by
itself, in the order of the rule in `optim`: nothing is contracted or reordered, so both give the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.pserver.sparse.compiling import compiled, float32s, prefetch, uint32s
from paddle.pserver.sparse.index_kernels import ABSENT
from paddle.pserver.sparse.row_kernels import draw, prefetch_row, row_address, tick_address

DESCENT, MOMENTUM, ADAGRAD, ADAGRAD_MOMENTUM, FLUID_ADAGRAD, ADAM = range(6)

_AHEAD = 16
_LINE = 64
_AGE = np.uint32((1 << 31) - 1)
_4 = np.uint64(4)
_1F, _0F = np.float32(1.0), np.float32(0.0)


@compiled
def _descent(w: Any, g: Any, factors: Any) -> None:
    eta = factors[0]
    for j in range(len(g)):
        w[j] -= eta * g[j]


@compiled
def _momentum(w: Any, m: Any, g: Any, factors: Any) -> None:
    eta, mu = factors[0], factors[1]
    for j in range(len(g)):
        moved = m[j] * mu - eta * g[j]
        m[j] = moved
        w[j] += moved


@compiled
def _adagrad(w: Any, s: Any, g: Any, factors: Any) -> None:
    eta, epsilon = factors[0], factors[1]
    for j in range(len(g)):
        s[j] += g[j] * g[j]
        w[j] -= eta * (_1F / np.sqrt(s[j] + epsilon)) * g[j]


@compiled
def _adagrad_momentum(w: Any, s: Any, m: Any, g: Any, factors: Any) -> None:
    eta, epsilon, mu = factors[0], factors[1], factors[2]
    for j in range(len(g)):
        s[j] += g[j] * g[j]
        moved = m[j] * mu - eta * (_1F / np.sqrt(s[j] + epsilon)) * g[j]
        m[j] = moved
        w[j] += moved


@compiled
def _fluid_adagrad(w: Any, s: Any, g: Any, factors: Any) -> None:
    eta, start, epsilon = factors[0], factors[1], factors[2]
    for j in range(len(g)):
        s[j] += g[j] * g[j]
        w[j] -= eta * g[j] / (np.sqrt(s[j] + start) + epsilon)


@compiled
def _adam(w: Any, m: Any, v: Any, g: Any, factors: Any) -> None:
    alpha, beta1, rest1, beta2, rest2, epsilon = (
        factors[0],
        factors[1],
        factors[2],
        factors[3],
        factors[4],
        factors[5],
    )
    for j in range(len(g)):
        m[j] = m[j] * beta1 + rest1 * g[j]
        v[j] = v[j] * beta2 + rest2 * (g[j] * g[j])
        w[j] -= alpha * m[j] / (np.sqrt(v[j]) + epsilon)


@compiled
def _apply(row: Any, g: Any, formula: Any) -> None:
    width, kind, factors = len(g), formula.kind, formula.factors
    w, first, second = row[:width], row[width : 2 * width], row[2 * width :]
    if kind == DESCENT:
        _descent(w, g, factors)
    elif kind == MOMENTUM:
        _momentum(w, first, g, factors)
    elif kind == ADAGRAD:
        _adagrad(w, first, g, factors)
    elif kind == ADAGRAD_MOMENTUM:
        _adagrad_momentum(w, first, second, g, factors)
    elif kind == FLUID_ADAGRAD:
        _fluid_adagrad(w, first, g, factors)
    else:
        _adam(w, first, second, g, factors)


@compiled
def _add_up(base: Any, order: Any, begin: Any, end: Any, g: Any) -> None:
    width = len(g)
    values = float32s(base + _4 * np.uint64(width * order[begin]), width)
    for j in range(width):
        g[j] = values[j]
    for k in range(begin + 1, end):
        values = float32s(base + _4 * np.uint64(width * order[k]), width)
        for j in range(width):
            g[j] += values[j]


@compiled
def _clip(g: Any, most: Any) -> None:
    for j in range(len(g)):
        g[j] = min(max(g[j], -most), most)


@compiled
def _decay(w: Any, l1: Any, l2: Any, batches: Any) -> None:
    if l1 != _0F:
        threshold = l1 * batches
        for j in range(len(w)):
            left = np.abs(w[j]) - threshold
            w[j] = np.copysign(_0F if left < _0F else left, w[j])
    if l2 != _0F:
        factor = _1F / (_1F + l2 * batches)
        for j in range(len(w)):
            w[j] *= factor


@compiled
def change(
    where: Any, numbers: Any, ids: Any, fresh: Any, drawing: Any, sums: Any, formula: Any, time: Any
) -> None:
    """Take one step of rows (n,) with the sums of their gradients; ABSENT ones are left out.

    Args:
        where: (slabs, bits, floats), see `row_kernels`.
        numbers: (n,) uint32, none twice but ABSENT. ids: (n,) int64.
        fresh: (n,) bool: these rows hold nothing; they are drawn first, states 0.
        drawing: (key, kind, mean, spread), see `row_kernels.draw`.
        sums: (address, width, order, starts): gradients (m, width) float32 at an address; row i's are those
            at order[starts[i] : starts[i + 1]], added in that order.
        formula: `formulas.Formula`.
        time: (tick of this batch, batches since all rows were decayed).
    """
    slabs, bits, floats = where
    base, width, order, starts = sums
    tick, caught_up = time
    key, kind, mean, spread = drawing
    g = np.empty(width, np.float32)
    decays = formula.l1 != _0F or formula.l2 != _0F
    count = len(numbers)
    for i in range(-_AHEAD, count):
        coming = i + _AHEAD
        if coming < count and numbers[coming] != ABSENT:
            if not fresh[coming]:
                prefetch_row(slabs, bits, floats, numbers[coming], floats)
            prefetch(tick_address(slabs, bits, floats, numbers[coming]))
            at = base + _4 * np.uint64(width * order[starts[coming]])
            for offset in range(0, 4 * width, _LINE):
                prefetch(at + np.uint64(offset))
        if i < 0 or numbers[i] == ABSENT:
            continue
        row = float32s(row_address(slabs, bits, floats, numbers[i]), floats)
        last = uint32s(tick_address(slabs, bits, floats, numbers[i]), 1)
        if fresh[i]:
            draw(key, kind, mean, spread, ids[i], row[:width])
            row[width:] = _0F
        _add_up(base, order, starts[i], starts[i + 1], g)
        if formula.clip != _0F:
            _clip(g, formula.clip)
        _apply(row, g, formula)
        if decays:
            age = np.uint32(0) if fresh[i] else (tick - last[0]) & _AGE
            _decay(row[:width], formula.l1, formula.l2, min(np.float32(max(age, 1)), caught_up))
        last[0] = tick
