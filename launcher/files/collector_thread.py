# SPDX-License-Identifier: Apache-2.0
"""Brings the files of all nodes to disk, in a thread of its own: a disk that stalls must not stall the job's loop.

What waits is bounded by what nodes may send unacknowledged: a chunk is acknowledged when it is written, so a slow
disk slows the sending. Acknowledgements are saved up; one for each small chunk would cost more than the chunk.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.files.collect import CollectLimits, Collector
from launcher.text.fields import FieldError

ACK_SIZE = 256 << 10  # bytes; far below what may travel unacknowledged
CLOSE_S = 30.0
WAITING_LIMIT = 8 << 20  # bytes of a node; several times what may travel unacknowledged
_JOB_SIZE = 1 << 10  # beside the bytes of a chunk


@dataclass(frozen=True)
class Stored:
    """Event: chunks of a node were written, or could not be.

    Attributes:
        size: bytes to acknowledge.
        problem: a sentence for the user, or empty.
    """

    node_id: int
    size: int
    problem: str


class CollectorThread:
    """Files on their way to disk.

    Args:
        root: the directory that gets log/ and output/.
        events: the loop's queue; gets `Stored`.
        limits: of each node.
    """

    def __init__(
        self, root: Path, events: queue.SimpleQueue[Any], limits: CollectLimits | None = None
    ) -> None:
        self._collector = Collector(root, limits)
        self._events = events
        self._jobs: deque[tuple[int, int, Callable[[], None]]] = deque()
        self._waiting: dict[int, int] = {}
        self._wake = threading.Condition()
        self._closing = False
        self._unacked: dict[int, int] = {}
        self._asked_at: dict[int, float] = {}
        self._thread = threading.Thread(target=self._work, name="collection", daemon=True)
        self._thread.start()

    def store(self, node_id: int, path: str, offset: int, reset: bool, body: bytes, eof: bool) -> None:
        """Have a chunk written; see `Collector.store`.

        Raises:
            FieldError: the path leads elsewhere, the offset is none, or more comes than was asked for.
        """
        self._collector.check(node_id, path, offset)
        self._asked_at[node_id] = time.monotonic()

        def write() -> None:
            problem = self._collector.store(node_id, path, offset, reset, body, eof)
            size = self._unacked.get(node_id, 0) + len(body)
            if size < ACK_SIZE and not problem:
                self._unacked[node_id] = size
                return
            self._unacked[node_id] = 0
            self._events.put(Stored(node_id, size, problem))

        self._post(node_id, len(body), write)

    def link(self, node_id: int, path: str, to: str) -> None:
        """Make a link in output/; see `Collector.link`.

        Raises:
            FieldError: it leads elsewhere, or more comes than was asked for.
        """
        self._collector.check_link(node_id, path, to)

        def make() -> None:
            problem = self._collector.link(node_id, path, to)
            if problem:
                self._events.put(Stored(node_id, 0, problem))

        self._post(node_id, 0, make)

    def remove(self, node_id: int, path: str) -> None:
        """A link is gone, or a file that was sent in part; see `Collector.remove`.

        Raises:
            FieldError: the path leads elsewhere, or more comes than was asked for.
        """
        self._collector.check(node_id, path)
        self._post(node_id, 0, lambda: self._collector.remove(node_id, path))

    def move(self, node_id: int, path: str, to: str) -> None:
        """Give a log the name that it has on its node now.

        Raises:
            FieldError: it is no log, a path leads elsewhere, or more comes than was asked for.
        """
        self._collector.check_move(node_id, path, to)
        self._post(node_id, 0, lambda: self._collector.move(node_id, path, to))

    def asked_at(self, node_id: int) -> float:
        """Monotonic time of the last chunk of a node; 0 before the first. For the thread that calls `store`."""
        return self._asked_at.get(node_id, 0.0)

    @property
    def has_output(self) -> bool:
        """Whether a file of output/ came; asked when the collection was closed."""
        return self._collector.has_output

    def close(self, timeout_s: float = CLOSE_S) -> list[str]:
        """Write what waits and close every file; returns a sentence for each that is not complete."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return [f"the disk of log/ and output/ did not take everything within {timeout_s:g} s"]
        failed = ["what came last of log/ and output/ was not written"] if any(self._waiting.values()) else []
        return [*failed, *self._collector.close()]

    def _post(self, node_id: int, size: int, job: Callable[[], None]) -> None:
        with self._wake:
            waiting = self._waiting.get(node_id, 0)
            if waiting > WAITING_LIMIT:
                raise FieldError(f"it sends more than was acknowledged: {waiting} bytes wait for the disk")
            if not self._closing:
                self._waiting[node_id] = waiting + size + _JOB_SIZE
                self._jobs.append((node_id, size + _JOB_SIZE, job))
                self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not (self._jobs or self._closing):
                    self._wake.wait()
                if not self._jobs:
                    return
                jobs, self._jobs = self._jobs, deque()
            for node_id, size, job in jobs:
                job()
                with self._wake:
                    self._waiting[node_id] -= size
