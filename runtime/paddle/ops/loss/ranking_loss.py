# SPDX-License-Identifier: Apache-2.0
"""Ranking losses margin_rank_loss, bpr_loss and lambda_rank; also squared_l2_distance and label_smooth.

lambda_rank computes the NDCG of lists of documents ordered by score; its gradient is LambdaRank's (Burges et al.,
2006).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray, plain, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree, same
from paddle.ops.loss.cross_entropy import check, check_rows, picked


@operator(
    "margin_rank_loss",
    "Label X1 X2 -> Out Activated~",
    infer="Label(...), X1(...), X2(...) -> X1(...), X1(...)",
)
def margin_rank_loss(label: Array, x1: Array, x2: Array, *, margin: float = 0.0) -> tuple[Array, Array]:
    """Return the margin ranking loss max(0, -Label (X1 - X2) + margin), and Activated, which is 1 where it is not 0."""
    same(same(x1.shape, x2.shape, "X1 and X2"), label.shape, "the scores and Label")
    out = array_module(x1).maximum(-label * (x1 - x2) + x1.dtype.type(margin), 0)
    return out, (out > 0).astype(x1.dtype)


@gradient("margin_rank_loss", "Label Activated Out@GRAD -> X1@GRAD X2@GRAD")
def margin_rank_loss_grad(label: Array, activated: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX1 = -Label dOut where Activated (otherwise 0), and dX2 = -dX1."""
    dx1 = -label * dout * activated
    return dx1, -dx1


def _infer_bpr(x: Spec, label: Spec) -> Spec:
    check(x, label, soft_label=False)
    return x._replace(shape=(*x.shape[:-1], 1))


@operator("bpr_loss", "X Label -> Y", infer=_infer_bpr)
def bpr_loss(x: Array, label: Array) -> Array:
    """Return the Bayesian personalized ranking loss, one per row (Rendle et al., 2009).

    It is the mean of -ln sigmoid(X[label] - X[j]) over all other classes j.
    """
    check_rows(x, label)
    xp, rows = array_module(x), x.reshape(-1, x.shape[-1])
    at, chosen, _ = picked(label, rows.shape[1], -100)
    costs = xp.logaddexp(rows - rows[at, chosen][:, None], 0)
    costs[at, chosen] = 0
    total = costs.sum(axis=1, keepdims=True) / (rows.shape[1] - 1)
    return total.astype(x.dtype, copy=False).reshape(*x.shape[:-1], 1)


@gradient("bpr_loss", "X Label Y@GRAD -> X@GRAD")
def bpr_loss_grad(x: Array, label: Array, dy: Array) -> Array:
    """Return dX[j] = sigmoid(X[j] - X[label]) dY / (classes - 1); at the label, minus the sum of these."""
    rows = x.reshape(-1, x.shape[-1])
    at, chosen, _ = picked(label, rows.shape[1], -100)
    dx = sigmoid(rows - rows[at, chosen][:, None])
    dx[at, chosen] = 0
    dx[at, chosen] = -dx.sum(axis=1)
    dx *= dy.reshape(-1, 1) / (rows.shape[1] - 1)
    return dx.reshape(x.shape)


def _infer_distance(x: Spec, y: Spec) -> tuple[Spec, Spec]:
    same(x.shape[1:], y.shape[1:], "X and Y, except for the rows,")
    if y.shape[0] != 1 and not agree(x.shape[0], y.shape[0]):
        raise ShapeError(f"Y must have one row or as many rows as X, got {x.shape} and {y.shape}")
    return x, x._replace(shape=(x.shape[0], 1))


@operator("squared_l2_distance", "X Y -> sub_result~ Out", infer=_infer_distance)
def squared_l2_distance(x: Array, y: Array) -> tuple[Array, Array]:
    """Return X - Y, and the sum of (X - Y)² over each row (rows, 1); Y may have a single row."""
    difference = x - y
    return difference, (difference * difference).sum(axis=tuple(range(1, x.ndim)))[:, None]


