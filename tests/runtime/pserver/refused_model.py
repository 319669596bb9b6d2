# SPDX-License-Identifier: Apache-2.0
"""A small model, and a gradient for it that is wrong in its last element alone."""

from __future__ import annotations

import numpy as np

from tests.runtime.pserver.in_process_job import Model

MODEL = Model({"fc.w": (40, 50), "fc.b": (50,), "emb": (20, 3)}, sparse=["emb"])


def bad(shape: tuple[int, ...], value: float) -> np.ndarray:
    array = np.zeros(shape, np.float32)
    array.reshape(-1)[-1] = value
    return array
