# SPDX-License-Identifier: Apache-2.0
"""Gradients of images under large windows cost about what those of the filters cost."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from paddle.ops.conv import im2col
from paddle.ops.conv.direct import filter_gradient, image_gradient
from paddle.ops.conv.window import window_of


def cpu_s(work: Callable[[], object]) -> float:
    """The least of three, since others use this machine."""
    took = []
    for _ in range(3):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return min(took)


@pytest.mark.parametrize("channels", [1, 2])
def test_the_gradient_of_images_with_few_channels_is_not_many_times_that_of_the_filters(
    channels: int,
) -> None:
    rng = np.random.default_rng(1)
    images = rng.standard_normal((12, channels, 32, 32)).astype("float32")
    filters = rng.standard_normal((128, channels, 32, 32)).astype("float32")
    window = window_of((32, 32), (1, 1), (16, 16), (1, 1))
    dout = rng.standard_normal((12, 128, 33, 33)).astype("float32")
    found = image_gradient(filters, dout, (32, 32), window, 1)
    expected = im2col.image_gradient(filters, dout, (32, 32), window, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=0.05)
    of_images = cpu_s(lambda: image_gradient(filters, dout, (32, 32), window, 1))
    of_filters = cpu_s(lambda: filter_gradient(images, dout, filters, window, 1))
    assert of_images < 6 * of_filters
