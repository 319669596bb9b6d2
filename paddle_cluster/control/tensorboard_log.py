# SPDX-License-Identifier: Apache-2.0
"""Writes TensorBoard's event files, log/tensorboard/<job>/<process>/, from a thread of its own.

A tap of the console takes steps of trainers and points of scripts' curves; what the disk does not keep up with is left
out and counted. tensorboardX writes the files; where it is not installed, one line says so.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paddle_cluster.control.cost_history import BatchCount
from paddle_cluster.text.output_events import Event, Plotted, Progressed
from paddle_cluster.text.sizes import counted

EVERY_S = 2.0
WAITING = 100_000  # events
CLOSE_S = 5.0


class TensorBoardLog:
    """The curves of one job.

    Args:
        directory: of the job's event files; made with the first of them.
        tell: for the one remark that something cannot be written.
    """

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        self._directory = directory
        self._tell = tell
        self._told = False
        self._waiting: deque[tuple[float, Progressed | Plotted]] = deque()
        self._left_out = 0
        self._batches: dict[str, BatchCount] = {}
        self._writers: dict[str, Any] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write what `take` gets, if that can be."""
        try:
            import tensorboardX.event_file_writer  # noqa: F401 - who asked for it has it
        except ImportError:
            self._tell(
                "TENSORBOARD: no event files, the Python of the launcher has no tensorboardX: "
                "pip install tensorboardX; the job continues"
            )
            return
        self._thread = threading.Thread(target=self._work, name="tensorboard", daemon=True)
        self._thread.start()

    def take(self, event: Event) -> None:
        """A tap for `Console.watch`; never waits."""
        if self._thread is None or not isinstance(event, Progressed | Plotted):
            return
        if len(self._waiting) >= WAITING:
            self._left_out += 1
        else:
            self._waiting.append((time.time(), event))

    def close(self) -> None:
        """Write what waits; waits for the disk for CLOSE_S at most."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._left_out:
            self._tell(
                f"{self._directory}: {counted(self._left_out, 'point')} came too fast and are left out"
            )

    def _work(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._over.wait(EVERY_S)
            try:
                self._write()
            except OSError as error:
                if not self._told:
                    self._told = True
                    self._tell(
                        f"{self._directory}: curves cannot be written ({error.strerror}); the job continues"
                    )
        for writer in self._writers.values():
            writer.close()

    def _write(self) -> None:
        from tensorboardX.proto.event_pb2 import Event as Record
        from tensorboardX.proto.summary_pb2 import Summary

        written: Counter[str] = Counter()
        while self._waiting:
            at, event = self._waiting.popleft()
            for title, step, value in self._points(event):
                summary = Summary(value=[Summary.Value(tag=title, simple_value=value)])
                self._writer(event.process).write_event(Record(wall_time=at, step=step, summary=summary))
                written[event.process] += 1
        for process in written:
            self._writers[process].flush()

    def _points(self, event: Progressed | Plotted) -> Iterator[tuple[str, int, float]]:
        if isinstance(event, Plotted):
            yield event.curve, int(event.step), event.value
            return
        batches = self._batches.setdefault(event.process, BatchCount()).add(event.pass_id, event.batch_id)
        for title, value in (("cost", event.cost), ("samples_per_s", event.samples_per_s)):
            if value is not None:
                yield title, batches, value
        yield "pass", batches, event.pass_id

    def _writer(self, process: str) -> Any:
        from tensorboardX.event_file_writer import EventsWriter

        if process not in self._writers:
            place = self._directory / process
            place.mkdir(parents=True, exist_ok=True)
            self._writers[process] = EventsWriter(os.path.join(place, "events"))
        return self._writers[process]
