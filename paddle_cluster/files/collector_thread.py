# SPDX-License-Identifier: Apache-2.0
"""Writes the files of all nodes in a dedicated thread, so that a stalled disk cannot stall the job's loop.

WINDOW bounds the queue on both ends: a frame is acknowledged when it has been written, so that a slow disk slows down
the nodes and no frame is dropped. Acknowledgements are batched, because one per small chunk would cost more than the
chunk. At the end, each node lists its files, and the lists are compared with the copies.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.files.collect import Collected, Collector
from paddle_cluster.files.collect_limits import CollectLimits
from paddle_cluster.files.ledger import Ledger
from paddle_cluster.system.queue_thread import QueueThread
from paddle_node.contract.classes import dataclass
from paddle_node.contract.collected import Listed
from paddle_node.contract.frames import WINDOW, cost
from paddle_node.contract.records import RecordError

ACK_SIZE = 256 << 10  # bytes; far less than may be sent unacknowledged
PATIENCE_S = 300.0  # without a successful write


@dataclass(frozen=True)
class Stored:
    """Reports that chunks from a node were written, or could not be written.

    Attributes:
        size: bytes to acknowledge, as `cost` counts them.
        problem: a sentence for the user, or empty.
    """

    node_id: int
    size: int
    problem: str


@dataclass(frozen=True)
class Compared:
    """Reports that a node's list was compared with the copies.

    Attributes:
        again: paths that the node must send again, or empty if it is done.
    """

    node_id: int
    again: tuple[str, ...]


@dataclass(frozen=True)
class FilesRefused:
    """Reports that a node sent a malformed message about collected files."""

    node_id: int
    reason: str


class CollectorThread:
    """A thread that writes collected files, with a bounded queue per node.

    Args:
        root: the directory that receives log/ and output/.
        events: the loop's queue; receives `Stored`, `Compared` and `FilesRefused`.
        limits: the limits for each node.
    """

    def __init__(
        self, root: Path, events: queue.SimpleQueue[Any], limits: CollectLimits | None = None
    ) -> None:
        self._collector = Collector(root, limits)
        self._events = events
        self._waiting: dict[int, int] = {}
        self._all_waiting = 0
        self._lock = threading.Lock()  # protects the counts of queued bytes
        self._unacked: dict[int, int] = {}
        self._asked_at: dict[int, float] = {}
        self._moved_at = 0.0  # when the queue became non-empty, or a write finished
        self._queue: QueueThread[tuple[int, int, Callable[[], str]]] = QueueThread(
            self._work, name="collection"
        )
        self._queue.start()

    def take(self, node_id: int, what: Collected, body: bytes) -> None:
        """Queue a message from a node; see `Collector.take`.

        Raises:
            RecordError: the node sent more data than was requested.
        """

        def work() -> str:
            problem = self._collector.take(node_id, what, body)
            if isinstance(what, Listed) and what.last:
                self._events.put(Compared(node_id, self._collector.end_of_list(node_id)))
            return problem

        self._post(node_id, body, work)

    def quiet_s(self, node_id: int) -> float:
        """Return the time in seconds since a node with an empty queue last sent data.

        Only for the thread that calls `take`.
        """
        now = time.monotonic()
        if self._waiting.get(node_id, 0) and 0.0 < self.stalled_s() < PATIENCE_S:
            return 0.0
        return now - max(self._asked_at.get(node_id, 0.0), self._moved_at)

    def stalled_s(self) -> float:
        """Return the duration of the current write in seconds; 0 if there is none."""
        if not self._all_waiting or not self._queue.is_alive:
            return 0.0
        return time.monotonic() - self._moved_at

    def ledger(self, node_id: int) -> Ledger:
        """Return a node's listing and its received files; valid after `close`."""
        return self._collector.ledger(node_id)

    @property
    def has_output(self) -> bool:
        """Return whether a file of output/ was received; valid after `close`."""
        return self._collector.has_output

    def unmatched(self, patterns: Sequence[str]) -> list[str]:
        """Return the patterns that match no received checkpoint; valid after `close`."""
        return self._collector.unmatched(patterns)

    def close(self, timeout_s: float = PATIENCE_S) -> list[str]:
        """Write the queued chunks and close every file; return a message for each incomplete file.

        Args:
            timeout_s: timeout for one write.
        """
        self._queue.finish()
        while not self._queue.join(min(timeout_s, 0.2)) and self.stalled_s() < timeout_s:
            pass
        if self._queue.is_alive:
            return [
                f"no write to log/ and output/ succeeded for {timeout_s:g} s; the last data received is missing"
            ]
        failed = ["the last data received for log/ and output/ was not written"] if self._all_waiting else []
        return [*failed, *self._collector.close()]

    def _post(self, node_id: int, body: bytes, job: Callable[[], str]) -> None:
        size = cost(body)
        with self._lock:
            waiting = self._waiting.get(node_id, 0)
            if waiting + size > WINDOW:
                raise RecordError(
                    f"{waiting} bytes of this node are waiting for the disk; the window is {WINDOW} bytes"
                )
            self._asked_at[node_id] = time.monotonic()
            if self._queue.is_finishing:
                return
            if not self._all_waiting:
                self._moved_at = time.monotonic()
            self._waiting[node_id] = waiting + size
            self._all_waiting += size
            self._queue.put((node_id, size, job))

    def _work(self, jobs: Sequence[tuple[int, int, Callable[[], str]]], is_last: bool) -> None:
        for node_id, size, job in jobs:
            problem = ""
            try:
                problem = job()
            except RecordError as error:
                self._events.put(FilesRefused(node_id, str(error)))
            with self._lock:
                self._waiting[node_id] -= size
                self._all_waiting -= size
                self._moved_at = time.monotonic()
            self._acknowledge(node_id, size, problem)

    def _acknowledge(self, node_id: int, size: int, problem: str) -> None:
        size += self._unacked.get(node_id, 0)
        if size < ACK_SIZE and not problem:
            self._unacked[node_id] = size
            return
        self._unacked[node_id] = 0
        self._events.put(Stored(node_id, size, problem))
