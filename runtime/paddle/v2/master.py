# SPDX-License-Identifier: Apache-2.0
"""``paddle.v2.master``: a client of the task queue that distributes records of recordio files among a job's trainers.

In the original, the master was a separate program with its state in etcd. In this implementation, the job's first
parameter server runs the queue, and saves it for a process that replaces the server. In a job without servers, each of
n trainers has its own queue with every n-th chunk. `reader.tasks` describes the rules.
"""

from __future__ import annotations

import functools
import glob
import itertools
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from paddle.errors import ConfigError, PserverError
from paddle.pserver.client.task_client import TaskClient
from paddle.pserver.wire.keys import WireKeys
from paddle.reader.leases import Holder
from paddle.reader.recordio import RecordFileError, chunk_places, read_chunk
from paddle.reader.tasks import PASSES_READ, TaskQueues
from paddle.v2 import settings
from paddle.v2.errors import MissingNameError, UsageError

__all__ = ["client", "get_c_lib"]

PASS_END = -2
READ_ERROR = -1
_LEAST_TIMEOUT_S = 60.0
_POLL_S = 0.1  # while tasks of the previous pass are leased

_Chunk = tuple[str, list[int]]  # path, the byte at which it begins

_log = logging.getLogger(__name__)
_SESSION = secrets.randbits(62) + 1
_numbers = itertools.count()  # of clients; a forked process continues with a copy, see `_holder`


class client:  # noqa: N801 - the original's name
    """A trainer's client of the task queue. Not thread-safe.

    A task counts as finished when the next records are requested; a prefetching reader therefore reports it before its
    records have been used for training.
    """

    def __init__(self, etcd_endpoints: str, timeout_sec: float, buf_size: int = 0) -> None:
        """Connect to the queue of the job.

        Args:
            etcd_endpoints: ignored; the job's servers have the queue.
            timeout_sec: seconds to wait for an answer of the queue; at least 60.
            buf_size: ignored; `reader.creator.cloud_reader` reads ahead.

        """
        self._name = self._folder = ""
        self._records: Iterator[bytes | None] = iter(())
        self._queue: TaskClient | _OwnQueue | None = _queue(max(float(timeout_sec), _LEAST_TIMEOUT_S))

    def set_dataset(self, paths: Sequence[str]) -> None:
        """Select the recordio files that passes read.

        The first trainer of a job sets the queue's files; all other trainers must set the same files. A job can have
        several data sets, one for each list of patterns.

        Args:
            paths: recordio files, as paths or patterns. All trainers must see them under these paths. Relative ones
                belong to each trainer's working directory at this time.

        Raises:
            ConfigError: no file matches a pattern, or other trainers set different files.
            RecordFileError: a file is damaged.
        """
        patterns = [paths] if isinstance(paths, str) else [os.fspath(path) for path in paths]
        files = []
        for pattern in patterns:
            found = sorted(glob.glob(pattern))
            if not found:
                raise ConfigError(f"set_dataset: no file matches {os.path.abspath(pattern)}")
            files += found
        self._name = ",".join(patterns)
        self._folder = os.getcwd()
        index = [(path, [at]) for path in files for at in chunk_places(path)]
        if isinstance(self._queue, _OwnQueue):
            index = self._queue.share_of(index, ",".join(patterns))
        self._ask({"ask": "dataset", "files": index})

    def paddle_start_get_records(self, pass_id: int) -> None:
        """Start reading a pass; passes count from 0.

        A pass that the whole job has finished gives no records, so a restarted trainer catches up quickly.
        """
        if not self._name:
            raise UsageError("paddle_start_get_records: call set_dataset first")
        PASSES_READ.append(int(pass_id))
        self._records = self._of_pass(int(pass_id))

    def next_record(self) -> tuple[bytes | None, int]:
        """Return (record, 0); (None, -2) at the end of the pass; or (None, -1) for a task that cannot be read.

        After -1, the next call continues with the next task; the queue offers the failed task to other trainers.
        """
        record = next(self._records, PASS_END)
        if isinstance(record, int):
            return None, PASS_END
        return (None, READ_ERROR) if record is None else (record, 0)

    def request_save_model(self, trainer_id: int | str, block_ms: int) -> int:
        """Return 1 if this trainer should save the model, or 0 if a different trainer saves it.

        Args:
            trainer_id: the ID of this trainer.
            block_ms: milliseconds during which no other trainer may save.
        """
        answer = self._ask({"ask": "save", "trainer": str(trainer_id), "block_s": block_ms / 1000})
        return int(answer["approved"])

    def release(self) -> None:
        """Return unread tasks and close the connection; safe to call twice."""
        if self._queue is not None:
            queue, self._queue = self._queue, None
            try:
                queue.ask({"ask": "release", "name": self._name})
            except PserverError as error:  # it ends before its trainers, or its leases end by themselves
                _log.info("cannot return this trainer's tasks to the task queue: %s", error)
            finally:
                queue.close()
        self._records = iter(())

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if self._queue is None:
            raise UsageError("this master client was released: create a new one")
        return self._queue.ask({"name": self._name, **question})

    def _of_pass(self, pass_id: int) -> Iterator[bytes | None]:
        while True:
            task = self._ask({"ask": "get", "pass": pass_id})
            if task["state"] == "over":
                return
            if task["state"] == "wait":
                time.sleep(_POLL_S)
                continue
            yield from self._of_task(task)

    def _of_task(self, task: Mapping[str, Any]) -> Iterator[bytes | None]:
        """Yield the records of a leased task from its first unread piece on; None for one that cannot be read."""
        about = {"number": task["number"], "epoch": task["epoch"]}
        for read, (path, at) in enumerate(task["pieces"][task["read"] :], task["read"] + 1):
            try:
                records = read_chunk(os.path.join(self._folder, path), at)
            except (OSError, RecordFileError) as error:
                _log.warning("task %d of %s failed: %s", task["number"], self._name, error)
                self._ask({"ask": "failed", "why": str(error), **about})
                yield None
                return
            yield from records
            if not self._ask({"ask": "read", "read": read, **about})["held"]:
                _log.warning(
                    "the lease of task %d of %s has expired: another trainer has taken the task",
                    task["number"],
                    self._name,
                )
                return


