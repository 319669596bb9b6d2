# SPDX-License-Identifier: Apache-2.0
"""Errors between ranks. Each names the rank at fault where that is known."""

from __future__ import annotations

from paddle.errors import PaddleError


class CollectiveError(PaddleError):
    """The ranks cannot continue together.

    Attributes:
        rank: the rank at fault, or None if it is unknown.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class PeerLost(CollectiveError):
    """A rank ended, or its node cannot be reached any more."""


class PeerDiffers(CollectiveError):
    """A rank does something else than this one: another model, other sizes, fewer batches, or another job."""


class PeerLate(CollectiveError):
    """A rank is alive but did not reach the operation before the deadline."""
