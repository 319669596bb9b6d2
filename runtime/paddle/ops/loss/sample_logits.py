# SPDX-License-Identifier: Apache-2.0
"""sample_logits, for sampled softmax: scores of the true and some sampled classes, corrected for the sampling.

The logarithm of a class's expected count among the samples is subtracted from its score (Jean et al., 2015).
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.entries import require_within
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import scatter_sum
from paddle.ops.base.shapes import as_many_rows

_ATTRS = {
    "use_customized_samples": False,
    "uniq": True,
    "remove_accidental_hits": True,
    "num_samples": int,
    "seed": 0,
}
_INT64 = np.dtype("int64")
_NEVER = 1e20


def _infer(
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
    attrs=_ATTRS,
    infer=_infer,
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
