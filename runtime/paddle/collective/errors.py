# SPDX-License-Identifier: Apache-2.0
"""The exceptions of collective operations. Each names the rank at fault, if it is known."""

from __future__ import annotations

from paddle.errors import PaddleError


class CollectiveError(PaddleError):
    """Raised when the ranks of a job cannot continue together.

    Attributes:
        rank: the rank at fault, or None if it is unknown.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class PeerLost(CollectiveError):
    """Raised when a rank has exited, or its node is unreachable."""


class PeerDiffers(CollectiveError):
    """Raised when another rank has a different job, model, array size or number of batches."""


class PeerLate(CollectiveError):
    """Raised when a rank is alive but has not reached an operation before the deadline."""
