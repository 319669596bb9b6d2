# SPDX-License-Identifier: Apache-2.0
"""Losses of two values of one shape: square_error_cost, huber_loss, hinge_loss, log_loss, rank_loss."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import same


def _infer_pair(x: Spec, y: Spec) -> Spec:
    return x._replace(shape=same(x.shape, y.shape, "the two inputs"))


def _infer_huber(x: Spec, y: Spec) -> tuple[Spec, Spec]:
    return _infer_pair(x, y), _infer_pair(x, y)


def _infer_rank(label: Spec, left: Spec, right: Spec) -> Spec:
    return _infer_pair(_infer_pair(left, right), label)


@operator("square_error_cost", "X Y -> Out", infer=_infer_pair)
def square_error_cost(x: Array, y: Array) -> Array:
    """Out = (X - Y)², element by element."""
    difference = x - y
    difference *= difference
    return difference


@gradient("square_error_cost", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def square_error_cost_grad(
    x: Array, y: Array, dout: Array, *, needs: frozenset[str]
) -> tuple[Array, Array | None]:
    """dX = 2 (X - Y) dOut, dY = -dX."""
    dx = x - y
    dx *= dout
    dx *= 2
    return dx, -dx if "Y@GRAD" in needs else None


@operator("huber_loss", "X Y -> Residual~ Out", attrs={"delta": float}, infer=_infer_huber)
def huber_loss(x: Array, y: Array, *, delta: float) -> tuple[Array, Array]:
    """Residual = Y - X; Out = Residual² / 2, or delta (|Residual| - delta / 2) beyond delta."""
    xp = array_module(x)
    residual = y - x
    size = xp.abs(residual)
    return residual, xp.where(size <= delta, residual * residual / 2, delta * (size - delta / 2))


@gradient("huber_loss", "Residual Out@GRAD -> X@GRAD Y@GRAD")
def huber_loss_grad(residual: Array, dout: Array, *, delta: float) -> tuple[Array, Array]:
    """dY = Residual kept within ±delta times dOut, dX = -dY."""
    dy = residual.clip(-delta, delta) * dout
    return -dy, dy


@operator("hinge_loss", "Logits Labels -> Loss", infer=_infer_pair)
def hinge_loss(logits: Array, labels: Array) -> Array:
    """Loss = max(0, 1 - Logits (2 Labels - 1))."""
    return array_module(logits).maximum(1 - logits * (2 * labels - 1), 0)


@gradient("hinge_loss", "Logits Labels Loss@GRAD -> Logits@GRAD")
def hinge_loss_grad(logits: Array, labels: Array, dloss: Array) -> Array:
    """dLogits = -(2 Labels - 1) dLoss inside the margin."""
    side = 2 * labels - 1
    return -side * dloss * (logits * side < 1)


@operator("log_loss", "Predicted Labels -> Loss", attrs={"epsilon": float}, infer=_infer_pair)
def log_loss(predicted: Array, labels: Array, *, epsilon: float) -> Array:
    """Loss = -Labels ln(P + epsilon) - (1 - Labels) ln(1 - P + epsilon)."""
    xp = array_module(predicted)
    small = predicted.dtype.type(epsilon)
    return -labels * xp.log(predicted + small) - (1 - labels) * xp.log(1 - predicted + small)


@gradient("log_loss", "Predicted Labels Loss@GRAD -> Predicted@GRAD")
def log_loss_grad(predicted: Array, labels: Array, dloss: Array, *, epsilon: float) -> Array:
    """dP = ((1 - Labels) / (1 - P + epsilon) - Labels / (P + epsilon)) dLoss."""
    small = predicted.dtype.type(epsilon)
    return dloss * ((1 - labels) / (1 - predicted + small) - labels / (predicted + small))


@operator("rank_loss", "Label Left Right -> Out", infer=_infer_rank)
def rank_loss(label: Array, left: Array, right: Array) -> Array:
    """Out = ln(1 + e^o) - o Label with o = Left - Right."""
    margin = left - right
    return array_module(margin).logaddexp(margin, 0).astype(margin.dtype, copy=False) - margin * label


@gradient("rank_loss", "Label Left Right Out@GRAD -> Left@GRAD Right@GRAD")
def rank_loss_grad(label: Array, left: Array, right: Array, dout: Array) -> tuple[Array, Array]:
    """dLeft = (sigmoid(o) - Label) dOut, dRight = -dLeft."""
    dleft = dout * (sigmoid(left - right) - label)
    return dleft, -dleft
