# SPDX-License-Identifier: Apache-2.0
"""What the failure of a thread means: an event, so that the job ends with its cause and nobody waits for what died."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddle_cluster.record import dataclass


@dataclass(frozen=True)
class ThreadFailed:
    """A thread ended by an error that nobody caught.

    Attributes:
        what: the error and where it was raised, as a sentence.
    """

    name: str
    what: str


@contextmanager
def posted_to(events: queue.SimpleQueue[Any]) -> Iterator[None]:
    """Post a ThreadFailed for each thread of this process that fails while the context lasts."""

    def post(failed: threading.ExceptHookArgs) -> None:
        if issubclass(failed.exc_type, SystemExit):
            return
        import traceback  # brings tokenize, and most jobs need neither

        frames = traceback.extract_tb(failed.exc_traceback)
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        name = failed.thread.name if failed.thread is not None else "unnamed"
        events.put(ThreadFailed(name, f"{failed.exc_type.__name__}: {failed.exc_value!s:.300}{where}"))

    before, threading.excepthook = threading.excepthook, post
    try:
        yield
    finally:
        threading.excepthook = before
