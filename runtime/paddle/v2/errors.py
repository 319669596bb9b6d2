# SPDX-License-Identifier: Apache-2.0
"""What the v2 face raises: PaddleErrors that are also the built-in exception a v2 script may catch."""

from __future__ import annotations

from paddle.errors import ConfigError, ModelFileError, PaddleError


class UsageError(ConfigError):
    """A layer, parameter or argument has a value that cannot work."""


class UsageTypeError(PaddleError, TypeError):
    """An argument has the wrong type."""


class NotAvailableError(PaddleError, NotImplementedError):
    """The original has it, this runtime does not."""


class MissingNameError(PaddleError, AttributeError):
    """A name of the original module that this runtime does not provide."""


class TrainingError(PaddleError):
    """Training cannot go on with these numbers."""


__all__ = [
    "MissingNameError",
    "ModelFileError",
    "NotAvailableError",
    "TrainingError",
    "UsageError",
    "UsageTypeError",
]
