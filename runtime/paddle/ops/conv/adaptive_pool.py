# SPDX-License-Identifier: Apache-2.0
"""Pooling of images (N, C, H, W) to a given number of cells, which lie evenly and may overlap."""

from __future__ import annotations

from collections.abc import Iterator

from paddle.backend import Array, array_module

Cell = tuple[slice, slice, slice, slice]


def pooled(x: Array, cells: tuple[int, ...], kind: str) -> Array:
    """Return (N, C, *cells): the greatest ("max") or the mean ("avg") of each cell."""
    out = array_module(x).empty((*x.shape[:2], *cells), x.dtype)
    for place, cell in _cells(x.shape, cells):
        part = x[cell]
        out[place] = part.max(axis=(2, 3)) if kind == "max" else part.mean(axis=(2, 3))
    return out


def taken_back(x: Array, out: Array, dout: Array, kind: str) -> Array:
    """Return the gradient of the images: to the first greatest of each cell, or to all of it in equal parts."""
    xp = array_module(x)
    dx = xp.zeros_like(x)
    rows, channels = xp.arange(len(x))[:, None], xp.arange(x.shape[1])[None, :]
    for place, cell in _cells(x.shape, out.shape[2:]):
        part, into = x[cell], dx[cell]
        if kind == "avg":
            into += (dout[place] / x.dtype.type(part.shape[2] * part.shape[3]))[:, :, None, None]
            continue
        best = (
            part.reshape(*part.shape[:2], -1).argmax(axis=2) if part.size else xp.zeros(part.shape[:2], int)
        )
        down, across = xp.divmod(best, part.shape[3])
        into[rows, channels, down, across] += dout[place]
    return dx


def _cells(images: tuple[int, ...], cells: tuple[int, ...]) -> Iterator[tuple[tuple[object, ...], Cell]]:
    whole = slice(None)
    for i in range(cells[0]):
        for j in range(cells[1]):
            down, across = _part(images[2], cells[0], i), _part(images[3], cells[1], j)
            yield (whole, whole, i, j), (whole, whole, down, across)


def _part(size: int, count: int, at: int) -> slice:
    return slice(at * size // count, -(-(at + 1) * size // count))