@gradient("squared_l2_distance", "X Y sub_result Out@GRAD -> X@GRAD Y@GRAD")
def squared_l2_distance_grad(x: Array, y: Array, difference: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX = 2 (X - Y) dOut, dY = -dX, summed over rows if Y has a single row."""
    dx = 2 * difference * dout.reshape(-1, *(1,) * (x.ndim - 1))
    return dx, -dx if len(y) == len(x) else -dx.sum(axis=0, keepdims=True)


@operator("label_smooth", "X PriorDist? -> Out", infer="X")
def label_smooth(x: Array, prior: Array | None, *, epsilon: float = 0.0) -> Array:
    """Return smoothed labels (1 - epsilon) X + epsilon PriorDist; the default PriorDist is uniform, 1 / classes."""
    share = 1 / x.shape[-1] if prior is None else prior
    return ((1 - epsilon) * x + epsilon * share).astype(x.dtype, copy=False)


@gradient("label_smooth", "Out@GRAD -> X@GRAD")
def label_smooth_grad(dout: Array, *, epsilon: float) -> Array:
    """Return dX = (1 - epsilon) dOut."""
    return dout * dout.dtype.type(1 - epsilon)


@operator(
    "lambda_rank", "X+ Label+ -> Out+", attrs={"top": 5, "compared": -1}, infer="X(...), Label(...) -> X"
)
def lambda_rank(x: Any, label: Any, *, top: int) -> LoDArray:
    """Return each list's NDCG over the `top` documents as ordered by X, repeated for every document.

    A document with relevance r at position p (from 0) gains (2^r - 1) / ln(p + 2). NDCG is the sum of the gains,
    divided by the best possible sum.
    """
    out = np.zeros(x.shape, x.dtype)
    for rows, score, relevance in _lists(x, label):
        best = _gain(np.sort(relevance)[::-1], top)
        found = _gain(relevance[np.argsort(-score, kind="stable")], top)
        out[rows] = found / best if best else 0.0
    return LoDArray(from_host(out, x.data), x.lod)


@gradient("lambda_rank", "X+ Label+ Out@GRAD -> X@GRAD")
def lambda_rank_grad(x: Any, label: Any, dout: Array, *, top: int, compared: int) -> Array:
    """Return dX: for each pair of documents, the NDCG gain of swapping them, scaled down by their difference in score.

    dX is scaled by dOut. It is the gradient of a cost that is never computed, not of the NDCG.
    """
    dx = np.zeros(x.shape, np.float64)
    for rows, score, relevance in _lists(x, label):
        best = _gain(np.sort(relevance)[::-1], top)
        if not best:
            continue
        order = np.argsort(-relevance, kind="stable")
        sorted_ = len(order) if compared == -1 else min(compared, len(order))
        worth, places = 2.0 ** relevance[order], 1 / np.log(np.arange(len(order)) + 2.0)
        places[sorted_:] = 0  # only the first ones have a position
        change = np.abs((worth[:, None] - worth) * (places[:, None] - places))
        above = np.triu(np.ones_like(change), 1)
        above[sorted_:] = 0
        apart = score[order][:, None] - score[order]
        pairs = above * change / (1 + np.exp(apart)) / best
        dx[rows][order, 0] += pairs.sum(axis=0) - pairs.sum(axis=1)
    return from_host(dx.astype(x.dtype), x.data) * dout


def _lists(x: Any, label: Any) -> Iterator[tuple[slice, Array, Array]]:
    """Return the rows of each list, their scores and relevances."""
    scores, offsets = sequences(x, "X")
    known = to_host(scores).astype(np.float64).ravel(), to_host(plain(label)).astype(np.float64).ravel()
    for rows in map(slice, offsets[:-1].tolist(), offsets[1:].tolist()):
        yield rows, known[0][rows], known[1][rows]


def _gain(relevance: Array, top: int) -> float:
    first = relevance[:top]
    return float(((2.0**first - 1) / np.log(np.arange(len(first)) + 2.0)).sum())
