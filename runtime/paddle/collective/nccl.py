# SPDX-License-Identifier: Apache-2.0
"""Collective operations on GPUs with NCCL (through cupy); the ranks coordinate through a group on the hosts.

NCCL hangs when a rank is missing. Therefore ranks first compare their next operation through the host group, which
names a rank that is lost, late or doing something different. While NCCL works, a failure that the host group reports or
an error of NCCL itself ends the wait.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from paddle.backend import Device, DeviceError
from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate
from paddle.collective.exchange.task import WORDS, Kind, Task, dtype_code
from paddle.collective.group import Group
from paddle.collective.ranks import Arrays, Ranks
from paddle.errors import ConfigError

_ID_WORDS = 128  # signed bytes, as cupy gives them
_PAUSES_S = (20e-6, 1e-3)
_TYPES = {
    "int8": "NCCL_INT8",
    "uint8": "NCCL_UINT8",
    "int32": "NCCL_INT32",
    "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64",
    "uint64": "NCCL_UINT64",
    "float16": "NCCL_FLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
}


class NcclRanks(Ranks):
    """The ranks of a job with one GPU each, whose arrays NCCL sums."""

    def __init__(self, host: Group, device: Device, timeout_s: float) -> None:
        """Create NCCL's communicator; all ranks must call this simultaneously.

        Args:
            host: the group of the same ranks on the host; closed with this.
            device: this rank's GPU.

        Raises:
            DeviceError: the installed cupy has no NCCL.
        """
        self._cupy: Any = device.module()
        self._nccl: Any = getattr(self._cupy.cuda, "nccl", None)
        if self._nccl is None or not getattr(self._nccl, "available", False):
            raise DeviceError(
                "this cupy lacks NCCL; install it with python -m cupyx.tools.install_library --library nccl"
            )
        self._host, self._timeout_s = host, timeout_s
        self.rank, self.size, self.ways, self.device = host.rank, host.size, ("nccl",), device
        self._number = 0
        identity = np.zeros(_ID_WORDS, np.int64)
        if self.rank == 0:
            identity[:] = self._nccl.get_unique_id()
        host.broadcast(identity)
        with device.active():
            self._communicator = self._nccl.NcclCommunicator(self.size, tuple(map(int, identity)), self.rank)

    def all_reduce(self, arrays: Arrays) -> None:
        """Replace cupy arrays on this rank's GPU with their sums over all ranks; see `Ranks.all_reduce`."""
        self._run(Kind.SUM, arrays, 0)

    def broadcast(self, arrays: Arrays, root: int = 0) -> None:
        """Replace cupy arrays on this rank's GPU with the arrays of rank `root`; see `Ranks.broadcast`."""
        self._run(Kind.BROADCAST, arrays, root)

    def fail(self, error: CollectiveError) -> CollectiveError:
        """End the group because this rank cannot continue; see `Ranks.fail`."""
        self._communicator.abort()
        return self._host.fail(error)

    def close(self) -> None:
        """Leave the group normally; see `Ranks.close`."""
        self._communicator.destroy()
        self._host.close()

    def _run(self, kind: Kind, arrays: Arrays, root: int) -> None:
        listed: list[Any] = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
        dtype = listed[0].dtype if listed else np.dtype(np.float32)
        for each in listed:
            if each.dtype != dtype or dtype.name not in _TYPES or not each.flags.c_contiguous:
                raise ConfigError(
                    "arrays exchanged between GPUs must be contiguous and have one dtype that NCCL supports, got "
                    f"{each.dtype}{'' if each.flags.c_contiguous else ', not contiguous'}"
                )
        task = Task(self._number, kind, dtype_code(dtype), sum(each.nbytes for each in listed), root)
        self._number += 1
        self._compare(task)
        nccl, code = self._nccl, getattr(self._nccl, _TYPES[dtype.name])
        with self.device.active():
            stream = self._cupy.cuda.get_current_stream()
            nccl.groupStart()
            for each in listed:
                if each.size and kind == Kind.SUM:
                    pointer = each.data.ptr
                    self._communicator.allReduce(pointer, pointer, each.size, code, nccl.NCCL_SUM, stream.ptr)
                elif each.size:
                    self._communicator.bcast(each.data.ptr, each.size, code, root, stream.ptr)
            nccl.groupEnd()
            self._wait(stream, task)

    def _compare(self, task: Task) -> None:
        everyone = np.zeros((self.size, WORDS), np.int64)
        everyone[self.rank] = task.words()
        self._host.all_reduce(everyone)
        for rank in range(self.size):
            try:
                task.check(tuple(everyone[rank].tolist()), rank)
            except PeerDiffers as error:
                raise self.fail(error) from None

    def _wait(self, stream: Any, task: Task) -> None:
        event = self._cupy.cuda.Event()
        event.record(stream)
        deadline, pause_s = time.monotonic() + self._timeout_s, _PAUSES_S[0]
        while not event.done:
            try:
                self._communicator.check_async_error()
                self._host.listen()
            except CollectiveError:
                self._communicator.abort()
                raise
            except self._nccl.NcclError as error:
                raise self.fail(
                    CollectiveError(f"rank {self.rank}: {task.describe()}: {error}", self.rank)
                ) from error
            if time.monotonic() > deadline:
                raise self.fail(
                    PeerLate(f"{task.describe()} did not finish in NCCL within {self._timeout_s:g} s")
                )
            time.sleep(pause_s)  # NCCL can only be waited for in a thread without a deadline
            pause_s = min(2 * pause_s, _PAUSES_S[1])
