# SPDX-License-Identifier: Apache-2.0
"""What the v2 face raises: PaddleErrors that are also the built-in exception a v2 script may catch."""

from __future__ import annotations

from paddle.errors import ConfigError, MissingNameError, ModelFileError, NotAvailableError, PaddleError


class UsageError(ConfigError):
    """A layer, parameter or argument has a value that cannot work."""


class UsageTypeError(PaddleError, TypeError):
    """An argument has the wrong type."""


class TrainingError(PaddleError):
    """Training cannot go on with these numbers."""


__all__ = [
    "MissingNameError", "ModelFileError", "NotAvailableError", "TrainingError", "UsageError", "UsageTypeError",
]  # fmt: skip
