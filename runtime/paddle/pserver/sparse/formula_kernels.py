# SPDX-License-Identifier: Apache-2.0
"""Compiled loops that change rows where they lie, by the formulas of the commonest update rules.

Rows are brought near a block before their turn, and read and written once. Every operation is float32 and rounded by
itself, in the order of the rule in `optim`: nothing is contracted or reordered, so both give the same bits.

A row is one stretch of floats at one address, so that a change touches as few cache lines as there can be:

    address  | w: width floats | state 1: width | state 2: width |       no states: SGD; one: AdaGrad; two: Adam
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.pserver.sparse.compiling import compiled, float32s, inner, prefetch, set_uint32, uint32_at
from paddle.pserver.sparse.row_kernels import draw, prefetch_row, row_address, tick_address

DESCENT, MOMENTUM, ADAGRAD, ADAGRAD_MOMENTUM, FLUID_ADAGRAD, ADAM = range(6)

_BLOCK = 8
_LINE = 64
_AGE = np.uint32((1 << 31) - 1)
_4 = np.uint64(4)
_1F, _0F = np.float32(1.0), np.float32(0.0)


@inner
def _descent(rows: Any, g: Any, factors: Any) -> None:
    # w −= ηg
    eta = factors[0]
    width = g.shape[1]
    for i in range(len(rows)):
        w = float32s(rows[i], width)
        for j in range(width):
            w[j] -= eta * g[i, j]


@inner
def _momentum(rows: Any, g: Any, factors: Any) -> None:
    # m = μm − ηg;  w += m
    eta, mu = factors[0], factors[1]
    width = g.shape[1]
    for i in range(len(rows)):
        w, m = float32s(rows[i], width), _state(rows[i], width, 1)
        for j in range(width):
            moved = m[j] * mu - eta * g[i, j]
            m[j] = moved
            w[j] += moved


@inner
def _adagrad(rows: Any, g: Any, factors: Any) -> None:
    # s += g²;  w −= η (1/√(s + ε)) g: the root's inverse is rounded before it is multiplied, as in the rule
    eta, epsilon = factors[0], factors[1]
    width = g.shape[1]
    for i in range(len(rows)):
        w, s = float32s(rows[i], width), _state(rows[i], width, 1)
        for j in range(width):
            s[j] += g[i, j] * g[i, j]
            w[j] -= eta * (_1F / np.sqrt(s[j] + epsilon)) * g[i, j]


@inner
def _adagrad_momentum(rows: Any, g: Any, factors: Any) -> None:
    # s += g²;  m = μm − η (1/√(s + ε)) g;  w += m
    eta, epsilon, mu = factors[0], factors[1], factors[2]
    width = g.shape[1]
    for i in range(len(rows)):
        w, s, m = float32s(rows[i], width), _state(rows[i], width, 1), _state(rows[i], width, 2)
        for j in range(width):
            s[j] += g[i, j] * g[i, j]
            moved = m[j] * mu - eta * (_1F / np.sqrt(s[j] + epsilon)) * g[i, j]
            m[j] = moved
            w[j] += moved


@inner
def _fluid_adagrad(rows: Any, g: Any, factors: Any) -> None:
    # s += g²;  w −= ηg/(√(s + s₀) + ε): states begin with 0 in memory, and what the rule begins with is added here
    eta, start, epsilon = factors[0], factors[1], factors[2]
    width = g.shape[1]
    for i in range(len(rows)):
        w, s = float32s(rows[i], width), _state(rows[i], width, 1)
        for j in range(width):
            s[j] += g[i, j] * g[i, j]
            w[j] -= eta * g[i, j] / (np.sqrt(s[j] + start) + epsilon)


@inner
def _adam(rows: Any, g: Any, factors: Any) -> None:
    # m = β₁m + (1 − β₁)g;  v = β₂v + (1 − β₂)g²;  w −= αm/(√v + ε): α has the correction by the batch in it, and
    # 1 − β comes rounded once from float64, since 1 − float32(β) is another number.
    alpha, epsilon = factors[0], factors[5]
    beta1, rest1, beta2, rest2 = factors[1], factors[2], factors[3], factors[4]
    width = g.shape[1]
    for i in range(len(rows)):
        w, m, v = float32s(rows[i], width), _state(rows[i], width, 1), _state(rows[i], width, 2)
        for j in range(width):
            m[j] = m[j] * beta1 + rest1 * g[i, j]
            v[j] = v[j] * beta2 + rest2 * (g[i, j] * g[i, j])
            w[j] -= alpha * m[j] / (np.sqrt(v[j]) + epsilon)


@inner
def _state(row: Any, width: Any, number: Any) -> Any:
    return float32s(row + _4 * np.uint64(width * number), width)


@inner
def _apply(rows: Any, g: Any, formula: Any) -> None:
    """Change rows at addresses (n,) uint64 by gradients (n, width). Each formula has a loop of its own over them.

    One loop over rows that chose the formula for each took twice as long.
    """
    kind, factors = formula.kind, formula.factors
    if kind == DESCENT:
        _descent(rows, g, factors)
    elif kind == MOMENTUM:
        _momentum(rows, g, factors)
    elif kind == ADAGRAD:
        _adagrad(rows, g, factors)
    elif kind == ADAGRAD_MOMENTUM:
        _adagrad_momentum(rows, g, factors)
    elif kind == FLUID_ADAGRAD:
        _fluid_adagrad(rows, g, factors)
    else:
        _adam(rows, g, factors)


@inner
def _add_up(base: Any, order: Any, begin: Any, end: Any, g: Any) -> None:
    # g = the sum of the gradients of one id. The first is copied, not added to zeros, and the others follow in the
    # order of the batch: so the plain form adds, and floats added in another order give other bits.
    width = len(g)
    values = float32s(base + _4 * np.uint64(width * order[begin]), width)
    for j in range(width):
        g[j] = values[j]
    for k in range(begin + 1, end):
        values = float32s(base + _4 * np.uint64(width * order[k]), width)
        for j in range(width):
            g[j] += values[j]


@inner
def _clip(g: Any, most: Any) -> None:
    for i in range(len(g)):
        for j in range(g.shape[1]):
            g[i, j] = min(max(g[i, j], -most), most)


@inner
def _decay(w: Any, l1: Any, l2: Any, batches: Any) -> None:
    # All decay that a row owes at once: it pays for the batches in which nobody came for it when somebody comes.
    # L1 moves each value towards 0, by no more than it has; L2 divides.
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
    where: Any,
    here: Any,
    numbers: Any,
    ids: Any,
    fresh: Any,
    drawing: Any,
    sums: Any,
    formula: Any,
    time: Any,
) -> None:
    """Take one step of rows (n,) with the sums of their gradients.

    Args:
        where: (slabs, bits, floats), see `row_kernels`.
        here: (k,) int64: positions of the rows that there are; the others are left out.
        numbers: (n,) uint32, none twice. ids: (n,) int64.
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
    g = np.empty((_BLOCK, width), np.float32)
    rows = np.empty(_BLOCK, np.uint64)
    batches = np.empty(_BLOCK, np.float32)
    # While a row is made ready, one two blocks behind it is fetched, a few lines at a time: more would have to wait.
    for start in range(-2 * _BLOCK, len(here), _BLOCK):
        count = min(_BLOCK, len(here) - start)
        for k in range(count):
            if start + k + 2 * _BLOCK < len(here):
                coming = here[start + k + 2 * _BLOCK]
                if not fresh[coming]:  # a fresh one is written without being read
                    prefetch_row(slabs, bits, floats, numbers[coming], floats)
                prefetch(tick_address(slabs, bits, floats, numbers[coming]))
                first = base + _4 * np.uint64(width * order[starts[coming]])
                for offset in range(0, 4 * width, _LINE):
                    prefetch(first + np.uint64(offset))
            if start < 0:
                continue
            i = here[start + k]
            rows[k] = row_address(slabs, bits, floats, numbers[i])
            last = tick_address(slabs, bits, floats, numbers[i])
            # 31 bits that wrap: the difference is right as long as no row is older than `ticks.MAX_AGE`.
            age = (tick - uint32_at(last)) & _AGE
            if fresh[i]:
                row = float32s(rows[k], floats)
                draw(key, kind, mean, spread, ids[i], row[:width])
                row[width:] = _0F
                age = np.uint32(1)
            batches[k] = min(np.float32(max(age, np.uint32(1))), caught_up)
            set_uint32(last, tick)  # without the top bit: from now on the row had a gradient
            _add_up(base, order, starts[i], starts[i + 1], g[k])
        if start < 0:
            continue
        if formula.clip != _0F:
            _clip(g[:count], formula.clip)
        _apply(rows[:count], g[:count], formula)
        if formula.l1 != _0F or formula.l2 != _0F:
            for k in range(count):
                _decay(float32s(rows[k], width), formula.l1, formula.l2, batches[k])
