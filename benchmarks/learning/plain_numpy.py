# SPDX-License-Identifier: Apache-2.0
"""The chain of small operators as plain numpy calls."""

from __future__ import annotations

import numpy as np

from benchmarks.learning import work

_X, _Y = np.ones(work.LENGTH, "float32"), np.full(work.LENGTH, 0.5, "float32")


def _step(number: int) -> float:
    x = _X
    for _ in range(work.PAIRS):
        x = np.maximum(np.add(x, _Y), 0)
    return float(x[0])


if __name__ == "__main__":
    work.take_turns(_step)
