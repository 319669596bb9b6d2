# SPDX-License-Identifier: Apache-2.0
"""Sizes, steps and initial values as programs for Python 2 or with a slip give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import paddle.fluid as fluid

layers = fluid.layers
WRONG: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: layers.conv2d(image(), 4, 3, padding=(3 - 1) / 2),
        r"expected an integer or 2 of them, got 1.0: .* use `//`",
    ),
    (lambda: layers.pool2d(image(), 4 / 2), "use `//` for a whole number"),
    (lambda: layers.topk(layers.data("x", [4]), 4 / 2), "'k': expected int, got 2.0 .* use `//`"),
    (lambda: layers.polynomial_decay(0.1, 0), "polynomial_decay: decay_steps must be positive, got 0"),
    (lambda: layers.exponential_decay(0.1, 0, 0.5), "exponential_decay: decay_steps must be positive"),
    (lambda: layers.inverse_time_decay(0.1, -1, 0.5), "inverse_time_decay: decay_steps must be positive"),
    (lambda: layers.piecewise_decay([5, 3], [1.0, 0.5, 0.1]), r"boundaries must ascend, got \[5, 3\]"),
    (
        lambda: fluid.ParamAttr(initializer=fluid.initializer.Normal),  # type: ignore[arg-type]
        r"NormalInitializer is a class: pass an instance, NormalInitializer\(...\)",
    ),
]


def image() -> fluid.framework.Variable:
    return layers.data("image", [4, 8, 8])


@pytest.mark.parametrize(("call", "says"), WRONG)
def test_the_message_names_the_argument_and_its_correction(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize(("first", "last"), [(5e-5, 1e-4), (0.1, 0.1)])
def test_a_polynomial_decay_that_does_not_decay_is_warned_of(first: float, last: float) -> None:
    with pytest.warns(UserWarning, match="polynomial_decay does not lower the learning rate"):
        layers.polynomial_decay(first, 10, last)
