# SPDX-License-Identifier: Apache-2.0
"""Which connection an executor's operators talk through: that of the program which runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from paddle.backend import Array
from paddle.errors import PserverError
from paddle.fluid.errors import RunError
from paddle.fluid.program.program import Program
from paddle.fluid.remote.connection import Connection
from paddle.fluid.remote.distribution import SENDING, Distribution, distribution_of, received_names
from paddle.graph.errors import ExecutionError


class Switchboard:
    """See `ops.base.remote.Remote`; belongs to one executor."""

    def __init__(self) -> None:
        self._plans: WeakKeyDictionary[Program, _Plan] = WeakKeyDictionary()
        self._own: dict[Distribution, Connection] = {}
        self._used: dict[int, Connection] = {}
        self._current: Connection | None = None

    @contextmanager
    def connected(self, program: Program) -> Iterator[None]:
        """Connect a program's operators while it runs.

        Raises:
            PserverError: servers failed; as they said it, and not as the failure of an operator.
        """
        plan = self._plan(program)
        if plan.connection is None:
            yield
            return
        before, self._current = self._current, plan.connection
        self._used[id(plan.connection)] = plan.connection
        plan.connection.begin(plan.wanted)
        try:
            yield
            plan.connection.end()
        except BaseException as error:
            plan.connection.give_up()
            if isinstance(error, ExecutionError) and isinstance(error.__cause__, PserverError):
                raise error.__cause__ from error
            raise
        finally:
            self._current = before

    def close(self) -> None:
        """Leave all servers that were talked to."""
        for connection in self._used.values():
            connection.close()

    def send(self, names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str]) -> None:
        """See `Remote`."""
        self._now().send(names, values, endpoints)

    def finish_sending(self, endpoints: Sequence[str]) -> None:
        """See `Remote`."""
        self._now().finish_sending(endpoints)

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        """See `Remote`."""
        return self._now().receive(names, endpoints)

    def finish_receiving(self, endpoints: Sequence[str]) -> None:
        """See `Remote`."""
        self._now().finish_receiving(endpoints)

    def lookup(self, names: Sequence[str], ids: Sequence[Array], endpoints: Sequence[str]) -> list[Any]:
        """See `Remote`."""
        return self._now().lookup(names, ids, endpoints)

    def save(self, name: str, paths: Mapping[str, str]) -> None:
        """See `Remote`."""
        self._now().save(name, paths)

    def _now(self) -> Connection:
        if self._current is None:
            raise RunError("no program runs")
        return self._current

    def _plan(self, program: Program) -> _Plan:
        plan = self._plans.get(program)
        if plan is None or plan.version != program.version:
            plan = self._plans[program] = self._made(program)
        return plan

    def _made(self, program: Program) -> _Plan:
        if not any(op.type in SENDING for op in program.global_block().ops):
            return _Plan(program.version, None, ())
        connection = program._connection
        if not isinstance(connection, Connection):
            distribution = distribution_of(program)
            connection = self._own.setdefault(distribution, Connection(distribution))
        return _Plan(program.version, connection, received_names(program))


class _Plan:
    """Whom one version of a program talks to, and what it receives."""

    def __init__(
        self,
        version: int,
        connection: Connection | None,
        wanted: Sequence[Mapping[str, Sequence[str]]],
    ) -> None:
        self.version, self.connection, self.wanted = version, connection, wanted
