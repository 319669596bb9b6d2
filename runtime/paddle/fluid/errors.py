# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a Fluid script beyond what the core tells; each is also the exception Fluid's users expect."""

from __future__ import annotations

from paddle import errors
from paddle.errors import ConfigError, PaddleError


class FluidError(ConfigError):
    """A value or a combination that cannot be; also a ValueError."""


class FluidTypeError(FluidError, TypeError):
    """An argument of the wrong type."""


class RunError(PaddleError, RuntimeError):
    """Something cannot be done now: a closed executor, a value with sequences where an array was wanted."""


class ModelFileError(FluidError, errors.ModelFileError):
    """A file does not hold what it should."""
