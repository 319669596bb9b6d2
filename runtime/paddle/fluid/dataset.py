# SPDX-License-Identifier: Apache-2.0
"""Datasets: files of MultiSlot text for `Executor.train_from_dataset`, streamed or loaded into memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle import collective
from paddle.env import JobEnvironment
from paddle.fluid.errors import FluidError, FluidTypeError, RunError
from paddle.fluid.multislot.description import Description
from paddle.fluid.multislot.passes import Source, load
from paddle.fluid.multislot.samples import Samples, batches, joined, shared_out, slot_of
from paddle.fluid.multislot.source import Pipe
from paddle.fluid.parallel.ranks import present_group
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.scope import global_scope

__all__ = ["DatasetFactory", "InMemoryDataset", "QueueDataset"]


class DatasetFactory:
    """Creates datasets by the name of their class."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> QueueDataset | InMemoryDataset:
        """Return an empty dataset: a QueueDataset, an InMemoryDataset or a FileInstantDataset.

        Raises:
            FluidError: the class is unknown.
        """
        found = _CLASSES.get(datafeed_class)
        if found is None:
            raise FluidError(f"create_dataset: expected one of {', '.join(_CLASSES)}, got {datafeed_class!r}")
        return found()


class DatasetBase:
    """Base class of datasets: files, slots, pipe command, batch size and threads.

    Attributes:
        thread_num: number of threads that read and parse files, and number of threads that train; a single thread keeps
            the files in order.
    """

    feed_name = ""

    def __init__(self) -> None:
        self.thread_num = 1
        self._description = Description(self.feed_name)
        self._files: tuple[str, ...] = ()
        self._hdfs = ("", "")

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Set the variables that the slots of each line fill, in the order of the slots.

        Variables with a LoD level get sequences; other variables get arrays of the variable's shape.

        Raises:
            FluidError: a variable is neither int64 nor float32, or is listed twice.
        """
        slots = []
        for variable in var_list:
            if not isinstance(variable, Variable):
                raise FluidTypeError(f"set_use_var: expected variables, got {variable!r}")
            slots.append(slot_of(variable))
        names = [slot.name for slot in slots]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise FluidError(
                f"set_use_var: {', '.join(sorted(twice))} is listed twice; list each variable once"
            )
        self._description.slots = slots

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command through which each file is piped, and which must print MultiSlot text."""
        self._description.pipe_command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples in a batch; the last batch may have fewer."""
        size = int(batch_size)
        if size < 1:
            raise FluidError(f"set_batch_size: expected at least 1, got {batch_size!r}")
        self._description.batch_size = size

    def set_thread(self, thread_num: int) -> None:
        """Set the number of training threads, and of threads that read and parse files (at most one per file)."""
        self.thread_num = max(1, int(thread_num))

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the paths of the files that each pass reads."""
        if isinstance(filelist, str):
            raise FluidTypeError(f"set_filelist: expected a list of files, got the string {filelist!r}")
        self._files = tuple(map(str, filelist))

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Set the name and the `user,password` of the file system for paths that begin with hdfs: or afs:."""
        self._hdfs = (fs_name, fs_ugi)

    def desc(self) -> str:
        """Return the settings as a DataFeedDesc in protobuf text format."""
        return str(self._description)

    def batches(self, threads: int = 0) -> Iterator[Samples]:
        """Yield the batches of one pass over the files.

        Args:
            threads: reading threads; 0 means the value of `set_thread`.
        """
        return batches(self._samples(threads), self._description.batch_size)

    def _samples(self, threads: int = 0) -> Iterator[Samples]:
        if not self._description.slots:
            raise RunError("the dataset has no slots: call set_use_var first")
        if not self._files:
            raise RunError(
                "the dataset has no files: call set_filelist with at least one file in each trainer; "
                "split_files gives none to some trainers if there are fewer files than trainers"
            )
        pipe = Pipe(self._description.pipe_command, self._hdfs)
        return load(Source(self._files, tuple(self._description.slots), pipe, threads or self.thread_num))


class QueueDataset(DatasetBase):
    """A dataset that streams its files during training and rereads them in each pass."""

    feed_name = "MultiSlotDataFeed"

    def local_shuffle(self) -> None:
        """Raise NotImplementedError, because the samples of a QueueDataset are not in memory.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a QueueDataset cannot be shuffled: use an InMemoryDataset")

    def global_shuffle(self, fleet: Any = None) -> None:
        """Raise NotImplementedError, because the samples of a QueueDataset are not in memory."""
        self.local_shuffle()


