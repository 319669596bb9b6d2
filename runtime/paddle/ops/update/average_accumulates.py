# SPDX-License-Identifier: Apache-2.0
"""average_accumulates: sums of a parameter's values over the last updates; `optim.model_average` defines the rule."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.registry import operator

_SPILL = 16_384
_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")
_KEPT = (*_SUMS, *_COUNTS)


@operator(
    "average_accumulates",
    f"param {' '.join(f'in_{name}' for name in _KEPT)} -> {' '.join(f'out_{name}' for name in _KEPT)}",
    attrs={"average_window": 0.0, "max_average_window": int, "min_average_window": 10_000},
    in_place={f"out_{name}": f"in_{name}" for name in _KEPT},
)
def average_accumulates(
    param: Array,
    sum_1: Array,
    sum_2: Array,
    sum_3: Array,
    count: Array,
    count_before: Array,
    updates: Array,
    *,
    average_window: float,
    max_average_window: int,
    min_average_window: int,
) -> tuple[Array, ...]:
    """Add a parameter's value after an update to its sums, and start a new window if the current one is full.

    Sums have the parameter's shape, counts are (1,) int64.
    """
    updates += 1
    count += 1
    sum_1 += param
    total, window = int(updates[0]), int(count[0])
    if total % _SPILL == 0:
        sum_2 += sum_1
        sum_1[...] = 0
    if window >= min_average_window and window >= min(max_average_window, total * average_window):
        sum_3[...] = sum_1
        sum_3 += sum_2
        sum_1[...], sum_2[...] = 0, 0
        count_before[...], count[...] = count, 0
    return sum_1, sum_2, sum_3, count, count_before, updates
