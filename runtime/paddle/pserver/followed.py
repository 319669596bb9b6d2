# SPDX-License-Identifier: Apache-2.0
"""A local copy of a growing table that follows a running job, and answers lookups within a maximum age.

A thread repeatedly asks the servers for the rows that changed since its last request. When all answers have arrived,
the copy contains everything that the servers had applied when that round of requests began; its age is the time since
then. After a lost connection, or if a server no longer knows what has changed, the thread fetches all rows again. Until
then, the old copy answers lookups, unless it is too old.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, PaddleError, PserverError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.walk import Source, TableRows
from paddle.threads import ServiceThread
from paddle_node.contract.classes import NamedTuple, replace

_JITTER = Random()  # noqa: S311 - not the global generator, whose sequence belongs to the program
_log = logging.getLogger(__name__)

_AT_ONCE = 1024  # rows that are inserted while lookups wait
_FIRST_REST_S, _MOST_REST_S = 0.1, 5.0
_CLOSE_S = 5.0
_PLAIN = OptimizerSpec("sgd")


class StaleCopy(PserverError):
    """Raised when a copy has not been filled yet, or is too old because the servers do not answer."""


class Live(Source, Protocol):
    """The interface of `reader.Reader` that a copy of a running job's table uses."""

    def table(self, name: str) -> TableSpec:
        """Return the specification of the growing table with this name."""

    def close(self) -> None:
        """Close the reader's connections."""


class LookupResult(NamedTuple):
    """The result of a lookup in a local copy: the rows, and how recent they are.

    Attributes:
        rows: (..., width) float32; an id without a row gets its initial values.
        batch: the latest batch that all servers had applied when the copy was updated.
        age_s: age of the copy in seconds; the copy contains all updates that are older.
    """

    rows: npt.NDArray[np.float32]
    batch: int
    age_s: float