class FileInstantDataset(QueueDataset):
    """A dataset that streams its files, with the behavior of `QueueDataset`."""

    feed_name = "MultiSlotFileInstantDataFeed"


class InMemoryDataset(DatasetBase):
    """A dataset that holds all samples in memory, where they can be shuffled.

    To make shuffles repeatable, call Python's `random.seed(n)`.
    """

    feed_name = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self._held: Samples | None = None
        self._least = 0  # every trainer holds at least this many samples
        self._order: NDArray[np.int64] | None = None

    def set_queue_num(self, queue_num: int) -> None:
        """Do nothing: a single thread prepares batches."""

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Do nothing: `global_shuffle` sends all samples, one slot at a time."""

    def load_into_memory(self) -> None:
        """Read all files into memory; samples that were already in memory are discarded."""
        self.release_memory()
        parts = list(self._samples())
        if not parts:
            raise RunError(f"the files contain no samples: {', '.join(self._files[:5])}")
        self._held = joined(parts)
        self._least = self._held.count

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Read all files into memory; like `load_into_memory`, this blocks until all files have been read."""
        if thread_num is not None:
            self.set_thread(thread_num)
        self.load_into_memory()

    def wait_preload_done(self) -> None:
        """Do nothing, because `preload_into_memory` has already waited."""

    def local_shuffle(self) -> None:
        """Shuffle the samples in memory among themselves, without exchanging any with other trainers."""
        order = np.arange(self._loaded().count)
        np.random.default_rng(random.getrandbits(64)).shuffle(order)
        self._order = order

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle the samples of all trainers together and give each trainer an equal share.

        All trainers then have the same number of batches, for which the last batch may exceed the batch size by one.

        The trainers are those of the job (PADDLE_TRAINER_ENDPOINTS), and all of them must call this. A job of one
        trainer shuffles like `local_shuffle`.

        Args:
            fleet: None, or an object whose `worker_num()` is the number of trainers.
            thread_num: ignored.

        Raises:
            RunError: the fleet's number of trainers differs from the job's.
            CollectiveError: a trainer did not call this.
        """
        endpoints = JobEnvironment.read().trainer_endpoints
        trainers = len(endpoints) or 1
        if fleet is not None and int(fleet.worker_num()) != trainers:
            raise RunError(
                f"global_shuffle: the fleet has {fleet.worker_num()} trainers, but "
                f"PADDLE_TRAINER_ENDPOINTS names {len(endpoints)}; start the job with paddle.py, or "
                "set this variable to one ip:port per trainer"
            )
        if trainers == 1:
            self.local_shuffle()
            return
        held, seed = self._loaded(), random.getrandbits(63)
        group = present_group(global_scope())
        if group is not None:
            self._held, self._least = shared_out(held, group, seed)
        else:
            with collective.connect(collective.Membership.of_environment()) as met:
                self._held, self._least = shared_out(held, met, seed)
                met.barrier()
        self._order = np.arange(self._held.count)

    def release_memory(self) -> None:
        """Discard all samples in memory."""
        self._held = self._order = None

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Return the number of this process's samples in memory; `fleet` is ignored."""
        return 0 if self._held is None else self._held.count

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """Return the number of shuffled samples; 0 before a shuffle."""
        return 0 if self._order is None else len(self._order)

    def batches(self, threads: int = 0) -> Iterator[Samples]:
        """Yield the batches of one pass over the samples in memory; `threads` is ignored."""
        held, order, size = self._loaded(), self._order, self._description.batch_size
        # Trainers that wait for each other's gradients need the same number of batches.
        starts = range(0, max(min(held.count, self._least), min(held.count, 1)), size)
        for start in starts:
            end = held.count if start == starts[-1] else start + size
            yield held.part(start, end) if order is None else held.take(order[start:end])

    def _loaded(self) -> Samples:
        if self._held is None:
            raise RunError("the dataset holds no samples: call load_into_memory first")
        return self._held


_CLASSES: Mapping[str, type[QueueDataset | InMemoryDataset]] = {
    "QueueDataset": QueueDataset,
    "InMemoryDataset": InMemoryDataset,
    "FileInstantDataset": FileInstantDataset,
}
