# SPDX-License-Identifier: Apache-2.0
"""What the loops of growing tables are given and return: the structures of C, and those that the table sees."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.formulas import Formula

Numbers = npt.NDArray[np.uint32]
Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class RowsStruct(ctypes.Structure):
    """`struct rows` of `rows.h`."""

    _fields_ = (
        ("slabs", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("bits", "floats", "width", "part")),
        ("key", ctypes.c_uint64),
        *((name, ctypes.c_double) for name in ("mean", "spread")),
        ("kind", ctypes.c_int64),
    )


class FormulaStruct(ctypes.Structure):
    """`struct formula` of `table.c`."""

    _fields_ = (
        ("kind", ctypes.c_int64),
        ("factors", 6 * ctypes.c_float),
        *((name, ctypes.c_float) for name in ("clip", "l1", "l2")),
        ("score", ctypes.c_void_p),
    )
    kept: object = None  # what `score` points to


class ScoreStruct(ctypes.Structure):
    """`struct score` of `table.c`."""

    _fields_ = (("at", ctypes.c_int64), ("weights", ctypes.c_void_p), ("powers", 31 * ctypes.c_double))


class SumsStruct(ctypes.Structure):
    """`struct sums` of `rows.h`."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("values", "order", "starts"))


class BatchStruct(ctypes.Structure):
    """`struct batch` of `table.c`."""

    _fields_ = (
        ("ids", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("distinct", "order", "starts", "numbers", "fresh")),
        *((name, ctypes.c_void_p) for name in ("heads", "which")),
        ("size", ctypes.c_int64),
        ("directory", ctypes.c_void_p),
        ("bits", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("counts", "free")),
        *((name, ctypes.c_int64) for name in ("num_free", "used", "most", "ready")),
        *((name, ctypes.c_int64) for name in ("found", "made", "absent", "changed")),
    )


class ComingRows(NamedTuple):
    """New rows that a batch may have.

    Attributes:
        free: numbers of rows that were given back; the last ones are used first, and after them `used`, used + 1, ...
        most: so many at most.
        ready: rows whose memory is, or is being, made ready.
    """

    free: Numbers
    used: int
    most: int
    ready: int


class Scoring(NamedTuple):
    """How the scores of rows change in a batch.

    Attributes:
        at: which float of the part of the values the score is.
        weights: (m,) float32: what each gradient counts; None: each row with gradients counts 1.
        powers: (31,) what is left of a score after 2^k batches.
    """

    at: int
    weights: npt.NDArray[np.float32] | None
    powers: npt.NDArray[np.float64]


class CompiledStep(NamedTuple):
    """How rows change in a batch: by which formula; its tick; batches since all rows were decayed; their scores."""

    formula: Formula
    tick: int
    caught_up: int
    scoring: Scoring | None = None


class FoundRows(NamedTuple):
    """Distinct ids of a batch; arrays hold until the next batch.

    Attributes:
        ids, numbers, fresh: of each, its row's number, or ABSENT, and whether the row was made and holds nothing yet.
        order, starts: where each appears: see `index.grouped`.
        made: how many rows were made.
        is_changed: whether the step was taken already.
    """

    ids: Ids
    numbers: Numbers
    fresh: Flags
    order: Ids
    starts: Ids
    made: int = 0
    is_changed: bool = False
