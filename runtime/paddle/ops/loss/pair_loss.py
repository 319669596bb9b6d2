# SPDX-License-Identifier: Apache-2.0
"""Elementwise losses of two values: square error, huber, hinge, log, rank, kldiv, smooth_l1, sigmoid cross entropy.

kldiv_loss: the Kullback-Leibler divergence of a target from a distribution given by its logarithms, X.
sigmoid_cross_entropy_with_logits: -Label ln p - (1 - Label) ln(1 - p) with p = sigmoid(X), element by element.
smooth_l1_loss: quadratic below 1 / sigma², linear beyond it, summed to one cost per row.
modified_huber_loss: for two classes, quadratic near the margin and linear far outside it.
teacher_student_sigmoid_loss: sigmoid cross entropy with a click and, if given, a teacher's score. Label encodes both:
without a score, -2 means no click and -1 a click; with a score q in [0, 1], q means no click and 1 + q a click.
"""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.attributes import one_of
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import same


@operator("square_error_cost", "X Y -> Out", infer="X(...), Y(...) -> X(...)")
def square_error_cost(x: Array, y: Array) -> Array:
    """Return the squared error Out = (X - Y)² of each element."""
    same(x.shape, y.shape, "the two inputs")
    difference = x - y
    difference *= difference
    return difference


