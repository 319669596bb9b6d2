# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in describing or running an operator; `graph` adds the names of the variables."""

from __future__ import annotations

from paddle.errors import ConfigError


class OpError(ConfigError):
    """Base of the errors of operators."""


class UnknownOpError(OpError):
    """No operator of that type is registered."""


class AttrError(OpError):
    """An attribute is unknown, missing or of the wrong type."""


class SlotError(OpError):
    """An input or output slot is unknown, missing or holds too many variables."""


class ShapeError(OpError):
    """Shapes or dtypes of the inputs do not fit each other."""


class InputError(OpError):
    """An input holds a value the operator cannot use, such as an id outside of a table."""


class EndOfData(Exception):
    """A reader has no more batches; no failure of the operator that asked it for one, and so no PaddleError."""
