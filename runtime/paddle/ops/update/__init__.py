# SPDX-License-Identifier: Apache-2.0
"""Operators that update a parameter in place; the arithmetic is that of the rules in `optim`."""

from paddle.ops.update import (
    adadelta,
    adagrad,
    adam,
    adamax,
    average_accumulates,
    ftrl,
    lamb,
    momentum,
    rmsprop,
    sgd,
)

__all__ = [
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "average_accumulates",
    "ftrl",
    "lamb",
    "momentum",
    "rmsprop",
    "sgd",
]