@gradient("square_error_cost", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def square_error_cost_grad(
    x: Array, y: Array, dout: Array, *, needs: frozenset[str]
) -> tuple[Array, Array | None]:
    """Return dX = 2 (X - Y) dOut, dY = -dX."""
    dx = x - y
    dx *= dout
    dx *= 2
    return dx, -dx if "Y@GRAD" in needs else None


@operator(
    "huber_loss", "X Y -> Residual~ Out", attrs={"delta": float}, infer="X(...), Y(...) -> X(...), X(...)"
)
def huber_loss(x: Array, y: Array, *, delta: float) -> tuple[Array, Array]:
    """Return Residual = Y - X and the Huber loss: Residual² / 2, or delta (|Residual| - delta / 2) beyond ±delta."""
    same(x.shape, y.shape, "the two inputs")
    xp = array_module(x)
    residual = y - x
    size = xp.abs(residual)
    return residual, xp.where(size <= delta, residual * residual / 2, delta * (size - delta / 2))


@gradient("huber_loss", "Residual Out@GRAD -> X@GRAD Y@GRAD")
def huber_loss_grad(residual: Array, dout: Array, *, delta: float) -> tuple[Array, Array]:
    """Return dX = -dY, and dY = dOut times Residual clipped to ±delta."""
    dy = residual.clip(-delta, delta) * dout
    return -dy, dy


@operator("hinge_loss", "Logits Labels -> Loss", infer="Logits(...), Labels(...) -> Logits(...)")
def hinge_loss(logits: Array, labels: Array) -> Array:
    """Return the hinge loss max(0, 1 - Logits (2 Labels - 1)), for labels 0 or 1."""
    same(logits.shape, labels.shape, "the two inputs")
    return array_module(logits).maximum(1 - logits * (2 * labels - 1), 0)


@gradient("hinge_loss", "Logits Labels Loss@GRAD -> Logits@GRAD")
def hinge_loss_grad(logits: Array, labels: Array, dloss: Array) -> Array:
    """Return dLogits = -(2 Labels - 1) dLoss inside the margin, otherwise 0."""
    side = 2 * labels - 1
    return -side * dloss * (logits * side < 1)


@operator(
    "log_loss",
    "Predicted Labels -> Loss",
    attrs={"epsilon": float},
    infer="Predicted(...), Labels(...) -> Predicted(...)",
)
def log_loss(predicted: Array, labels: Array, *, epsilon: float) -> Array:
    """Return the binary cross entropy -Labels ln(P + epsilon) - (1 - Labels) ln(1 - P + epsilon)."""
    same(predicted.shape, labels.shape, "the two inputs")
    xp = array_module(predicted)
    small = predicted.dtype.type(epsilon)
    return -labels * xp.log(predicted + small) - (1 - labels) * xp.log(1 - predicted + small)


@gradient("log_loss", "Predicted Labels Loss@GRAD -> Predicted@GRAD")
def log_loss_grad(predicted: Array, labels: Array, dloss: Array, *, epsilon: float) -> Array:
    """Return dP = ((1 - Labels) / (1 - P + epsilon) - Labels / (P + epsilon)) dLoss."""
    small = predicted.dtype.type(epsilon)
    return dloss * ((1 - labels) / (1 - predicted + small) - labels / (predicted + small))


@operator("rank_loss", "Label Left Right -> Out", infer="Label(...), Left(...), Right(...) -> Left(...)")
def rank_loss(label: Array, left: Array, right: Array) -> Array:
    """Return the RankNet loss Out = ln(1 + e^o) - o Label with o = Left - Right (Burges et al., 2005)."""
    same(same(left.shape, right.shape, "the two inputs"), label.shape, "the two inputs")
    margin = left - right
    return array_module(margin).logaddexp(margin, 0).astype(margin.dtype, copy=False) - margin * label


@gradient("rank_loss", "Label Left Right Out@GRAD -> Left@GRAD Right@GRAD")
def rank_loss_grad(label: Array, left: Array, right: Array, dout: Array) -> tuple[Array, Array]:
    """Return dLeft = (sigmoid(o) - Label) dOut, dRight = -dLeft."""
    dleft = dout * (sigmoid(left - right) - label)
    return dleft, -dleft


def _infer(x: Spec, target: Spec, *, reduction: str) -> Spec:
    shape = same(x.shape, target.shape, "X and Target")
    return x._replace(shape=shape) if reduction == "none" else Spec((1,), x.dtype)


@operator(
    "kldiv_loss",
    "X Target -> Loss",
    attrs={"reduction": one_of("mean", "sum", "batchmean", "none")},
    infer=_infer,
)
def kldiv_loss(x: Array, target: Array, *, reduction: str) -> Array:
    """Return Target (ln Target - X) of each element, or the mean, the sum, or the sum divided by the number of rows.

    The loss is 0 where Target is 0.
    """
    same(x.shape, target.shape, "the two inputs")
    xp = array_module(x)
    inside = target > 0
    loss = xp.where(inside, target * (xp.log(xp.where(inside, target, 1)) - x), 0).astype(x.dtype)
    if reduction == "none":
        return loss
    return loss.sum().reshape(1) / x.dtype.type(_count(x, reduction))


@gradient("kldiv_loss", "X Target Loss@GRAD -> X@GRAD")
def kldiv_loss_grad(x: Array, target: Array, dloss: Array, *, reduction: str) -> Array:
    """Return dX = -Target dLoss, divided by the number of elements for "mean", or of rows for "batchmean"."""
    return -target * (target > 0) * (dloss / x.dtype.type(_count(x, reduction)))


def _count(x: Array, reduction: str) -> int:
    return {"mean": x.size, "batchmean": len(x)}.get(reduction, 1) or 1


@operator("sigmoid_cross_entropy_with_logits", "X Label -> Out", infer="X(...), Label(...) -> X(...)")
def sigmoid_cross_entropy_with_logits(
    x: Array, label: Array, *, normalize: bool = False, ignore_index: int = -100
) -> Array:
    """Return the sigmoid cross entropy max(X, 0) - X Label + ln(1 + e^-|X|); 0 where Label is ignore_index."""
    same(x.shape, label.shape, "the two inputs")
    xp = array_module(x)
    cost = xp.maximum(x, 0) - x * label + xp.log1p(xp.exp(-xp.abs(x)))
    return _weighted(cost, label, normalize, ignore_index)


@gradient("sigmoid_cross_entropy_with_logits", "X Label Out@GRAD -> X@GRAD")
def sigmoid_cross_entropy_with_logits_grad(
    x: Array, label: Array, dout: Array, *, normalize: bool, ignore_index: int
) -> Array:
    """Return dX = (sigmoid(X) - Label) dOut."""
    return _weighted((sigmoid(x) - label) * dout, label, normalize, ignore_index)


def _weighted(value: Array, label: Array, normalize: bool, ignore_index: int) -> Array:
    counted = label != ignore_index
    value *= counted
    if normalize:
        value /= value.dtype.type(max(int(counted.sum()), 1))
    return value


@operator(
    "smooth_l1_loss",
    "X Y InsideWeight? OutsideWeight? -> Diff~ Out",
    infer="X(N, ...), Y(N, ...), InsideWeight(N, ...), OutsideWeight(N, ...) -> X(N, ...), X(N, 1)",
)
def smooth_l1_loss(
    x: Array, y: Array, inside: Array | None, outside: Array | None, *, sigma: float = 1.0
) -> tuple[Array, Array]:
    """Return Diff = InsideWeight (X - Y), and the smooth L1 loss f: Out (N, 1) = row sums of OutsideWeight f(Diff)."""
    same(x.shape, y.shape, "the two inputs")
    xp = array_module(x)
    difference = x - y if inside is None else (x - y) * inside
    size = xp.abs(difference)
    curve = sigma * sigma
    cost = xp.where(size < 1 / curve, difference * difference * (curve / 2), size - 0.5 / curve)
    if outside is not None:
        cost *= outside
    return difference, cost.reshape(len(cost), -1).sum(axis=1, keepdims=True)


@gradient("smooth_l1_loss", "InsideWeight? OutsideWeight? Diff Out@GRAD -> X@GRAD Y@GRAD")
def smooth_l1_loss_grad(
    inside: Array | None, outside: Array | None, difference: Array, dout: Array, *, sigma: float
) -> tuple[Array, Array]:
    """Return dX = OutsideWeight InsideWeight (sigma² Diff clipped to ±1) dOut, dY = -dX."""
    dx = (difference * difference.dtype.type(sigma * sigma)).clip(-1, 1)
    dx *= dout.reshape(-1, *(1,) * (dx.ndim - 1))
    for weight in (inside, outside):
        if weight is not None:
            dx *= weight
    return dx, -dx


@operator(
    "modified_huber_loss",
    "X Y -> IntermediateVal~ Out",
    infer="X(N, M), Y(N, M) -> X(N, M), X(N, M)",
    fresh=True,
)
def modified_huber_loss(x: Array, y: Array) -> tuple[Array, Array]:
    """Return z = (2 Y - 1) X for Y of 0 or 1, and the loss: -4 z for z < -1, (1 - z)² for z < 1, otherwise 0."""
    same(x.shape, y.shape, "X and Y")
    xp = array_module(x)
    z = ((2 * y - 1) * x).astype(x.dtype, copy=False)
    margin = xp.maximum(1 - z, 0)
    return z, xp.where(z < -1, -4 * z, margin * margin)


@gradient("modified_huber_loss", "Y IntermediateVal Out@GRAD -> X@GRAD", fresh=True)
def modified_huber_loss_grad(y: Array, z: Array, dout: Array) -> Array:
    """Return dX = (2 Y - 1) dOut, times -4 for z < -1, -2 (1 - z) for z < 1, otherwise 0."""
    xp = array_module(z)
    slope = xp.where(z < -1, -4, -2 * xp.maximum(1 - z, 0))
    return ((2 * y - 1) * slope * dout).astype(dout.dtype, copy=False)


_ATTRS = {"soft_max_up_bound": 15.0, "soft_max_lower_bound": -15.0}


@operator(
    "teacher_student_sigmoid_loss",
    "X Label -> Y",
    attrs=_ATTRS,
    infer="X(...), Label(...) -> X(...)",
    fresh=True,
)
def teacher_student_sigmoid_loss(x: Array, label: Array) -> Array:
    """Return Y = Σ (max(X, 0) - X z + ln(1 + e^-|X|)) over the targets z: the click and, if present, the score."""
    same(x.shape, label.shape, "X and Label")
    xp = array_module(x)
    entropy = xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))
    terms = 1 + (label >= 0)
    return (terms * entropy - x * _targets(label)).astype(x.dtype, copy=False)


@gradient("teacher_student_sigmoid_loss", "X Label Y@GRAD -> X@GRAD", fresh=True)
def teacher_student_sigmoid_loss_grad(
    x: Array, label: Array, dy: Array, *, soft_max_up_bound: float, soft_max_lower_bound: float
) -> Array:
    """Return dX = (n sigmoid(X) - Σ z) dY for n terms with targets z, and 0 where X reaches a bound."""
    inside = (x < soft_max_up_bound) & (x > soft_max_lower_bound)
    slope = (1 + (label >= 0)) * sigmoid(x) - _targets(label)
    return (slope * inside * dy).astype(x.dtype, copy=False)


def _targets(label: Array) -> Array:
    """Return the sum of click and score."""
    return array_module(label).where(label >= 0, label, (label >= -1).astype(label.dtype))
