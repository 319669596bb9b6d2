# SPDX-License-Identifier: Apache-2.0
"""Compiled CTC agrees with its plain form in double precision, and leaves it the batches that it cannot serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.kernels import library
from paddle.ops.base.lod import LoDArray
from paddle.ops.loss import ctc

# times and labels of each sequence
BATCHES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one step": ((1,), (1,)),
    "no labels": ((1, 5), (0, 0)),
    "empty sequences": ((0, 3, 0, 7), (0, 2, 3, 0)),
    "labels that do not fit": ((3, 4, 9), (4, 3, 2)),
    "long": ((75, 31, 100, 8), (20, 3, 17, 4)),
}
pytestmark = pytest.mark.skipif(not library.level(), reason="no compiled kernels")


@pytest.fixture(params=library.levels(), autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctc.KERNELS, "loaded", ctc.KERNELS.at_level(request.param))


def drawn(name: str, classes: int, blank: int, scale: float) -> tuple[LoDArray, LoDArray]:
    rng = np.random.default_rng(classes)
    times, counts = BATCHES[name]
    logits = scale * rng.standard_normal((sum(times), classes))
    labels = (blank + rng.integers(1, classes, (sum(counts), 1))) % classes
    return (
        LoDArray(logits.astype("float32"), (np.cumsum([0, *times]),)),
        LoDArray(labels, (np.cumsum([0, *counts]),)),
    )


def both_forms(logits: LoDArray, labels: LoDArray, blank: int) -> Any:
    """What the compiled form gives in float32, and the plain one, which takes float64."""
    wide = LoDArray(logits.data.astype("float64"), logits.lod)
    return ctc.warpctc(logits, labels, blank=blank), ctc.warpctc(wide, labels, blank=blank)


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize(("classes", "blank"), [(2, 1), (7, 0), (60, 59), (129, 5)])
@pytest.mark.parametrize("name", BATCHES)
def test_both_forms_agree(name: str, classes: int, blank: int, scale: float) -> None:
    (grad, cost), (right_grad, right_cost) = both_forms(*drawn(name, classes, blank, scale), blank)
    assert grad.dtype == cost.dtype == np.float32
    np.testing.assert_allclose(cost, right_cost, rtol=2e-6, atol=2e-5)
    np.testing.assert_allclose(grad, right_grad, rtol=0, atol=5e-6)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf, 3e38, -3e38, 2000.0])
def test_strange_logits_give_what_the_plain_form_gives(strange: float) -> None:
    logits, labels = drawn("long", 7, 0, 1.0)
    logits.data[3, 2], logits.data[40, 0] = strange, strange
    with np.errstate(all="ignore"):
        (grad, cost), (right_grad, right_cost) = both_forms(logits, labels, 0)
    np.testing.assert_allclose(cost, right_cost.astype("float32"), rtol=2e-6)
    np.testing.assert_allclose(grad, right_grad, rtol=0, atol=5e-6)


def test_labels_too_unlikely_for_chances_cost_what_logarithms_say() -> None:
    logits, labels = drawn("long", 7, 0, 2000.0)
    (grad, cost), (right_grad, right_cost) = both_forms(logits, labels, 0)
    assert (right_cost > 10000).any()
    np.testing.assert_allclose(cost, right_cost, rtol=2e-6)
    np.testing.assert_allclose(grad, right_grad, rtol=0, atol=5e-6)
