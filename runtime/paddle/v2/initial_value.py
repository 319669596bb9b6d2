# SPDX-License-Identifier: Apache-2.0
"""First values of a parameter: a function of (seed, parameter name) alone.

So every trainer of a job and a local run of the same script start from the same numbers, whatever order layers were
declared in.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from paddle.v2.parameter_config import UNIFORM, ParameterConfig


def initial_value(config: ParameterConfig, seed: int) -> NDArray[np.float32]:
    """A new float32 array of ``config.shape``."""
    if config.initial_std == 0:
        return np.full(config.shape, config.initial_mean, np.float32)
    generator = _generator(config.name, seed)
    if config.initial_strategy == UNIFORM:
        value = generator.random(config.size, np.float32)
        value *= np.float32(2 * config.initial_std)
        value += np.float32(config.initial_mean - config.initial_std)
    else:
        value = generator.standard_normal(config.size, np.float32)
        value *= np.float32(config.initial_std)
        value += np.float32(config.initial_mean)
    return value.reshape(config.shape)


def _generator(name: str, seed: int) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