class Followed:
    """A local copy of a growing table that a thread keeps up to date. Thread-safe; a context manager.

    Attributes:
        name: the name of the table.
        within_s: maximum age of the copy in seconds; lookups fail when it is older.
    """

    def __init__(
        self,
        connect: Callable[[], Live],
        name: str,
        *,
        within_s: float = 5.0,
        every_s: float | None = None,
        max_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start following; `wait` blocks until lookups can be answered.

        Args:
            connect: opens a reader of the job; called again after each lost connection.
            name: the name of the table.
            within_s: maximum age in seconds.
            every_s: pause between two requests for changes; None means a quarter of `within_s`.
            max_bytes: memory limit of the copy; 0 means no limit. A larger table is not followed, and lookups fail.
            clock: monotonic clock in seconds.

        Raises:
            ConfigError: an argument is out of range.
        """
        if not within_s > 0 or max_bytes < 0:
            raise ConfigError(
                f"follow: expected a positive within_s and a non-negative max_bytes, got {within_s}, {max_bytes}"
            )
        self.name, self.within_s = name, within_s
        self._connect, self._max_bytes, self._clock = connect, max_bytes, clock
        self._every_s = within_s / 4 if every_s is None else every_s
        self._lock = threading.Lock()
        self._table: HashTable | None = None
        self._batch, self._taken_at = 0, -float("inf")
        self._fault = "it has not been filled yet"
        self._changed = threading.Condition(self._lock)
        self._closing = threading.Event()
        self._thread = ServiceThread(self._work, name="paddle-follow")

    @property
    def age_s(self) -> float:
        """The age of the copy in seconds, as an upper bound; infinite before the copy is filled."""
        with self._lock:
            return self._clock() - self._taken_at

    @property
    def fault(self) -> str:
        """The reason why the last attempt to update the copy failed, or an empty string."""
        with self._lock:
            return self._fault

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows in the copy, and its memory in bytes."""
        with self._lock:
            return (0, 0) if self._table is None else (len(self._table), self._table.nbytes)

    @property
    def width(self) -> int:
        """The number of elements per row; 0 until the servers have described the table."""
        with self._lock:
            return 0 if self._table is None else self._table.spec.width

    def lookup(self, ids: npt.NDArray[np.int64]) -> LookupResult:
        """Return the rows of ids, (...) int64, and their age.

        Raises:
            StaleCopy: the copy is older than `within_s`.
        """
        flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
        with self._lock:
            age = self._clock() - self._taken_at
            if self._table is None or age > self.within_s:
                old = f"it is {age:.1f} s old" if self._table is not None else "it is empty"
                raise StaleCopy(
                    f"copy of table {self.name}: {old}, but at most {self.within_s:g} s are allowed: "
                    f"{self._fault or 'the servers are slow to answer'}"
                )
            rows, batch = self._table.lookup(flat), self._batch
        return LookupResult(rows.reshape(*np.shape(ids), rows.shape[1]), batch, age)

    def state(self) -> dict[str, Any]:
        """Return the size, age and fault of the copy as values for JSON; without a copy, `age_s` is None."""
        rows, nbytes = self.size
        age = self.age_s
        return {
            "width": self.width,
            "rows": rows,
            "nbytes": nbytes,
            "age_s": round(age, 3) if age < 1e9 else None,
            "within_s": self.within_s,
            "fault": self.fault,
        }

    def wait(self, timeout_s: float, batch: int = 0) -> None:
        """Wait until the copy contains the updates of the given batch of the table.

        Raises:
            StaleCopy: the updates did not arrive in time.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._table is not None and self._batch >= batch, timeout_s
            ):
                raise StaleCopy(
                    f"copy of table {self.name}: not filled within {timeout_s:g} s: {self._fault}"
                )

    def close(self) -> None:
        """Stop following; safe to call twice."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        rest_s = _FIRST_REST_S
        while not self._closing.is_set():
            try:
                with _Follower(self._connect(), self.name, self._lock) as follower:
                    while not self._closing.is_set():
                        self._bring_up(follower)
                        rest_s = _FIRST_REST_S
                        self._closing.wait(self._every_s)
            except (PaddleError, OSError, MemoryError) as error:
                with self._lock:
                    is_news = self._fault != (fault := str(error) or type(error).__name__)
                    self._fault = fault
                if is_news:
                    _log.warning("table %s is not followed: %s", self.name, fault)
                self._closing.wait(rest_s * _JITTER.uniform(0.5, 1.0))
                rest_s = min(2 * rest_s, _MOST_REST_S)

    def _bring_up(self, follower: _Follower) -> None:
        begun = self._clock()
        if follower.table is None and begun - self._taken_at > self.within_s:
            with self._lock:  # it can no longer answer: its memory is needed for the new copy
                self._table = None
        batch = follower.walk(self._put)
        with self._changed:
            self._table, self._batch, self._taken_at, self._fault = follower.table, batch, begun, ""
            self._changed.notify_all()

    def _put(self, table: HashTable, rows: TableRows) -> None:
        """Store rows, a few at a time, so that lookups can run in between."""
        for start in range(0, len(rows.ids), _AT_ONCE):
            with self._lock:
                table.put(rows.take(slice(start, start + _AT_ONCE)))
            if self._closing.is_set():
                raise PserverError("the copy was closed")
        if self._max_bytes and table.nbytes > self._max_bytes:
            raise PserverError(
                f"the copy takes {table.nbytes} bytes, but only {self._max_bytes} are allowed: increase max_bytes"
            )


class _Follower:
    """One connection to a job, and the copy that it updates."""

    def __init__(self, job: Live, name: str, lock: threading.Lock) -> None:
        """Start with an empty copy; `lock` is held during every change of it."""
        self._job, self._name, self._lock = job, name, lock
        self._clocks: dict[int, int] = {}
        self.table: HashTable | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()

    def walk(self, put: Callable[[HashTable, TableRows], None]) -> int:
        """Store the changed rows; return the batch that all servers had applied."""
        spec = self._job.table(self._name)
        for server in self._job.holders(self._name):
            since = self._clocks.get(server)
            walk, is_begun = self._job.walk(self._name, server, since), False
            for rows in walk:
                if self.table is None:
                    self.table = HashTable(replace(spec, budget=Budget()), _PLAIN)
                if walk.since is None and since is not None:
                    self._clocks, self.table = {}, None
                    raise PserverError(
                        "the servers no longer know which rows have changed, so all rows will be fetched again"
                    )
                with self._lock:
                    if not is_begun:
                        self.table.forget(walk.left)
                    self.table.clock, is_begun = walk.clock, True
                put(self.table, rows)
            self._clocks[server] = walk.clock
        return min(self._clocks.values())
