# SPDX-License-Identifier: Apache-2.0
"""nce: noise-contrastive estimation (Gutmann and Hyvärinen, 2010); sample_logits: scores for a sampled softmax.

sample_logits returns the scores of the true class and of sampled classes, minus the logarithm of each class's expected
count among the samples (Jean et al., 2015).
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import require_within, scatter_sum, table_gradient
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.base.shapes import agree, as_many_rows

_NCE_ATTRS = {
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


def _infer_nce(
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
    attrs=_NCE_ATTRS,
    infer=_infer_nce,
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
    require_within(
        true,
        num_total_classes,
        "Label",
        of="the num_classes of the layer: give a larger one, or number labels from 0",
    )
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


_SAMPLE_ATTRS = {
    "use_customized_samples": False,
    "uniq": True,
    "remove_accidental_hits": True,
    "num_samples": int,
    "seed": 0,
}
_NEVER = 1e20


def _infer_sample_logits(
    logits: Spec, labels: Spec, samples: Spec | None, chances: Spec | None, *, num_samples: int
) -> tuple[Spec, Spec, Spec, Spec]:
    if len(logits.shape) != 2 or len(labels.shape) != 2 or labels.dtype != _INT64:
        raise ShapeError(
            f"expected Logits (rows, classes) and Labels (rows, true) int64, got {logits.shape} and "
            f"{labels.shape} {labels.dtype}"
        )
    if not 0 < num_samples < logits.shape[1]:
        raise AttrError(f"num_samples: expected 1 to {logits.shape[1] - 1}, got {num_samples}")
    width = labels.shape[1] + num_samples
    chosen = Spec((logits.shape[0], width), _INT64)
    scores = Spec(chosen.shape, logits.dtype)
    return chosen, scores, scores, Spec(labels.shape, _INT64)


@operator(
    "sample_logits",
    "Logits Labels CustomizedSamples? CustomizedProbabilities? -> "
    "Samples~ Probabilities~ SampledLogits SampledLabels",
    attrs=_SAMPLE_ATTRS,
    infer=_infer_sample_logits,
)
def sample_logits(
    logits: Array,
    labels: Array,
    samples: Array | None,
    chances: Array | None,
    *,
    num_samples: int,
    remove_accidental_hits: bool,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array, Array]:
    """Sample classes; return them (rows, true + drawn), their probabilities and scores, and the true ones' positions.

    Args:
        logits: (rows, classes).
        labels: (rows, true) classes.
        samples: (rows, true + drawn) classes to use; None draws them, the same for all rows, lower ones more often.
        num_samples: the number of distinct classes to draw.
        remove_accidental_hits: whether to exclude drawn classes that are true classes of a row.

    Raises:
        RowError: a label is not a class.
    """
    as_many_rows(logits, labels, "Logits and Labels")
    xp, count, true = array_module(logits), logits.shape[1], labels.shape[1]
    require_within(labels, count, "Labels")
    if samples is None or chances is None:
        drawn, tries = _drawn(count, num_samples, rng)
        wide = np.broadcast_to(drawn, (len(labels), num_samples))
        chosen = np.concatenate([to_host(labels), wide], axis=1)
        samples = from_host(chosen, logits)
        chances = from_host(_expected(chosen, count, tries).astype(logits.dtype), logits)
    scores = xp.take_along_axis(logits, samples, axis=1) - xp.log(chances)
    if remove_accidental_hits:
        scores[:, true:] -= _NEVER * _hits(labels, samples[:, true:])
    places = xp.broadcast_to(xp.arange(true), labels.shape).astype(_INT64)
    return samples, chances, scores, places


@gradient("sample_logits", "Logits Samples SampledLogits@GRAD -> Logits@GRAD")
def sample_logits_grad(logits: Array, samples: Array, dscores: Array) -> Array:
    """Return dLogits (rows, classes): the gradient of each score, added at the score's class."""
    rows, count = logits.shape
    places = array_module(logits).arange(rows)[:, None] * count + samples
    flat = scatter_sum(dscores.reshape(-1, 1), places.reshape(-1), rows * count)
    return flat.reshape(logits.shape)


def _drawn(count: int, wanted: int, rng: np.random.Generator) -> tuple[Array, int]:
    """Draw classes until `wanted` distinct ones are found; return them and the number of draws."""
    found: dict[int, None] = {}
    tries = 0
    while len(found) < wanted:
        # The inverse of P(class < k) = ln(k + 1) / ln(count + 1).
        some = np.exp(rng.random(2 * wanted) * np.log(count + 1)).astype(_INT64).clip(1, count) - 1
        for each in some.tolist():
            if len(found) == wanted:
                break
            tries += 1
            found[each] = None
    return np.array(list(found), _INT64), tries


def _expected(classes: Array, count: int, tries: int) -> Array:
    """Return the probability that each class occurs in the given number of draws."""
    chance = np.log((classes + 2) / (classes + 1)) / np.log(count + 1)
    return -np.expm1(tries * np.log1p(-chance))


def _hits(labels: Array, drawn: Array) -> Array:
    return (drawn[:, :, None] == labels[:, None, :]).any(axis=2)
