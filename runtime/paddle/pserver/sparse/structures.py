# SPDX-License-Identifier: Apache-2.0
"""The C structures that the kernels of growing tables read and write, and their Python counterparts."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.formulas import Formula
from paddle_node.contract.classes import NamedTuple

Numbers = npt.NDArray[np.uint32]
Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class RowsStruct(ctypes.Structure):
    """The ctypes form of `struct rows` in `rows.h`: the layout of slabs and initial values."""

    _fields_ = (
        ("slabs", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("bits", "floats", "width", "part")),
        ("key", ctypes.c_uint64),
        *((name, ctypes.c_double) for name in ("mean", "spread")),
        *((name, ctypes.c_int64) for name in ("kind", "cells", "is_half")),
        ("largest", ctypes.c_uint32),
    )


class FormulaStruct(ctypes.Structure):
    """The ctypes form of `struct formula` in `table.c`: the formula and factors of an update rule."""

    _fields_ = (
        ("kind", ctypes.c_int64),
        ("factors", 6 * ctypes.c_float),
        *((name, ctypes.c_float) for name in ("clip", "l1", "l2")),
        ("score", ctypes.c_void_p),
    )
    kept: object = None  # the target of the pointer `score`


class ScoreStruct(ctypes.Structure):
    """The ctypes form of `struct score` in `table.c`: the position and decay of a row's score."""

    _fields_ = (("at", ctypes.c_int64), ("weights", ctypes.c_void_p), ("powers", 31 * ctypes.c_double))


class SumsStruct(ctypes.Structure):
    """The ctypes form of `struct sums` in `rows.h`: the addresses of gradients grouped by id."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("values", "order", "starts"))


class BatchStruct(ctypes.Structure):
    """The ctypes form of `struct batch` in `table.c`: the inputs and results of applying one batch."""

    _fields_ = (
        ("ids", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("distinct", "order", "starts", "numbers", "fresh")),
        *((name, ctypes.c_void_p) for name in ("heads", "which")),
        ("size", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("index", "free")),
        *((name, ctypes.c_int64) for name in ("num_free", "used", "most", "ready")),
        *((name, ctypes.c_int64) for name in ("found", "made", "absent", "changed")),
    )


class ComingRows(NamedTuple):
    """The row numbers from which a batch takes its new rows.

    Attributes:
        free: freed row numbers, of which the last is used first; when none is left, new rows get `used`, used + 1, ...
        most: maximum number of new rows.
        ready: rows whose memory is prepared, or is being prepared.
    """

    free: Numbers
    used: int
    most: int
    ready: int


class Scoring(NamedTuple):
    """The update of row scores in one batch: decay, then addition of the gradients' weights.

    Attributes:
        at: position of the score among the floats of the values part.
        weights: (m,) float32: weight of each gradient; None means each row with gradients counts 1.
        powers: (31,) float64: element k is the decay factor for 2^k batches.
    """

    at: int
    weights: npt.NDArray[np.float32] | None
    powers: npt.NDArray[np.float64]


class CompiledStep(NamedTuple):
    """The arguments of a compiled step: the formula, the tick, the batches since all rows were decayed, the scores."""

    formula: Formula
    tick: int
    caught_up: int
    scoring: Scoring | None = None


class FoundRows(NamedTuple):
    """The rows of a batch's distinct ids; its arrays are valid until the next batch.

    Attributes:
        ids, numbers, fresh: each id, its row's number or ABSENT, and whether the row is new and not initialized.
        order, starts: the occurrences of each id: see `index.grouped`.
        made: number of rows created.
        is_changed: whether the step was already taken.
    """

    ids: Ids
    numbers: Numbers
    fresh: Flags
    order: Ids
    starts: Ids
    made: int = 0
    is_changed: bool = False
