# SPDX-License-Identifier: Apache-2.0
"""Clicks in MultiSlot text, 13 numbers, 26 IDs and a label per line, and PaddleRec's dnn, which both sides train.

    python -m benchmarks.learning.fluid_clicks TEXT [HELD_OUT]      # or torch_clicks

Each step is a pass over TEXT, from its bytes to updated parameters, by a reading and a training thread. With HELD_OUT:
two passes, then the area under the curve of its clicks is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning import work

NUMBERS, FIELDS, IDS, WIDTH = 13, 26, 1_000_001, 10
HIDDEN = (400, 400, 400)
BATCH, RATE, ROWS, PASSES = 256, 1e-3, 8_192, 2
EPSILON = 1e-12  # of Adam: PyTorch adds it after the correction of the second moment, Fluid before
SIZES = (NUMBERS + FIELDS * WIDTH, *HIDDEN, 2)


def write(path: Path, count: int = ROWS) -> None:
    """Write generated clicks; a few IDs determine them."""
    rng = np.random.default_rng(work.SEED)
    taste = rng.standard_normal((FIELDS, 50)) * 0.6
    numbers = rng.standard_normal((count, NUMBERS)).round(3)
    drawn = np.minimum(rng.zipf(1.3, (count, FIELDS)), 10_000)
    clicks = taste[np.arange(FIELDS), drawn % 50].sum(axis=1) > rng.logistic(size=count)
    ids = (drawn * 99_991 + np.arange(FIELDS) * 7_919) % IDS
    with path.open("w") as out:
        for row, own, click in zip(numbers.tolist(), ids.tolist(), clicks.tolist(), strict=True):
            slots = "".join(f" 1 {each}" for each in own)
            out.write(f"{NUMBERS} {' '.join(map(str, row))}{slots} 1 {int(click)}\n")


def first_values() -> tuple[np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
    """Return the table, and the weights (in, out) of the layers; biases start at 0."""
    rng = np.random.default_rng(work.SEED)
    table = rng.uniform(-0.05, 0.05, (IDS, WIDTH)).astype("float32")
    layers = pairwise(SIZES)
    return table, [(rng.standard_normal(size) / np.sqrt(size[0])).astype("float32") for size in layers]


def auc(clicks: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> float:
    """Return the probability that a click has a greater score than another row; ties count half."""
    ordered = np.sort(scores[clicks == 0])
    clicked = scores[clicks == 1]
    below = np.searchsorted(ordered, clicked, "left") + np.searchsorted(ordered, clicked, "right")
    return float(below.mean() / 2 / len(ordered))


def main(train: Callable[[], float], scored: Callable[[str], tuple[Any, Any]]) -> None:
    """Train in turns, or print the area under the curve.

    Args:
        train: trains a pass and returns the last cost.
        scored: path -> clicks (n,) and scores (n,) of its rows.
    """
    if len(sys.argv) < 3:
        work.take_turns(lambda number: train())
        return
    for _ in range(PASSES):
        train()
    print(f"{auc(*scored(sys.argv[2])):.6f}")
