# SPDX-License-Identifier: Apache-2.0
"""AsyncExecutor of Fluid 1.2 to 1.4: trains on files in MultiSlot text format; a DataFeedDesc describes their slots."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from paddle.backend import to_host
from paddle.fluid.errors import FluidError, FluidTypeError, no_attribute
from paddle.fluid.executor import Executor
from paddle.fluid.multislot.description import parse_description
from paddle.fluid.multislot.passes import Printing, Source, Step, load, printing, run_pass, text
from paddle.fluid.multislot.samples import batches, check_variables
from paddle.fluid.multislot.source import Pipe
from paddle.fluid.program.program import Program, default_main_program, default_startup_program
from paddle.fluid.run.places import CPUPlace
from paddle.graph.block import Name
from paddle.ops.base.lod import plain
from paddle_node.contract.classes import replace

__all__ = ["AsyncExecutor", "DataFeedDesc"]


class DataFeedDesc:
    """A description of the input files for `AsyncExecutor.run`: their slots and the batch size.

    Attributes:
        proto_desc: the parsed description, in which slots are sparse and unused by default.
    """

    def __init__(self, proto_file: str) -> None:
        with open(proto_file, encoding="utf-8") as file:
            self.proto_desc = parse_description(file.read(), str(proto_file))

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples in a batch.

        Raises:
            FluidError: batch_size is below 1.
        """
        if int(batch_size) < 1:
            raise FluidError(f"set_batch_size: expected at least 1, got {batch_size!r}")
        self.proto_desc.batch_size = int(batch_size)

    def set_dense_slots(self, dense_slots_name: Sequence[str]) -> None:
        """Make the given slots dense: each becomes an array with the shape of its variable.

        Raises:
            FluidError: a slot is unknown.
        """
        wanted = self._known("set_dense_slots", dense_slots_name)
        self.proto_desc.slots = [
            replace(slot, is_dense=slot.is_dense or slot.name in wanted) for slot in self.proto_desc.slots
        ]

    def set_use_slots(self, use_slots_name: Sequence[str]) -> None:
        """Select the slots that fill the variables of the same names; other slots are skipped.

        Raises:
            FluidError: a slot is unknown.
        """
        wanted = self._known("set_use_slots", use_slots_name)
        self.proto_desc.slots = [
            replace(slot, is_used=slot.is_used or slot.name in wanted) for slot in self.proto_desc.slots
        ]

    def desc(self) -> str:
        """Return the description in protobuf text format."""
        return str(self.proto_desc)

    def _known(self, method: str, names: Sequence[str]) -> list[str]:
        wanted = [names] if isinstance(names, str) else list(names)
        known = [slot.name for slot in self.proto_desc.slots]
        for name in wanted:
            if name not in known:
                raise FluidError(
                    f"{method}: no slot is named {name!r}; known slots: {', '.join(known) or 'none'}"
                )
        return wanted


class AsyncExecutor:
    """Trains a program on files with several threads, which update shared parameters without locks (Hogwild)."""

    def __init__(self, place: CPUPlace | None = None, run_mode: str = "") -> None:
        """Create an executor.

        Raises:
            FluidTypeError: the place is not a CPU.
        """
        if place is not None and not isinstance(place, CPUPlace):
            raise FluidTypeError(f"AsyncExecutor: expected a CPUPlace, got {place!r}")
        self._executor = Executor(place or CPUPlace())

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, name, _OF_PSLIB)

    def run_startup_program(self, program: Program | None = None) -> None:
        """Run a startup program, by default the default startup program, to initialize the variables."""
        self._executor.run(default_startup_program() if program is None else program)

    def run(
        self,
        program: Program | None,
        data_feed: DataFeedDesc,
        filelist: str | Sequence[str],
        thread_num: int,
        fetch: Name | Sequence[Name] | None,
        mode: str | bool = "",
        debug: bool = False,
    ) -> None:
        """Run a program on each batch of the files, and print the means of the fetched values at the end.

        Args:
            program: the program to run; None means the default main program.
            data_feed: description of the files' slots, and the batch size.
            filelist: paths, or a single path.
            thread_num: number of threads that read and parse files, and number of threads that train; see
                `Executor.train_from_dataset`.
            fetch: variables or names.
            mode: ignored; a boolean means `debug`, as in 1.2.
            debug: print the fetched values of each batch.

        Raises:
            FluidError: a used slot has no variable, or data_feed or filelist is missing.
        """
        if not isinstance(data_feed, DataFeedDesc):
            raise FluidTypeError(f"AsyncExecutor.run: data_feed: expected a DataFeedDesc, got {data_feed!r}")
        if not filelist:
            raise FluidError("AsyncExecutor.run: filelist: expected at least one file, got an empty list")
        files = (filelist,) if isinstance(filelist, str) else tuple(map(str, filelist))
        target = default_main_program() if program is None else program
        slots = check_variables(data_feed.proto_desc.slots, target.global_block())
        if not any(slot.is_used for slot in slots):
            raise FluidError(
                "AsyncExecutor.run: no slot is used; call set_use_slots of the DataFeedDesc first"
            )
        source = Source(files, slots, Pipe(data_feed.proto_desc.pipe_command), int(thread_num))
        printed = printing(fetch, None, 1, debug or mode is True)
        sums: list[Any] = [0.0] * len(printed.fetches)
        steps, counting = 0, threading.Lock()

        def counted(run: Step, feed: Any, fetches: Sequence[Name]) -> Sequence[Any]:
            nonlocal steps
            values = run(feed, printed.fetches)
            with counting:
                steps += 1
                for at, value in enumerate(values):
                    sums[at] = sums[at] + np.mean(to_host(plain(value.value())))
            return values

        shown = printed if printed.totals else Printing((), (), 1)
        runs = self._executor.steps(target, int(thread_num), None)
        run_pass(
            [partial(counted, run) for run in runs],
            batches(load(source), data_feed.proto_desc.batch_size),
            shown,
        )
        if steps and printed.fetches:
            means = ", ".join(
                f"{label}: {text(total / steps)}" for label, total in zip(printed.labels, sums, strict=True)
            )
            sys.stdout.write(f"mean of {steps} batches: {means}\n")
            sys.stdout.flush()


_OF_PSLIB = dict.fromkeys(
    ("config_distributed_nodes", "download_data", "get_instance", "init_model", "init_server", "init_worker",
     "save_model", "stop"),
    "use DistributeTranspiler, and run its trainer program with this executor",
)  # fmt: skip
"""Method for jobs with table servers, which the original's run_mode="mpi" had -> what to use instead."""
