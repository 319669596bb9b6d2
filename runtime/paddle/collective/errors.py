# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between ranks. Every error names the rank that is at fault, as far as that is known."""

from __future__ import annotations

from paddle.errors import PaddleError


class CollectiveError(PaddleError):
    """The ranks cannot continue together.

    Attributes:
        rank: the one at fault, or None when that is not known.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class PeerLost(CollectiveError):
    """A rank ended, or its node cannot be reached any more."""


class PeerDiffers(CollectiveError):
    """A rank does something else than this one: another model, other sizes, fewer batches, another job."""


class PeerLate(CollectiveError):
    """A rank is there and did not come to the operation before the deadline."""
