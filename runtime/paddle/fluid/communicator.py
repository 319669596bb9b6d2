# SPDX-License-Identifier: Apache-2.0
"""Communicator: the interface of Fluid 1.5 to the exchange of asynchronous trainers with their servers."""

from __future__ import annotations

from paddle.fluid.errors import FluidError
from paddle.fluid.program.program import Program

__all__ = ["Communicator"]


class Communicator:
    """Represents a trainer's exchange with its servers, which each run of the program performs itself.

    The original sends sums of several gradients from a thread. Here each step sends its gradients and receives the
    parameters, with fewer delays, so that `start` and `stop` only set the answer of `is_running`.
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
        """Mark the communicator as stopped; all gradients of earlier steps are sent."""
        self._running = False

    def is_running(self) -> bool:
        """Return whether `start` was called more recently than `stop`."""
        return self._running
