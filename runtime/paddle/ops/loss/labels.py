# SPDX-License-Identifier: Apache-2.0
"""Class labels as the losses take them: (..., 1) whole numbers beside (..., classes) values."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.registry import Spec
from paddle.ops.base.shapes import same


def check(x: Spec, label: Spec, soft_label: bool) -> None:
    """Raise ShapeError unless the label fits the values: one class each, or a distribution if soft."""
    if soft_label:
        same(x.shape, label.shape, "values and soft labels")
        if label.dtype != x.dtype:
            raise ShapeError(f"soft labels must be {x.dtype} as the values are, got {label.dtype}")
        return
    if not label.shape or label.shape[-1] != 1 or not np.issubdtype(label.dtype, np.integer):
        raise ShapeError(f"expected a label (..., 1) of whole numbers, got {label.shape} {label.dtype}")
    same(x.shape[:-1], label.shape[:-1], "values and labels, without the last size,")


def check_rows(x: Array, label: Array) -> None:
    """Raise InputError unless values and labels of a batch have as many rows."""
    if x.shape[:-1] != label.shape[:-1]:
        raise InputError(
            f"expected a label for each row of X {x.shape}, got labels {label.shape}: feed as many of both"
        )


def picked(label: Array, classes: int, ignore_index: int) -> tuple[Array, Array, Array | None]:
    """Return index arrays (row, class) for each label, and which labels are ignored (None: none are).

    Ignored labels point at class 0.

    Raises:
        InputError: a label is outside of the classes and is not ignore_index.
    """
    xp = array_module(label)
    flat = label.reshape(-1)
    rows = xp.arange(len(flat))
    if not len(flat) or (
        int(flat.min()) >= 0 and int(flat.max()) < classes and not 0 <= ignore_index < classes
    ):
        return rows, flat, None
    ignored = flat == ignore_index
    flat = xp.where(ignored, 0, flat)
    bad = (flat < 0) | (flat >= classes)
    if bad.any():
        at = int(bad.argmax())
        raise InputError(f"label {int(flat[at])} at row {at} is not in [0, {classes}), the number of classes")
    return rows, flat, ignored
