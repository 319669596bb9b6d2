# SPDX-License-Identifier: Apache-2.0
"""What the v2 face raises: PaddleErrors that are also the built-in exception a v2 script may catch."""

from __future__ import annotations

from paddle.errors import ConfigError, PaddleError


class UsageError(ConfigError):
    """A layer, parameter or argument has a value that cannot work."""


class UsageTypeError(PaddleError, TypeError):
    """An argument has the wrong type."""


class NotAvailableError(PaddleError, NotImplementedError):
    """The original has it, this runtime does not."""


class MissingNameError(PaddleError, AttributeError):
    """A name of the original module that this runtime does not provide."""


class ModelFileError(PaddleError, ValueError):
    """A parameter tar or topology file is damaged or in another format."""


class TrainingError(PaddleError):
    """Training cannot go on with these numbers."""
