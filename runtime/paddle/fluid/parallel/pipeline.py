# SPDX-License-Identifier: Apache-2.0
"""PipelineOptimizer: wraps an optimizer and cuts its program into sections for `Executor.train_from_dataset`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.places import CPUPlace
from paddle.graph.block import Name


class Minimizing(Protocol):
    """The interface of optimizers that `PipelineOptimizer` can wrap."""

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
    ) -> tuple[Any, Any]:
        """Append all operators of a training step; see `Optimizer.minimize`."""


class PipelineOptimizer:
    """Pipeline parallelism: each batch passes through sections of the program on separate threads; see `run.sections`.

    k lists of variables produce 2k − 1 sections: the operators up to the first list, up to the second, and so on; then
    the rest of the forward pass with the beginning of the backward pass; then the backward pass and updates of each
    earlier section, in reverse order. A section starts a batch once the parameters that it reads have been updated for
    the previous batch, so that losses and parameters equal those of the undivided program.
    """

    def __init__(
        self,
        optimizer: Minimizing,
        cut_list: Sequence[Sequence[Variable]] | None = None,
        place_list: Sequence[object] | None = None,
        concurrency_list: Sequence[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        """Check and save the settings.

        Args:
            optimizer: the optimizer that updates the parameters.
            cut_list: lists of variables at which the forward pass is cut; the last list contains the loss. None means
                one section.
            place_list: one CPUPlace per section; None: CPUPlace for all.
            concurrency_list: ignored: each section has one thread.
            queue_size: maximum number of batches waiting for a section.
            sync_steps: ignored: every step sees all updates.
            start_cpu_core_id: ignored.

        Raises:
            FluidError: the numbers of places and sections differ, a place is not a CPU, or queue_size is below 1.
            FluidTypeError: optimizer is not an optimizer, or cut_list holds anything but lists of variables.
        """
        if not callable(getattr(optimizer, "minimize", None)):
            raise FluidTypeError(f"PipelineOptimizer: expected an optimizer, got {optimizer!r}")
        cuts = [list(each) for each in cut_list or []]
        for each in (one for cut in cuts for one in cut):
            if not isinstance(each, Variable):
                raise FluidTypeError(
                    f"PipelineOptimizer: expected lists of variables in cut_list, got {each!r}"
                )
        if place_list is not None:
            if cuts and len(place_list) != 2 * len(cuts) - 1:
                raise FluidError(
                    f"PipelineOptimizer: {len(cuts)} cuts make {2 * len(cuts) - 1} sections, but place_list has "
                    f"{len(place_list)} places"
                )
            if not all(isinstance(each, CPUPlace) for each in place_list):
                raise FluidError(
                    "PipelineOptimizer: sections run on the CPU; use CPUPlace() for each, or omit place_list"
                )
        if queue_size < 1:
            raise FluidError(f"PipelineOptimizer: expected a queue_size of 1 or more, got {queue_size}")
        self._optimizer, self._cuts, self._queue_size = optimizer, cuts, int(queue_size)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
    ) -> tuple[Any, Any]:
        """Append the operators of a step, and record the cuts in the program; see `Optimizer.minimize`."""
        made = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        program: Any = loss.block.program
        program._pipeline_opt = {
            "cut_list": [[each.name for each in cut] for cut in self._cuts],
            "queue_size": self._queue_size,
        }
        return made
