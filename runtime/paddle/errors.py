# SPDX-License-Identifier: Apache-2.0
"""The exceptions that the runtime raises in the processes of a job.

Errors carry data (endpoint, name, expected, got); their text states what failed, where, what was expected, what was
received, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable


def if_divided(value: object) -> str:
    """Return the hint for a size that should be an integer but is a float, or ""."""
    return (
        ": `/` returns a float in Python 3; use `//` for a whole number" if isinstance(value, float) else ""
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'NAME'?" with the known name that is most similar to an unknown one, or ""."""
    from difflib import get_close_matches  # few programs contain an error

    near = get_close_matches(name, names := list(known), n=1)
    near = near or [each for each in names if each.lower() == name.lower()]
    near = near or sorted((each for each in names if len(name) > 1 and each.startswith(name)), key=len)
    return f"; did you mean {near[0]!r}?" if near else ""


class PaddleError(Exception):
    """Base class of all errors that the runtime explains to its user."""


class ConfigError(PaddleError, ValueError):
    """Raised for an invalid setting in the program: a wrong value, name, shape or combination."""


class ModelFileError(ConfigError):
    """Raised when a file of parameters or of a program is damaged or in a different format."""


class FlagError(ConfigError):
    """Raised when a flag is unknown or its value cannot be parsed."""


class PserverError(PaddleError):
    """Raised when a parameter server refused a request, or could not execute it.

    Attributes:
        endpoint: the "ip:port" that answered, or empty when no single server is at fault.
    """

    def __init__(self, message: str, endpoint: str = "") -> None:
        super().__init__(message)
        self.endpoint = endpoint


class DiskError(PserverError, OSError):
    """Raised when rows of a growing table cannot be written to a server's disk, or cannot be read back."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.errno = code


class PserverLost(PserverError):
    """Raised when a parameter server did not answer in time, or its connection broke and was not restored."""


class WaitTimeout(PserverError):
    """Raised when servers answered, but a request was not completed in time because other trainers did not arrive."""


class WireError(PserverError):
    """Raised when a peer sent bytes that violate the protocol, or refused this process's key."""


class PortBusy(PserverError):
    """Raised when a requested port is used by another process."""


class CheckpointError(PaddleError):
    """Raised when a checkpoint is damaged, incomplete, or of a different model; none of it was used."""


class NotAvailableError(PaddleError, NotImplementedError):
    """Raised for a feature of the original PaddlePaddle that this runtime does not provide."""


class MissingNameError(PaddleError, AttributeError):
    """Raised for a name of the original PaddlePaddle module that this runtime does not provide."""
