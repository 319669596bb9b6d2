# SPDX-License-Identifier: Apache-2.0
"""distributed_batch_reader: gives each trainer its own share of a reader's minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from paddle.env import JobEnvironment
from paddle.fluid.errors import FluidError
from paddle.reader.minibatch import batch

__all__ = ["distributed_batch_reader"]


def distributed_batch_reader(batch_reader: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of every n-th minibatch, starting at the minibatch whose index is this trainer's rank.

    n is PADDLE_TRAINERS_NUM, and the rank is PADDLE_TRAINER_ID; if they are not set, all minibatches are read. An
    incomplete last group of n minibatches is dropped, so that all trainers take the same number of steps.

    Args:
        batch_reader: function that returns an iterator over minibatches, the same in all trainers.

    Raises:
        FluidError: PADDLE_TRAINER_ID is out of range.
    """
    job = JobEnvironment.read()
    count, mine = job.num_trainers or 1, job.trainer_id or 0
    if not 0 <= mine < count:
        raise FluidError(
            f"distributed_batch_reader: expected PADDLE_TRAINER_ID from 0 to {count - 1}, got {mine}"
        )

    def read() -> Iterator[Any]:
        for each in batch(batch_reader, count, drop_last=True)():
            yield each[mine]

    return read
