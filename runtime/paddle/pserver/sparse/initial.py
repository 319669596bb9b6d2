# SPDX-License-Identifier: Apache-2.0
"""The initial values of a row: a function of (seed, id) alone, so that arrival order does not matter.

Element j of row `id` is mean + spread · z, computed in float64 and rounded to float32. z comes from the
splitmix64 stream (see `mixing`) that starts at s = mix(id ^ mix(seed)): word k is mix(s + (k+1)·γ), with
high and low halves h, l of 32 bits. Word k determines the elements 2k and 2k + 1:

    constant:  z = 0
    uniform:   z = 2 · ⌊h/2⁸⌋/2²⁴ − 1 and the same of l: uniform on [−1, 1)
    normal:    r = √(−2 ln((h + 1)/2³²)),  φ = 2π l/2³²:  z = r cos φ and r sin φ   (Box and Muller, 1958)

Servers with another libm may differ in the last bit of a float64, which changes about one float32 in 10⁸.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.sparse.mixing import GAMMA, mix, mix_one

KINDS = ("constant", "uniform", "normal")
_REACH = {"constant": 0.0, "uniform": 1.0, "normal": 6.661}  # of z


@dataclass(frozen=True, slots=True)
class Initial:
    """The distribution of the initial values of rows.

    Attributes:
        kind: one of `KINDS`.
        mean: the mean of all values.
        spread: half the width of a uniform distribution, or the standard deviation of a normal one.
        seed: 0 to 2^63 - 1. Give each table its own, otherwise equal ids get equal rows.
    """

    kind: str = "constant"
    mean: float = 0.0
    spread: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(
                f"initial values of a table: expected one of {', '.join(KINDS)}, got {self.kind!r}"
            )
        for name in ("mean", "spread"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not _fits(value):
                raise ConfigError(f"initial values of a table: {name}: expected a float32, got {value!r}")
            object.__setattr__(self, name, float(value))
        if self.spread < 0:
            raise ConfigError(f"initial values of a table: spread: expected 0 or more, got {self.spread}")
        if type(self.seed) is not int or not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"initial values of a table: seed: expected 0 to 2^63 - 1, got {self.seed!r}")

    @classmethod
    def uniform(cls, low: float, high: float, seed: int) -> Self:
        """Return values uniformly distributed on [low, high)."""
        return cls("uniform", (low + high) / 2, (high - low) / 2, seed)

    @classmethod
    def normal(cls, mean: float, std: float, seed: int) -> Self:
        """Return normally distributed values."""
        return cls("normal", mean, std, seed)

    @property
    def key(self) -> int:
        """The kernels' form of the seed."""
        return mix_one(self.seed)

    @property
    def largest(self) -> float:
        """A bound on the magnitude of all initial values."""
        return abs(self.mean) + self.spread * _REACH[self.kind]

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of JSON types."""
        return asdict(self)

    def rows(self, ids: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.float32]:
        """Return the initial rows (n, width) of ids (n,)."""
        z = np.zeros((len(ids), width + width % 2))
        if self.kind != "constant":
            start = mix(ids.view(np.uint64) ^ np.uint64(self.key))
            steps = np.arange(1, z.shape[1] // 2 + 1, dtype=np.uint64) * np.uint64(GAMMA)
            words = mix(start[:, None] + steps)  # (n, pairs)
            high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
            z[:, 0::2], z[:, 1::2] = (_even if self.kind == "uniform" else _gaussian)(high, low)
        rows: npt.NDArray[np.float32] = (self.mean + self.spread * z[:, :width]).astype(np.float32)
        return rows


def _even(high: Any, low: Any) -> tuple[Any, Any]:
    first, second = ((half >> np.uint64(8)).astype(np.float64) * 2.0**-23 - 1.0 for half in (high, low))
    return first, second


def _gaussian(high: Any, low: Any) -> tuple[Any, Any]:
    # The C library's, as compiled loops have it: numpy's own log differs in the last bit of 1 number in 300.
    log, cos, sin = (np.vectorize(each, otypes=[np.float64]) for each in (math.log, math.cos, math.sin))
    r = np.sqrt(-2.0 * log((high.astype(np.float64) + 1.0) * 2.0**-32))
    phi = 2.0 * math.pi * (low.astype(np.float64) * 2.0**-32)
    return r * cos(phi), r * sin(phi)


def _fits(value: float) -> bool:
    return abs(value) <= float(np.finfo(np.float32).max)
