# SPDX-License-Identifier: Apache-2.0
"""nce and hierarchical sigmoid against formulas and worked numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(4)


def test_the_way_to_a_class_goes_along_the_bits_of_its_code() -> None:
    x, w, bias = _RNG.standard_normal((1, 2)), _RNG.standard_normal((5, 2)), _RNG.standard_normal((5, 1))
    inputs = {"X": x, "W": w, "Label": np.array([[4]]), "Bias": bias}
    cost, pre, _ = run_op("hierarchical_sigmoid", inputs, {"num_classes": 6})
    z = np.array([w[node] @ x[0] + bias[node, 0] for node in (4, 1, 0)])
    np.testing.assert_allclose(pre[0], z)
    np.testing.assert_allclose(cost[0, 0], np.log1p(np.exp(z)).sum() - z[1])


def test_places_behind_the_end_of_a_way_cost_ln_2_each() -> None:
    inputs = {"X": np.ones((1, 1)), "W": np.zeros((4, 1)), "Label": np.array([[0]])}
    cost, _, _ = run_op("hierarchical_sigmoid", inputs, {"num_classes": 5})
    np.testing.assert_allclose(cost[0, 0], 3 * np.log(2))


@pytest.mark.parametrize("sampler", [0, 1])
def test_nce_weighs_true_classes_against_drawn_ones(sampler: int) -> None:
    x, w, label = _RNG.standard_normal((5, 2)), _RNG.standard_normal((7, 2)), _RNG.integers(0, 7, (5, 1))
    attrs = {"num_total_classes": 7, "num_neg_samples": 3, "sampler": sampler}
    cost, o, samples = run_op("nce", {"Input": x, "Label": label, "Weight": w}, attrs)
    assert samples[:, 0].tolist() == label[:, 0].tolist()
    assert samples.min() >= 0
    assert samples.max() < 7
    np.testing.assert_allclose(o, 1 / (1 + np.exp(-np.einsum("nd,nsd->ns", x, w[samples]))))
    chance = np.log((samples + 2) / (samples + 1)) / np.log(8) if sampler else np.full(samples.shape, 1 / 7)
    q = 3 * chance
    expected = -np.log(o[:, :1] / (o + q)[:, :1]) - np.log(q / (o + q))[:, 1:].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cost, expected)


def test_drawn_classes_follow_their_distribution() -> None:
    rows, probs = 400, np.array([0.5, 0.3, 0.2, 0.0])
    inputs = {"Input": np.ones((rows, 1)), "Label": np.zeros((rows, 1), int), "Weight": np.ones((4, 1))}
    attrs = {"num_total_classes": 4, "num_neg_samples": 50}
    for sampler, expected in ((2, probs), (1, np.log(np.arange(2, 6) / np.arange(1, 5)) / np.log(5))):
        given = {**inputs, "CustomDistProbs": probs} if sampler == 2 else inputs
        _, _, samples = run_op("nce", given, {**attrs, "sampler": sampler})
        share = np.bincount(samples[:, 1:].reshape(-1), minlength=4) / (rows * 50)
        np.testing.assert_allclose(share, expected, atol=0.02)