def get_c_lib() -> NoReturn:
    """Raise MissingNameError: the original loads a C library here, but this client is written in Python.

    Raises:
        MissingNameError: always.
    """
    raise MissingNameError(
        "paddle.v2.master.get_c_lib is not available: this master client is not a C library"
    )


class _OwnQueue:
    """The queue of one trainer of a job without servers, in this process."""

    def __init__(self, queues: TaskQueues, holder: Holder, trainers: int) -> None:
        self._queues, self._holder, self._trainers = queues, holder, trainers

    def share_of(self, chunks: list[_Chunk], name: str) -> list[_Chunk]:
        """Return every n-th chunk for n trainers, starting at this trainer's rank.

        Raises:
            ConfigError: there are fewer chunks than trainers.
        """
        if len(chunks) < self._trainers:
            raise ConfigError(
                f"set_dataset({name!r}): {len(chunks)} chunks are too few for {self._trainers} "
                "trainers; write more files (see dataset.common.convert)"
            )
        return chunks[self._holder.trainer :: self._trainers]

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; see `TaskQueues.ask`."""
        return self._queues.ask(self._holder, question)

    def close(self) -> None:
        """Do nothing; the original's client closes its connection here."""


@functools.cache
def _own_queues() -> TaskQueues:
    return TaskQueues()


def _holder(rank: int) -> Holder:
    """Return a new client's identity, which differs from that of any other process, including forks."""
    return Holder(rank, _SESSION, os.getpid() << 32 | next(_numbers))


def _queue(timeout_s: float) -> TaskClient | _OwnQueue:
    now = settings.current()
    job = now.environment
    trainers = job.num_trainers or now.num_trainers
    rank = now.trainer_id if job.trainer_id is None else job.trainer_id
    holder = _holder(rank)
    servers = job.endpoints or (now.endpoints if now.num_trainers > 1 else ())
    if servers:
        wire = job.wire or ("curve" if job.job_key else "plain")
        return TaskClient(
            servers[0],
            WireKeys.asked(wire, job.job_key),
            holder,
            timeout_s=timeout_s,
            patience_s=float(job.pserver_patience_s),
        )
    return _OwnQueue(_own_queues(), holder, trainers)
