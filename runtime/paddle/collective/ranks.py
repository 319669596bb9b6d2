# SPDX-License-Identifier: Apache-2.0
"""Ranks: the interface of every collective backend, and operations composed of sums and broadcasts."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from paddle.backend import Array, Device
from paddle.collective.errors import CollectiveError, PeerDiffers

Arrays = Array | Sequence[Array]


class Ranks(ABC):
    """The ranks of a job, which all call the same operations in the same order. Not thread-safe.

    Attributes:
        rank: the rank of this process.
        size: the number of ranks.
        ways: the transports in use, as human-readable text; empty if there is one rank.
        device: the device on which arrays to be summed must be.
    """

    rank: int
    size: int
    ways: tuple[str, ...]
    device = Device()

    @abstractmethod
    def all_reduce(self, arrays: Arrays) -> None:
        """Replace values, in place, with their sums over all ranks.

        Args:
            arrays: contiguous arrays of one dtype, changed in place; several arrays are one operation.

        Raises:
            CollectiveError: the ranks cannot continue together; the message names the rank at fault.
            ConfigError: the arrays cannot be summed.
        """

    @abstractmethod
    def broadcast(self, arrays: Arrays, root: int = 0) -> None:
        """Replace values, in place, with the values of rank `root`. See `all_reduce` for arguments and errors."""

    @abstractmethod
    def fail(self, error: CollectiveError) -> CollectiveError:
        """End the group because this rank cannot continue; return the error, which the other ranks receive as well."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group normally. Ranks that still need this one receive an error."""

    def all_gather(self, array: Array) -> list[Array]:
        """Return the arrays of all ranks in rank order; first dimensions may differ.

        Raises CollectiveError like `all_reduce`.
        """
        xp = self.device.module()
        lengths = xp.zeros(self.size, np.int64)
        lengths[self.rank] = len(array)
        self.all_reduce(lengths)
        everyone = [xp.empty((int(length), *array.shape[1:]), array.dtype) for length in lengths]
        everyone[self.rank][...] = array
        for root, each in enumerate(everyone):
            if each.size:
                self.broadcast(each, root)
        return everyone

    def barrier(self) -> None:
        """Wait until all ranks have called this. Raises CollectiveError like `all_reduce`."""
        self.all_reduce([])

    def agree(self, subject: str, text: str) -> None:
        """Check that all ranks have the same text value; every rank calls this.

        Args:
            subject: a name of the compared value for the message, such as "program".
            text: this rank's value.

        Raises:
            PeerDiffers: a rank's value differs from rank 0's.
        """
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        said: Any = self.device.module().zeros(self.size, np.int64)
        said[self.rank] = int.from_bytes(digest, "little") >> 1
        self.all_reduce(said)
        for rank in range(self.size):
            if int(said[rank]) != int(said[0]):
                text = f"rank {rank} and rank 0 differ in their {subject}: run the same script with the same arguments"
                raise self.fail(PeerDiffers(text, rank))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
