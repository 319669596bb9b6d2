# SPDX-License-Identifier: Apache-2.0
"""Errors in describing or running an operator; `graph` adds the names of the variables."""

from __future__ import annotations

from paddle.errors import ConfigError


class OpError(ConfigError):
    """The base class of operator errors."""


class UnknownOpError(OpError):
    """No operator of that type is registered."""


class AttrError(OpError):
    """An attribute is unknown, missing or of the wrong type."""


class SlotError(OpError):
    """An input or output slot is unknown, missing or holds too many variables."""


class ShapeError(OpError):
    """Shapes or dtypes of the inputs are incompatible."""


class InputError(OpError):
    """An input holds a value that the operator cannot use, such as an id outside a table."""


class RowError(InputError):
    """A row of an input holds a value that the operator cannot use.

    Attributes:
        slot: the input.
        row: the number of the row; `graph` adds the number of its sequence.
    """

    def __init__(self, slot: str, row: int, message: str) -> None:
        super().__init__(f"row {row} of {slot}: {message}")
        self.slot, self.row = slot, row


class EndOfData(Exception):
    """A reader has no more batches. The operator that reads it has not failed, so this is not a PaddleError."""
