# SPDX-License-Identifier: Apache-2.0
"""Boxes in plain loops, which operators of detection are compared with."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from paddle.ops.base.lod import LoDArray, offsets_of


def boxes(rng: np.random.Generator, count: int, scale: float = 1.0) -> Any:
    """Random boxes (count, 4) float32 within [0, scale], of sides up to half of it."""
    starts = rng.uniform(0, 0.6, (count, 2))
    return (np.concatenate([starts, starts + rng.uniform(0.1, 0.4, (count, 2))], axis=1) * scale).astype("f")


def share(a: Any, b: Any, more: float = 0.0) -> float:
    """Intersection over union of two boxes; sides are longer by `more`."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + more
    height = min(a[3], b[3]) - max(a[1], b[1]) + more
    common = max(width, 0.0) * max(height, 0.0)
    whole = sum((c[2] - c[0] + more) * (c[3] - c[1] + more) for c in (a, b)) - common
    return float(common / whole)


def sequences(data: Any, *lengths: int) -> LoDArray:
    """Rows as sequences of these lengths."""
    return LoDArray(np.asarray(data), offsets_of([list(lengths)]))


def coded(box: Any, anchor: Any, weights: Any = (1, 1, 1, 1)) -> list[float]:
    """The code of a box in pixels by an anchor, over weights."""
    width, height = anchor[2] - anchor[0] + 1, anchor[3] - anchor[1] + 1
    wide, high = box[2] - box[0] + 1, box[3] - box[1] + 1
    x = (box[0] + wide / 2 - anchor[0] - width / 2) / width
    y = (box[1] + high / 2 - anchor[1] - height / 2) / height
    found = [x, y, log(wide / width), log(high / height)]
    return [float(each / weight) for each, weight in zip(found, weights, strict=True)]
