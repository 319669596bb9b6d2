# SPDX-License-Identifier: Apache-2.0
"""nce, noise-contrastive estimation (Gutmann and Hyvärinen, 2010): the cost of true classes against sampled ones."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.entries import require_within
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import scatter_sum, table_gradient
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.base.shapes import agree

_ATTRS = {
    "num_total_classes": int,
    "num_neg_samples": 10,
    "sampler": 0,
    "seed": 0,
    "is_sparse": False,
    "is_test": False,
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": (),
    "epmap": (),
    "table_names": (),
    "custom_neg_classes": (),
}
_UNIFORM, _LOG_UNIFORM, _CUSTOM = 0, 1, 2
_INT64 = np.dtype("int64")


def _infer(
    x: Spec,
    label: Spec,
    weight: Spec,
    bias: Spec | None,
    sample_weight: Spec | None,
    probs: Spec | None,
    alias: Spec | None,
    alias_probs: Spec | None,
    label_weight: Spec | None,
    *,
    num_total_classes: int,
    num_neg_samples: int,
    custom_neg_classes: tuple[int, ...],
) -> tuple[Spec, Spec, Spec]:
    if weight.shape[0] != num_total_classes or not agree(weight.shape[1], x.shape[1]):
        raise ShapeError(f"expected Weight ({num_total_classes}, {x.shape[1]}), got {weight.shape}")
    true = label.shape[1] if len(label.shape) == 2 else 1
    drawn = len(custom_neg_classes) or num_neg_samples
    samples = (x.shape[0], true + drawn if label_weight is None else -1)
    return Spec((x.shape[0], 1), x.dtype), Spec(samples, x.dtype), Spec(samples, _INT64)


@operator(
    "nce",
    "Input Label Weight Bias? SampleWeight? CustomDistProbs? CustomDistAlias? CustomDistAliasProbs? LabelWeight? -> "
    "Cost SampleLogits~ SampleLabels~",
    attrs=_ATTRS,
    infer=_infer,
)
def nce(
    x: Array,
    label: Array,
    weight: Array,
    bias: Array | None,
    sample_weight: Array | None,
    probs: Array | None,
    alias: Array | None,
    alias_probs: Array | None,
    label_weight: Array | None,
    *,
    num_total_classes: int,
    num_neg_samples: int,
    sampler: int,
    custom_neg_classes: tuple[int, ...],
    rng: np.random.Generator,
) -> tuple[Array, Array, Array]:
    """Return the NCE cost of each row (rows, 1), and the probabilities and classes of its samples, true ones first.

    With o = sigmoid(x W + b) and q = P(class) times the number of sampled classes: -ln(o / (o + q)) for true classes,
    -ln(q / (o + q)) for sampled ones. With label_weight (rows, n), all rows share the true classes Label (n, 1), and
    each row's costs of these n classes are multiplied by its weights.
    """
    xp, true = array_module(x), _rows(label, label_weight)
    require_within(true, num_total_classes, "Label")
    drawn = _draw((len(x), num_neg_samples), num_total_classes, sampler, custom_neg_classes, probs, rng)
    samples = xp.concatenate([true, from_host(drawn, x)], axis=1)
    scores = xp.einsum("nd,nsd->ns", x, weight[samples])
    o = sigmoid(scores if bias is None else scores + bias.reshape(-1)[samples])
    q = _chance(samples, num_total_classes, sampler, probs).astype(x.dtype) * drawn.shape[1]
    parts = -xp.log(xp.concatenate([o[:, : true.shape[1]], q[:, true.shape[1] :]], axis=1) / (o + q))
    if label_weight is not None:
        parts[:, : true.shape[1]] *= label_weight
    cost = parts.sum(axis=1, keepdims=True)
    return cost if sample_weight is None else cost * sample_weight.reshape(-1, 1), o, samples


@gradient(
    "nce",
    "Input Label Weight Bias? SampleWeight? CustomDistProbs? LabelWeight? SampleLogits SampleLabels Cost@GRAD -> "
    "Input@GRAD Weight@GRAD Bias@GRAD?",
)
def nce_grad(
    x: Array,
    label: Array,
    weight: Array,
    bias: Array | None,
    sample_weight: Array | None,
    probs: Array | None,
    label_weight: Array | None,
    o: Array,
    samples: Array,
    dcost: Array,
    *,
    num_total_classes: int,
    sampler: int,
    is_sparse: bool,
) -> tuple[Array, Array | SelectedRows, Array | None]:
    """Return the gradients of X, Weight and Bias, through the samples' scores; dWeight is SelectedRows if is_sparse."""
    xp, true = array_module(x), _rows(label, label_weight).shape[1]
    q = _chance(samples, num_total_classes, sampler, probs).astype(x.dtype) * (samples.shape[1] - true)
    # d/do of -ln(o / (o + q)) is -q / (o (o + q)), of -ln(q / (o + q)) it is 1 / (o + q); o' is o (1 - o).
    slope = (1 - o) * xp.concatenate([-q[:, :true], o[:, true:]], axis=1) / (o + q)
    if label_weight is not None:
        slope[:, :true] *= label_weight
    dscores = slope * (dcost if sample_weight is None else dcost * sample_weight.reshape(-1, 1))
    dx = xp.einsum("ns,nsd->nd", dscores, weight[samples])
    rows = samples.reshape(-1)
    parts = (dscores[:, :, None] * x[:, None, :]).reshape(len(rows), x.shape[1])
    return (
        dx,
        table_gradient(rows, parts, weight, is_sparse),
        None if bias is None else scatter_sum(dscores.reshape(-1, *(1,) * (bias.ndim - 1)), rows, len(bias)),
    )


def _rows(label: Array, label_weight: Array | None) -> Array:
    """Return the true classes of each row."""
    if label_weight is not None:
        return array_module(label).broadcast_to(label.reshape(1, -1), label_weight.shape)
    return label if label.ndim == 2 else label[:, None]


def _draw(
    shape: tuple[int, int],
    classes: int,
    sampler: int,
    custom: tuple[int, ...],
    probs: Array | None,
    rng: np.random.Generator,
) -> Array:
    if custom:
        return np.broadcast_to(np.array(custom, _INT64), (shape[0], len(custom)))
    if sampler == _UNIFORM:
        return rng.integers(0, classes, shape)
    if sampler == _LOG_UNIFORM:
        # The inverse of P(class < k) = ln(k + 1) / ln(classes + 1).
        return np.exp(rng.random(shape) * np.log(classes + 1)).astype(_INT64).clip(1, classes) - 1
    if sampler == _CUSTOM and probs is not None:
        known = to_host(probs).astype(np.float64).reshape(-1)
        return rng.choice(classes, shape, p=known / known.sum())
    raise AttrError(f"sampler: expected 0 (uniform), 1 (log uniform) or 2 (CustomDistProbs), got {sampler}")


def _chance(samples: Array, classes: int, sampler: int, probs: Array | None) -> Array:
    xp = array_module(samples)
    if sampler == _LOG_UNIFORM:
        return xp.log((samples + 2) / (samples + 1)) / np.log(classes + 1)
    if sampler == _CUSTOM and probs is not None:
        return probs.reshape(-1)[samples]
    return xp.full(samples.shape, 1 / classes)
