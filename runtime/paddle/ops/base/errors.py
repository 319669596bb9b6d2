# SPDX-License-Identifier: Apache-2.0
"""Errors raised when an operator is described or run; `graph` adds the names of the variables."""

from __future__ import annotations

from paddle.errors import ConfigError


class OpError(ConfigError):
    """Base class of operator errors."""


class UnknownOpError(OpError):
    """Raised when no operator of a type is registered."""


class AttrError(OpError):
    """Raised when an attribute is unknown, missing or of the wrong type."""


class SlotError(OpError):
    """Raised when an input or output slot is unknown or missing, or has too many variables."""


class ShapeError(OpError):
    """Raised when the shapes or dtypes of the inputs are incompatible."""


class InputError(OpError):
    """Raised when an input contains a value that the operator cannot use, such as an id outside a table."""


class RowError(InputError):
    """Raised when a row of an input contains a value that the operator cannot use.

    Attributes:
        slot: the input.
        row: the number of the row; `graph` adds the number of its sequence.
        variable: the name of the variable, if the slot has several.
    """

    variable = ""

    def __init__(self, slot: str, row: int, message: str) -> None:
        super().__init__(f"row {row} of {slot}: {message}")
        self.slot, self.row = slot, row


class EndOfData(Exception):
    """Raised when a reader has no more batches. This is not a failure, so it is not a PaddleError."""
