# SPDX-License-Identifier: Apache-2.0
"""What is normalised has mean 0 and variance 1 before it is scaled."""

from __future__ import annotations

import numpy as np

from tests.runtime.ops.run_op import run_op

_X = np.random.default_rng(6).standard_normal((3, 4))


def test_rows_have_mean_0_and_variance_1_before_they_are_scaled() -> None:
    out, mean, variance = run_op("layer_norm", {"X": _X, "Scale": np.full(4, 2.0), "Bias": np.ones(4)})
    expected = 2 * (_X - _X.mean(1, keepdims=True)) / np.sqrt(_X.var(1, keepdims=True) + 1e-5) + 1
    np.testing.assert_allclose(out, expected)
    np.testing.assert_allclose(mean, _X.mean(1))
    np.testing.assert_allclose(variance, _X.var(1))


def test_groups_of_channels_are_normalised_together() -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    out, *_ = run_op("group_norm", {"X": x}, {"groups": 2, "epsilon": 0.0})
    np.testing.assert_allclose(out.reshape(4, 6).mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(out.reshape(4, 6).var(1), 1)
