# SPDX-License-Identifier: Apache-2.0
"""Rows of the Criteo click logs: a label, 13 numbers, 26 categories of 32 bits, separated by tabs; fields may be empty.

Without a file, rows are generated: 26 categories, a few of which determine whether there is a click.
"""

import numpy as np

NUMBERS, CATEGORIES = 13, 26
POSSIBLE_IDS = CATEGORIES << 32  # 111,669,149,696


def rows(path):
    """Return a reader of (ids (26, 1) int64, numbers (13,) float32, label (1,) int64) from a file."""

    def read():
        with open(path, encoding="ascii") as lines:
            for number, line in enumerate(lines, 1):
                fields = line.rstrip("\n").split("\t")
                if len(fields) != 1 + NUMBERS + CATEGORIES:
                    raise ValueError(f"{path}, line {number}: expected 40 fields, got {len(fields)}")
                yield (
                    _ids(fields[1 + NUMBERS :]),
                    _numbers(fields[1 : 1 + NUMBERS]),
                    np.array([int(fields[0])]),
                )

    return read


def made_up(count, seed):
    """Return a reader of `count` generated rows; different seeds give different rows with the same preferences."""
    taste = np.random.default_rng(2017).standard_normal((CATEGORIES, 50)) * 0.6

    def read():
        rng = np.random.default_rng(seed)
        fields = np.arange(CATEGORIES)
        for _ in range(count):
            drawn = np.minimum(rng.zipf(1.3, CATEGORIES), 10_000)
            liked = taste[fields, drawn % 50].sum() > rng.logistic()
            ids = (fields << 32) + drawn * 99_991
            yield ids[:, None], rng.standard_normal(NUMBERS).astype("float32"), np.array([int(liked)])

    return read


def _ids(texts):
    # The field precedes the category: no two values share an ID. A missing one has its own ID, below 0.
    return np.array(
        [[field << 32 | int(text, 16) if text else -1 - field] for field, text in enumerate(texts)]
    )


def _numbers(texts):
    values = np.array([float(text or 0) for text in texts], "float32")
    return np.log1p(np.maximum(values, 0))
