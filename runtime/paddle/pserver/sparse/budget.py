# SPDX-License-Identifier: Apache-2.0
"""The memory budget of a growing table, and the scores by which rows are chosen for eviction.

A row's score is the number of batches with a gradient for it ("lfu"), or a sum over batches ("score") of its shows plus
`click` times its clicks (or of 1, if the trainer sends neither). Every batch multiplies the score by `decay`. A row
stores its score as its last float, as of the row's tick. Powers of the factor are products of doubles in a fixed order,
so that kernels and numpy give bitwise equal results on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.spec import RowGradient
from paddle_node.contract.classes import dataclass

Floats = npt.NDArray[np.float32]
Ages = npt.NDArray[np.uint32]

POLICIES = ("lru", "lfu", "score")
EXTRA = 2
"""Columns after the values of a gradient with shows and clicks."""
MOST_SHOWN = 1e9
MAX_SCORE = 1e30
_POWERS = 31
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory limit of a table's rows on one server, and its eviction policy.

    Attributes:
        memory: bytes for rows, states, index and sightings; 0 means no limit.
        evict: which rows are evicted first: the least recently updated rows ("lru"), those in the fewest batches
            ("lfu"), or those with the lowest scores ("score").
        decay: factor by which each batch multiplies a score, above 0 and up to 1; for "score".
        click: number of shows that one click is worth; for "score".
        min_score: rows whose score is below this are dropped, at most 1024 batches later; 0 means none.
        disk: a directory on the server's machine for a file of evicted rows, which are loaded again when a batch has
            their ids. If empty, they are dropped.
    """

    memory: int = 0
    evict: str = "lru"
    decay: float = 0.9999
    click: float = 10.0
    min_score: float = 0.0
    disk: str = ""

    def __post_init__(self) -> None:
        if type(self.memory) is not int or not 0 <= self.memory < 1 << 60:
            raise ConfigError(
                f'memory: expected a number of bytes, such as 8 << 30, or a size, such as "8GB"; got {self.memory!r}'
            )
        if self.evict not in POLICIES:
            raise ConfigError(f"evict: expected one of {', '.join(POLICIES)}, got {self.evict!r}")
        for name, most in (("decay", 1.0), ("click", 1e9), ("min_score", MAX_SCORE)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
                raise ConfigError(f"{name}: expected a number from 0 to {most:g}, got {value!r}")
            object.__setattr__(self, name, float(value))
        if self.decay == 0:
            raise ConfigError("decay: expected a number above 0: with 0, every batch would reset all scores")
        if not isinstance(self.disk, str) or "\0" in self.disk:
            raise ConfigError(f"disk: expected a directory, got {self.disk!r}")
        if self.disk and not self.memory:
            raise ConfigError('disk needs memory, such as memory="8GB": rows beyond that limit go to disk')
        if self.min_score and not self.is_scored:
            raise ConfigError('min_score: rows have a score only with evict="lfu" or evict="score"')

    @property
    def is_scored(self) -> bool:
        """Return whether rows are evicted by a stored score; otherwise, they are evicted by age."""
        return self.evict != "lru"

    @property
    def drops_rows(self) -> bool:
        """Return whether rows can be dropped because of a low score or lack of memory."""
        return self.is_scored or bool(self.memory and not self.disk)

    def powers(self) -> npt.NDArray[np.float64]:
        """Return the factors of a score after 2^k batches, for k = 0 .. 30."""
        powers = np.ones(_POWERS)
        if self.evict == "score":
            powers[0] = self.decay
            for k in range(1, _POWERS):
                powers[k] = powers[k - 1] * powers[k - 1]
        return powers

    def weights(self, gradients: Sequence[RowGradient], width: int) -> Floats | None:
        """Return the weight of each row of gradients (m,); None if each row counts as 1."""
        if not self.is_scored or all(each.values.shape[1] == width for each in gradients):
            return None
        found = []
        for _, values in gradients:
            seen = values[:, width:]
            is_wide = seen.shape[1] == EXTRA
            click = np.float32(self.click if self.evict == "score" else 0.0)
            found.append(seen[:, 0] + click * seen[:, 1] if is_wide else np.ones(len(values), np.float32))
        weights: Floats = np.concatenate(found)
        return weights


def faded(scores: Floats, ages: Ages, powers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return scores (n,) after they have decayed for the given numbers of batches (n,)."""
    left = scores.astype(np.float64)
    for k in range(int(ages.max(initial=0)).bit_length()):
        left = np.where(ages >> np.uint32(k) & np.uint32(1), left * powers[k], left)
    return left


def size_of(memory: int | str) -> int:
    """Return a number of bytes, given as a number or as text such as "8GB" or "512 MB"; units are powers of 1024.

    Raises:
        ConfigError: the text is not a size.
    """
    if not isinstance(memory, str):
        return memory
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)i?b?", memory.strip(), re.ASCII | re.IGNORECASE)
    if found is None:
        raise ConfigError(f'memory: expected a size, such as "8GB" or "512MB", got {memory!r}')
    return int(float(found[1]) * (1 << _UNITS[found[2].lower()]))


def smallest(count: int, keys: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Return the positions (count,) of the smallest of n items by the first key (n,), then by the second, and so on."""
    key, rest = keys[0], keys[1:]
    if not 0 < count < len(key):
        return np.arange(min(count, len(key)))
    limit = np.partition(key, count - 1)[count - 1]
    below, ties = np.flatnonzero(key < limit), np.flatnonzero(key == limit)
    if rest and len(ties) > count - len(below):
        ties = ties[smallest(count - len(below), [each[ties] for each in rest])]
    return np.concatenate((below, ties[: count - len(below)]))
