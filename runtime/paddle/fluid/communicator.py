# SPDX-License-Identifier: Apache-2.0
"""Communicator: the interface of Fluid 1.5 to the exchange of asynchronous trainers with their servers."""

from __future__ import annotations

from paddle.fluid.errors import FluidError
from paddle.fluid.program.program import Program

__all__ = ["Communicator"]


class Communicator:
    """The interface of Fluid 1.5 to asynchronous training; each run exchanges data with the servers itself.

    The original merges several gradients and sends them from a thread. Here, each step sends its own gradients and
    receives the parameters, so `start` and `stop` only change the result of `is_running`.
    """

    def __init__(self, program: Program) -> None:
        """Create a communicator for a trainer's program.

        Raises:
            FluidError: the program sends no gradients, or waits for the other trainers.
        """
        types = {op.type for op in program.global_block().ops}
        if "send" not in types:
            raise FluidError(
                "Communicator: the program sends no gradients to servers; pass the program that "
                "DistributeTranspiler.transpile changed"
            )
        if "send_barrier" in types:
            raise FluidError(
                "Communicator: the program waits for the other trainers in every step; transpile it with "
                "sync_mode=False"
            )
        self._running = False

    def start(self) -> None:
        """Mark the communicator as running."""
        self._running = True

    def stop(self) -> None:
        """Mark the communicator as stopped; all gradients of earlier steps have already been sent."""
        self._running = False

    def is_running(self) -> bool:
        """Return whether `start` was called more recently than `stop`."""
        return self._running
