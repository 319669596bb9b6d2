# SPDX-License-Identifier: Apache-2.0
"""Clicks of Criteo and Avazu as a recommender reads them, repeated with other IDs until there are enough of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "ctr"
_CRITEO_NUMBERS, _CRITEO_FIELDS = 13, 26


class Clicks(NamedTuple):
    """The samples of one file.

    Attributes:
        numbers: (n, k) float32; k may be 0.
        codes: (n, fields) int64 below `height`: one code per value of each field.
        clicks: (n,) float32, 0 or 1.
        height: number of codes.
    """

    numbers: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64]
    clicks: npt.NDArray[np.float32]
    height: int

    def batch(self, number: int, size: int, shifts: int) -> tuple[Any, Any, Any]:
        """Return batch `number`: numbers, IDs and clicks. Each repetition uses the next of `shifts` sets of IDs."""
        place = np.arange(number * size, (number + 1) * size)
        shift, row = place // len(self.clicks) % shifts, place % len(self.clicks)
        return self.numbers[row], self.codes[row] + shift[:, None] * self.height, self.clicks[row]


def read(name: str) -> tuple[Clicks, Clicks]:
    """Return training and test samples of "criteo" or "avazu". Raises OSError: the files do not exist."""
    parse, train, test = {
        "criteo": (_criteo, "criteo_kaggle_train.txt", "criteo_kaggle_test.txt"),
        "avazu": (_avazu, "avazu_train.csv", "avazu_test.csv"),
    }[name]
    parsed = [parse(FOLDER / each) for each in (train, test)]
    codes: dict[tuple[int, str], int] = {}
    for field in range(len(parsed[0][1][0])):
        for value in sorted({row[field] for row in parsed[0][1]}):
            codes[field, value] = len(codes)
    found = []
    for numbers, values, clicks in parsed:
        # All values that do not occur in training share the last code.
        of_rows = [[codes.get(pair, len(codes)) for pair in enumerate(row)] for row in values]
        found.append(
            Clicks(
                np.array(numbers, np.float32).reshape(len(clicks), -1),
                np.array(of_rows, np.int64),
                np.array(clicks, np.float32),
                len(codes) + 1,
            )
        )
    return found[0], found[1]


def auc(scores: npt.NDArray[np.float32], clicks: npt.NDArray[np.float32]) -> float:
    """Return the area under the ROC curve, by ranks; equal scores count half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive = clicks > 0
    hits, misses = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))


def _criteo(path: Path) -> tuple[list[list[float]], list[list[str]], list[float]]:
    numbers, values, clicks = [], [], []
    for line in path.read_text().splitlines():
        words = line.split("\t")
        if len(words) != 1 + _CRITEO_NUMBERS + _CRITEO_FIELDS:
            continue
        clicks.append(float(words[0]))
        numbers.append([float(np.log1p(max(int(word or 0), 0))) for word in words[1 : 1 + _CRITEO_NUMBERS]])
        values.append(words[1 + _CRITEO_NUMBERS :])
    return numbers, values, clicks


def _avazu(path: Path) -> tuple[list[list[float]], list[list[str]], list[float]]:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [[] for _ in rows], [[row[2][-2:], *row[3:]] for row in rows], [float(row[1]) for row in rows]
