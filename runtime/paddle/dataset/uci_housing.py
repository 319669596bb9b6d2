# SPDX-License-Identifier: Apache-2.0
"""UCI Boston housing: 404 training and 102 test districts, with 13 features and a house price in thousands of dollars.

A sample is (features (13,) float64, price (1,) float64). Features are scaled by (x - mean) / (max - min) over
all 506 rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.download import DatasetError, download, fetching
from paddle.reader.decorator import Reader

if TYPE_CHECKING:
    from paddle.v2.parameters import Parameters

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
URL_MODEL = "https://github.com/PaddlePaddle/book/raw/develop/01.fit_a_line/fit_a_line.tar"
MD5_MODEL = "52fc3da8ef3937822fcdd87ee05c0c9b"

feature_names = [
    "CRIM",
    "ZN",
    "INDUS",
    "CHAS",
    "NOX",
    "RM",
    "AGE",
    "DIS",
    "RAD",
    "TAX",
    "PTRATIO",
    "B",
    "LSTAT",
]

COLUMNS = len(feature_names) + 1
TRAIN_SHARE = 0.8

Sample = tuple[NDArray[np.float64], NDArray[np.float64]]

fetch = fetching("uci_housing", (URL, MD5))


def train() -> Reader[Sample]:
    """Return a reader of the training samples, the first 80 percent of the rows."""
    rows = _scaled(download(URL, "uci_housing", MD5))
    return _reader(rows[: int(len(rows) * TRAIN_SHARE)])


def test() -> Reader[Sample]:
    """Return a reader of the test samples, the last 20 percent of the rows."""
    rows = _scaled(download(URL, "uci_housing", MD5))
    return _reader(rows[int(len(rows) * TRAIN_SHARE) :])


def model() -> Parameters:
    """Return the parameters of a trained linear regression, from the first chapter of the Paddle book."""
    from paddle.v2.parameters import Parameters  # a higher-level package: loaded only by callers that need it

    with open(download(URL_MODEL, "uci_housing", MD5_MODEL), "rb") as file:
        return Parameters.from_tar(file)


@functools.cache
def _scaled(path: str) -> NDArray[np.float64]:
    """Return all rows (506, 14) float64 with features scaled; read-only, since it is shared between callers."""
    values = np.fromfile(path, sep=" ", dtype=np.float64)
    if values.size == 0 or values.size % COLUMNS:
        raise DatasetError(path, f"{path}: expected rows of {COLUMNS} numbers, got {values.size} numbers")
    rows = values.reshape(-1, COLUMNS)
    features = rows[:, :-1]
    features[:] = (features - features.mean(axis=0)) / (features.max(axis=0) - features.min(axis=0))
    rows.flags.writeable = False
    return rows


def _reader(rows: NDArray[np.float64]) -> Reader[Sample]:
    def read() -> Iterator[Sample]:
        for row in rows:
            yield row[:-1], row[-1:]

    return read
