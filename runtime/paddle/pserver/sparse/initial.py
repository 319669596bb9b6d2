# SPDX-License-Identifier: Apache-2.0
"""Computes the initial values of a row from (seed, id) alone, so that the order of arrival does not matter.

Element j of row `id` is mean + spread · z, computed in float64 and rounded to float32. z comes from the
splitmix64 stream (see `mixing`) that starts at s = mix(id ^ mix(seed)): word k is mix(s + (k+1)·γ), with
high and low halves h, l of 32 bits. Word k determines the elements 2k and 2k + 1:

    constant:  z = 0
    uniform:   z = 2 · ⌊h/2⁸⌋/2²⁴ − 1 and the same of l: uniform on [−1, 1)
    normal:    r = √(−2 ln((h + 1)/2³²)),  φ = 2π l/2³²:  z = r cos φ and r sin φ   (Box and Muller, 1958)

Logarithm, cosine and sine are series of additions and multiplications, so all machines and `kernels/gauss.h` agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.sparse.mixing import GAMMA, mix, mix_one
from paddle_node.contract.classes import asdict, dataclass

KINDS = ("constant", "uniform", "normal")
# Taylor series, from the last factor on: ln((1 + s)/(1 - s)) = s (2 + 2 s^2/3 + ..) for |s| < 0.18; cosine and sine
# up to an eighth of a turn.
_LOG = [2.0 / k for k in range(19, 0, -2)]
_COSINE = [(-1.0) ** k / math.factorial(2 * k) for k in range(8, -1, -1)]
_SINE = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(7, -1, -1)]
_REACH = {"constant": 0.0, "uniform": 1.0, "normal": 6.661}  # of z


@dataclass(frozen=True, slots=True)
class Initial:
    """The distribution from which the initial values of a table's rows are drawn.

    Attributes:
        kind: one of `KINDS`.
        mean: the mean of all values.
        spread: half the width of a uniform distribution, or the standard deviation of a normal one.
        seed: 0 to 2^63 - 1. Use a different seed for each table; otherwise, equal ids get equal rows.
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
        """Return a uniform distribution on [low, high). Raises ConfigError for invalid arguments."""
        return cls("uniform", (low + high) / 2, (high - low) / 2, seed)

    @classmethod
    def normal(cls, mean: float, std: float, seed: int) -> Self:
        """Return a normal distribution. Raises ConfigError for invalid arguments."""
        return cls("normal", mean, std, seed)

    @property
    def key(self) -> int:
        """The seed in the form that kernels use."""
        return mix_one(self.seed)

    @property
    def largest(self) -> float:
        """A bound on the magnitude of all initial values."""
        return abs(self.mean) + self.spread * _REACH[self.kind]

    def to_json(self) -> dict[str, Any]:
        """Return the distribution as a dictionary of JSON values."""
        return asdict(self)

    def rows(self, ids: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.float32]:
        """Return the initial values of ids (n,), as (n, width) float32."""
        z = np.zeros((len(ids), width + width % 2))
        if self.kind != "constant":
            start = mix(ids.view(np.uint64) ^ np.uint64(self.key))
            steps = np.arange(1, z.shape[1] // 2 + 1, dtype=np.uint64) * np.uint64(GAMMA)
            words = mix(start[:, None] + steps)  # (n, pairs)
            high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
            z[:, 0::2], z[:, 1::2] = (_even if self.kind == "uniform" else _gaussian)(high, low)
        return (self.mean + self.spread * z[:, :width]).astype(np.float32)


def _even(high: Any, low: Any) -> tuple[Any, Any]:
    first, second = ((half >> np.uint64(8)).astype(np.float64) * 2.0**-23 - 1.0 for half in (high, low))
    return first, second


def _gaussian(high: Any, low: Any) -> tuple[Any, Any]:
    r = np.sqrt(-2.0 * _log(high.astype(np.float64) + 1.0))
    quarters = (low + np.uint64(1 << 29)) >> np.uint64(30)
    a = (low.astype(np.float64) - quarters.astype(np.float64) * 2.0**30) * (math.pi / 2.0**31)
    sine, cosine = (_series(each, a * a) for each in (_SINE, _COSINE))
    sine = sine * a
    is_odd = (quarters & np.uint64(1)).astype(np.bool_)
    x, y = np.where(is_odd, sine, cosine), np.where(is_odd, cosine, sine)
    x = np.where((quarters + np.uint64(1)) & np.uint64(2), -x, x)
    return r * x, r * np.where(quarters & np.uint64(2), -y, y)


def _log(n: Any) -> Any:
    """Return ln(n / 2^32)."""
    m, e = np.frexp(n)
    is_low = m < math.sqrt(0.5)
    m, e = np.where(is_low, 2.0 * m, m), np.where(is_low, e - 1, e)
    s = (m - 1.0) / (m + 1.0)
    return (e - 32.0) * math.log(2.0) + s * _series(_LOG, s * s)


def _series(factors: Sequence[float], y: Any) -> Any:
    total = np.full_like(y, factors[0])
    for each in factors[1:]:
        total = total * y + each
    return total


def _fits(value: float) -> bool:
    return abs(value) <= float(np.finfo(np.float32).max)
