# SPDX-License-Identifier: Apache-2.0
"""Images of squares and circles with their boxes, and a small net that looks at them."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.fluid import layers

SIDE = 32
SQUARE, CIRCLE = 1, 2


def images(rng: np.random.Generator, count: int) -> tuple[Any, list[Any], list[Any]]:
    """Images (count, 1, SIDE, SIDE) with noise, boxes (objects, 4) as parts of each image, and labels of each.

    An image has one or two objects, in its left and right half, of sides 9 to 14.
    """
    pixels = rng.normal(0, 0.1, (count, 1, SIDE, SIDE)).astype("f")
    boxes, labels = [], []
    for image in pixels[:, 0]:
        rows, kinds = [], []
        halves = (0, 1) if rng.random() < 0.5 else (int(rng.integers(2)),)
        for half in halves:
            side = int(rng.integers(9, 15))
            left = int(rng.integers(0, SIDE // 2 - side + 1)) + half * SIDE // 2
            top = int(rng.integers(0, SIDE - side + 1))
            kind = int(rng.choice([SQUARE, CIRCLE]))
            y, x = np.mgrid[:side, :side] - (side - 1) / 2
            shape = np.ones((side, side)) if kind == SQUARE else x * x + y * y <= side * side / 4
            image[top : top + side, left : left + side] += shape
            rows.append([left / SIDE, top / SIDE, (left + side) / SIDE, (top + side) / SIDE])
            kinds.append([kind])
        boxes.append(np.array(rows, "f"))
        labels.append(np.array(kinds, "int32"))
    return pixels, boxes, labels


def block(x: Any, channels: int, stride: int, is_test: bool) -> Any:
    """A convolution and what makes it learn fast."""
    x = layers.conv2d(x, channels, 3, stride=stride, padding=1, bias_attr=False)
    return layers.batch_norm(x, act="relu", is_test=is_test, momentum=0.8)


def backbone(image: Any, is_test: bool) -> Any:
    """Features (N, 32, SIDE / 4, SIDE / 4)."""
    x = block(image, 8, 2, is_test)
    x = block(x, 32, 2, is_test)
    return block(x, 32, 1, is_test)
