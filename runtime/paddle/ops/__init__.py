# SPDX-License-Identifier: Apache-2.0
"""Operators by family; importing this package fills the table in `ops.registry`."""

from paddle.ops import (
    activation,
    concat,
    cross_entropy,
    dropout,
    elementwise,
    fill,
    lookup_table,
    mean,
    mul,
    reduce,
    scale,
    softmax,
    sum,
)

__all__ = [
    "activation",
    "concat",
    "cross_entropy",
    "dropout",
    "elementwise",
    "fill",
    "lookup_table",
    "mean",
    "mul",
    "reduce",
    "scale",
    "softmax",
    "sum",
]
