# SPDX-License-Identifier: Apache-2.0
"""How Y spreads over X: Y's sizes, without trailing ones, equal a run of X's sizes that begins at `axis`.

axis -1 aligns the right ends. X is never broadcast.
"""

from __future__ import annotations

from math import prod

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.shapes import agree


def check_ranks(x: tuple[int, ...], y: tuple[int, ...], axis: int) -> None:
    """Raise ShapeError unless Y's rank can be spread over X's; declared sizes may be placeholders."""
    if not all(map(agree, x, y)) or len(x) != len(y):
        start, run = _place(x, y, axis)
        if start < 0 or start + len(run) > len(x):
            raise ShapeError(f"Y {y} does not fit X {x} at axis {axis}: too many dimensions")


def check(x: tuple[int, ...], y: tuple[int, ...], axis: int) -> None:
    """Raise ShapeError unless Y can be spread over X."""
    start, run = _place(x, y, axis)
    if start < 0 or start + len(run) > len(x) or not all(map(agree, x[start : start + len(run)], run)):
        raise ShapeError(f"Y {y} does not fit X {x} at axis {axis}: its sizes must be a run of those of X")


def aligned(x: Array, y: Array, axis: int) -> Array:
    """Return a view of Y that numpy broadcasts to X.

    Raises:
        ShapeError: the shapes do not fit.
    """
    if x.shape == y.shape:
        return y
    check(x.shape, y.shape, axis)
    start, run = _place(x.shape, y.shape, axis)
    return y.reshape(run + (1,) * (len(x.shape) - start - len(run)))


def summed_like(dout: Array, y: Array, axis: int) -> Array:
    """Return the gradient of Y: dout (X's shape) added up over the sizes that Y was spread over."""
    if dout.shape == y.shape:
        return dout
    start, run = _place(dout.shape, y.shape, axis)
    before = prod(dout.shape[:start])
    after = prod(dout.shape[start + len(run) :])
    total = dout
    if after != 1:
        total = total.reshape(before * prod(run), after).sum(axis=1)
    if before != 1:
        total = total.reshape(before, prod(run)).sum(axis=0)
    return total.reshape(y.shape)


def _place(x: tuple[int, ...], y: tuple[int, ...], axis: int) -> tuple[int, tuple[int, ...]]:
    """Return (where the run begins in X, Y's sizes without trailing ones)."""
    start = len(x) - len(y) if axis == -1 else axis
    run = y
    while run and run[-1] == 1 and not (start + len(run) <= len(x) and x[start + len(run) - 1] == 1):
        run = run[:-1]
    return start, run
