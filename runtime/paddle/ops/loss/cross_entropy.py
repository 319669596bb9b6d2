# SPDX-License-Identifier: Apache-2.0
"""Cross entropy of class or soft labels.

cross_entropy is -ln p[label], or -Σ label ln p for soft labels; ln is clipped to ±1e20. cross_entropy2 takes class
labels and stores their probabilities for its gradient. softmax_with_cross_entropy includes the softmax, along any
axis; its gradient is Softmax - Label. Class labels are (..., 1) integers for (..., classes) values.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.activation.softmax import softmax_of
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.registry import NO_SLOTS, Spec, gradient, operator
from paddle.ops.base.segments import require_within
from paddle.ops.base.shapes import axis_of, same


def check(x: Spec, label: Spec, soft_label: bool) -> None:
    """Check that labels match the values: one class each, or a distribution if soft. Raises ShapeError."""
    if soft_label:
        same(x.shape, label.shape, "values and soft labels")
        if label.dtype != x.dtype:
            raise ShapeError(f"soft labels must be {x.dtype} like the values, got {label.dtype}")
        return
    if not label.shape or label.shape[-1] != 1 or not np.issubdtype(label.dtype, np.integer):
        is_wide = label.shape[-1:] == x.shape[-1:] and label.shape[-1:] != (1,)
        hint = "reshape them, as in labels.reshape(-1, 1)"
        if not np.issubdtype(label.dtype, np.integer):
            hint = "for one-hot labels, pass soft_label=True" if is_wide else "declare them as int64"
        raise ShapeError(
            f"expected integer labels of shape (..., 1), got {label.dtype} of shape {label.shape}: {hint}"
        )
    same(x.shape[:-1], label.shape[:-1], "values and labels, without the last size,")


def check_rows(x: Array, label: Array) -> None:
    """Check that the values and labels of a batch have the same number of rows. Raises InputError."""
    if x.shape[:-1] != label.shape[:-1]:
        raise InputError(
            f"expected one label per row of X {x.shape}, got labels {label.shape}: feed the "
            "same number of both"
        )


def picked(label: Array, classes: int, ignore_index: int) -> tuple[Array, Array, Array | None]:
    """Return the index arrays (row, class) of the labels, and a mask of the ignored labels, or None.

    Ignored labels point at class 0.

    Raises:
        RowError: a label is not a class and is not ignore_index.
    """
    xp = array_module(label)
    flat = label.reshape(-1)
    rows = xp.arange(len(flat))
    if not len(flat) or (
        int(flat.min()) >= 0 and int(flat.max()) < classes and not 0 <= ignore_index < classes
    ):
        return rows, flat, None
    ignored = flat == ignore_index
    require_within(label, classes, "Label", of=_CLASSES, fits=ignored)
    flat = xp.where(ignored, 0, flat)
    return rows, flat, ignored


_GREATEST = 1e20
_CLASSES = "the classes of the layer before: give that layer a larger size, or number labels from 0"


def _infer(x: Spec, label: Spec, *, soft_label: bool) -> Spec:
    check(x, label, soft_label)
    return x._replace(shape=(*x.shape[:-1], 1), lod_level=x.lod_level)


@operator("cross_entropy", "X Label -> Y", infer=_infer, fresh=True)
def cross_entropy(x: Array, label: Array, *, soft_label: bool = False, ignore_index: int = -100) -> Array:
    """Return the cross entropy of each row, (..., 1): -ln p[label], or -Σ label ln p for soft labels."""
    xp = array_module(x)
    check_rows(x, label)
    if soft_label:
        return (label * -_bounded_log(x)).sum(axis=-1, keepdims=True)
    rows, classes, ignored = picked(label, x.shape[-1], ignore_index)
    cost = -_bounded_log(x.reshape(-1, x.shape[-1])[rows, classes])
    if ignored is not None:
        cost = xp.where(ignored, cost.dtype.type(0), cost)
    return cost.reshape(*x.shape[:-1], 1)


@gradient("cross_entropy", "X Label Y@GRAD -> X@GRAD", fresh=True)
def cross_entropy_grad(x: Array, label: Array, dy: Array, *, soft_label: bool, ignore_index: int) -> Array:
    """Return dX = -dY / X at the label, 0 elsewhere; -dY label / X for soft labels."""
    xp = array_module(x)
    if soft_label:
        return -dy * label / x
    dx: Array = xp.zeros(x.shape, x.dtype)
    rows, classes, ignored = picked(label, x.shape[-1], ignore_index)
    flat_x, flat_dx = x.reshape(-1, x.shape[-1]), dx.reshape(-1, x.shape[-1])
    at_label = -dy.reshape(-1) / flat_x[rows, classes]
    flat_dx[rows, classes] = (
        at_label if ignored is None else xp.where(ignored, at_label.dtype.type(0), at_label)
    )
    return dx


def _bounded_log(p: Array) -> Array:
    logs: Array = array_module(p).log(p)
    return logs.clip(-_GREATEST, _GREATEST)


def _infer_kept(x: Spec, label: Spec) -> tuple[Spec, Spec, Spec]:
    check(x, label, soft_label=False)
    costs = x._replace(shape=(*x.shape[:-1], 1))
    return costs, Spec((0, *x.shape), x.dtype), costs._replace(lod_level=0)


@operator("cross_entropy2", "X Label -> Y XShape~ MatchX~", infer=_infer_kept)
def cross_entropy2(x: Array, label: Array, *, ignore_index: int = -100) -> tuple[Array, Array, Array]:
    """Return the cross entropy of each row (..., 1), an empty array with X's shape, and the labels' probabilities."""
    cost = cross_entropy(x, label, soft_label=False, ignore_index=ignore_index)
    rows, classes, _ = picked(label, x.shape[-1], ignore_index)
    matched = x.reshape(-1, x.shape[-1])[rows, classes].reshape(cost.shape)
    return cost, array_module(x).zeros((0, *x.shape), x.dtype), matched


@gradient("cross_entropy2", "Label MatchX XShape Y@GRAD -> X@GRAD")
def cross_entropy2_grad(label: Array, matched: Array, shape: Array, dy: Array, *, ignore_index: int) -> Array:
    """Return dX = -dY / X at the label, 0 elsewhere."""
    xp = array_module(dy)
    spread = xp.broadcast_to(matched, shape.shape[1:])
    return cross_entropy_grad(spread, label, dy, soft_label=False, ignore_index=ignore_index)


def _infer_softmax_with_cross_entropy(
    logits: Spec, label: Spec, *, soft_label: bool, axis: int
) -> tuple[Spec, Spec]:
    at = axis_of(axis, len(logits.shape))
    turned = [each._replace(shape=_axis_last(each.shape, at)) for each in (logits, label)]
    try:
        check(turned[0], turned[1], soft_label)
    except ShapeError as error:
        where = "" if at == len(logits.shape) - 1 else f"with axis {axis} as the last one: "
        raise ShapeError(f"{where}{error}") from error
    return logits, logits._replace(shape=(*logits.shape[:at], 1, *logits.shape[at + 1 :]))


def _axis_last(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :], *shape[axis : axis + 1])


@operator(
    "softmax_with_cross_entropy",
    "Logits Label -> Softmax~ Loss",
    attrs={"soft_label": False, "numeric_stable_mode": True, "ignore_index": -100, "axis": -1},
    infer=_infer_softmax_with_cross_entropy,
    fresh=True,
)
def softmax_with_cross_entropy(
    logits: Array,
    label: Array,
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
    spent: frozenset[str] = NO_SLOTS,
) -> tuple[Array, Array]:
    """Return softmax(Logits), and the cross entropy of each slice along the axis, whose size becomes 1."""
    if axis % logits.ndim != logits.ndim - 1:
        move = array_module(logits).moveaxis
        turned, costs = softmax_with_cross_entropy(
            move(logits, axis, -1).copy(),
            move(label, axis, -1),
            soft_label=soft_label,
            ignore_index=ignore_index,
            axis=-1,
        )
        return move(turned, -1, axis), move(costs, -1, axis)
    probabilities = softmax_of(logits, -1, logits if "Logits" in spent else None)
    return probabilities, cross_entropy(
        probabilities, label, soft_label=soft_label, ignore_index=ignore_index
    )


@gradient("softmax_with_cross_entropy", "Label Softmax Loss@GRAD -> Logits@GRAD", fresh=True)
def softmax_with_cross_entropy_grad(
    label: Array,
    probabilities: Array,
    dloss: Array,
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
    spent: frozenset[str] = NO_SLOTS,
) -> Array:
    """Return dLogits = (Softmax - Label) dLoss, with class labels as one-hot rows."""
    if axis % probabilities.ndim != probabilities.ndim - 1:
        move = array_module(probabilities).moveaxis
        turned = [move(each, axis, -1) for each in (label, probabilities, dloss)]
        dlogits = softmax_with_cross_entropy_grad(
            *turned, soft_label=soft_label, ignore_index=ignore_index, axis=-1
        )
        return move(dlogits, -1, axis)
    if soft_label:
        return (probabilities * label.sum(axis=-1, keepdims=True) - label) * dloss
    xp = array_module(probabilities)
    rows, classes, ignored = picked(label, probabilities.shape[-1], ignore_index)
    weight = dloss.reshape(-1, 1)
    if ignored is not None:
        weight = xp.where(ignored[:, None], weight.dtype.type(0), weight)
    flat = probabilities.reshape(-1, probabilities.shape[-1])
    dlogits = xp.multiply(flat, weight, out=flat if "Softmax" in spent else None)
    dlogits[rows, classes] -= weight[:, 0]
    return dlogits.reshape(probabilities.shape)
