# SPDX-License-Identifier: Apache-2.0
"""Pooling classes, which the layers ``img_pool`` and ``pooling`` accept as arguments."""

from __future__ import annotations


class BasePoolingType:
    """Base class of pooling methods; ``name`` is the name in configurations."""

    name = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Max(BasePoolingType):
    """Max pooling: the largest element of each column or window."""

    name = "max"

    def __init__(self, output_max_index: bool | None = None) -> None:
        self.output_max_index = output_max_index


class _Plain(BasePoolingType):
    """A kind of pooling without settings."""

    def __init__(self) -> None:
        super().__init__(self.name)


def _pool(kind: str, name: str, does: str) -> type[_Plain]:
    return type(kind, (_Plain,), {"__doc__": does, "__module__": __name__, "name": name})


MaxWithMask = _pool("MaxWithMask", "max-pool-with-mask", "The largest item, with its position.")
CudnnMax = _pool("CudnnMax", "cudnn-max-pool", "Max pooling; the original uses cuDNN for this name.")
CudnnAvg = _pool(
    "CudnnAvg", "cudnn-avg-pool", "Average pooling that excludes padding; the original uses cuDNN for it."
)
CudnnAvgInclPad = _pool(
    "CudnnAvgInclPad", "cudnn-avg-incl-pad-pool", "Average pooling that includes padding cells."
)


class Avg(BasePoolingType):
    """Average pooling; ``strategy`` is average, sum or squarerootn (for sequences only, except average)."""

    name = "average"
    STRATEGY_AVG, STRATEGY_SUM, STRATEGY_SQROOTN = "average", "sum", "squarerootn"

    def __init__(self, strategy: str = STRATEGY_AVG) -> None:
        self.strategy = strategy


class Sum(Avg):
    """Sum pooling: the sum of a sequence's rows."""

    def __init__(self) -> None:
        super().__init__(self.STRATEGY_SUM)


class SquareRootN(Avg):
    """Square-root pooling: the sum of a sequence's rows, divided by the square root of its length."""

    def __init__(self) -> None:
        super().__init__(self.STRATEGY_SQROOTN)
