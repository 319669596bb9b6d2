# SPDX-License-Identifier: Apache-2.0
"""Pooling classes: markers that ``img_pool`` (and, later, sequence pooling) takes."""

from __future__ import annotations


class BasePool:
    """A kind of pooling; ``name`` is what configurations store."""

    name = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Max(BasePool):
    """The largest item."""

    name = "max"

    def __init__(self, output_max_index: bool | None = None) -> None:
        self.output_max_index = output_max_index


class MaxWithMask(BasePool):
    """The largest item, with its position."""

    name = "max-pool-with-mask"


class CudnnMax(BasePool):
    """Max pooling; the name asks the original for cuDNN."""

    name = "cudnn-max-pool"


class CudnnAvg(BasePool):
    """Average pooling that leaves padding out; the name asks the original for cuDNN."""

    name = "cudnn-avg-pool"


class CudnnAvgInclPad(BasePool):
    """Average pooling that counts padding cells."""

    name = "cudnn-avg-incl-pad-pool"


class Avg(BasePool):
    """The mean item; ``strategy`` is average, sum or squarerootn (the last two for sequences)."""

    name = "average"
    STRATEGY_AVG, STRATEGY_SUM, STRATEGY_SQROOTN = "average", "sum", "squarerootn"

    def __init__(self, strategy: str = STRATEGY_AVG) -> None:
        self.strategy = strategy


class Sum(Avg):
    """The sum of a sequence."""

    def __init__(self) -> None:
        super().__init__(self.STRATEGY_SUM)


class SquareRootN(Avg):
    """The sum of a sequence over the square root of its length."""

    def __init__(self) -> None:
        super().__init__(self.STRATEGY_SQROOTN)
