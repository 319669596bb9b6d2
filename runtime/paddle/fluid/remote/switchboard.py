# SPDX-License-Identifier: Apache-2.0
"""Switchboard: routes an executor's operators to the connection of the running program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from paddle.backend import Array
from paddle.errors import PserverError
from paddle.fluid.errors import RunError
from paddle.fluid.program.program import Program
from paddle.fluid.remote.distribution import (
    SENDING,
    Distribution,
    distribution_of,
    received_in_place,
    received_names,
)
from paddle.fluid.run.scope import Scope
from paddle.graph.errors import ExecutionError
from paddle.ops.base.body import Peers

if TYPE_CHECKING:
    from paddle.fluid.remote.connection import Connection


class Switchboard:
    """An implementation of `Remote` for one executor: forwards operators' calls to the running program's connection."""

    def __init__(self) -> None:
        self._plans: WeakKeyDictionary[Program, _Plan] = WeakKeyDictionary()
        self._own: dict[Distribution, Connection] = {}
        self._used: dict[int, Connection] = {}
        self._current: _Plan | None = None
        self.peers: Peers | None = None

    @contextmanager
    def connected(self, program: Program, scope: Scope) -> Iterator[None]:
        """Return a context in which a program's operators are connected to their servers.

        Raises:
            PserverError: servers failed. The error does not name an operator.
        """
        plan = self._plan(program)
        if not plan.wanted:
            yield
            return
        before, self._current = self._current, plan
        for connection, wanted in plan.wanted.items():
            self._used[id(connection)] = connection
            connection.begin(wanted, plan.in_place, trains=plan.trains, scope=scope)
        try:
            yield
            for connection in plan.wanted:
                connection.end(trains=plan.trains, starts=plan.starts, scope=scope)
        except BaseException as error:
            for connection in plan.wanted:
                connection.give_up()
            if isinstance(error, ExecutionError) and isinstance(error.__cause__, PserverError):
                raise error.__cause__ from error
            raise
        finally:
            self._current = before

    @contextmanager
    def among(self, peers: Peers) -> Iterator[None]:
        """Return a context in which a program's operators are connected to their peers."""
        before, self.peers = self.peers, peers
        try:
            yield
        finally:
            self.peers = before

    def close(self) -> None:
        """Disconnect from all servers that this trainer is connected to."""
        for connection in self._used.values():
            connection.close()

    def send(self, names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str]) -> None:
        """Send named values to their servers, possibly later: they must not change until the run ends."""
        self._to(endpoints).send(names, values, endpoints)

    def finish_sending(self, endpoints: Sequence[str]) -> None:
        """Report that all values of this step are sent, and wait until the servers have computed the step."""
        self._to(endpoints).finish_sending(endpoints)

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        """Return the named values from their servers, in the given order."""
        return self._to(endpoints).receive(names, endpoints)

    def finish_receiving(self, endpoints: Sequence[str]) -> None:
        """Record that all values of this step have been received."""
        self._to(endpoints).finish_receiving(endpoints)

    def lookup(self, names: Sequence[str], ids: Sequence[Array], endpoints: Sequence[str]) -> list[Any]:
        """Return rows (n, ...) of each named variable from its server, for ids (n,) int64."""
        return self._to(endpoints).lookup(names, ids, endpoints)

    def save(self, name: str, paths: Mapping[str, str]) -> None:
        """Ask servers to save their rows of a table; `paths` maps endpoints to paths."""
        self._to(tuple(paths)).save(name, paths)

    def _to(self, endpoints: Sequence[str]) -> Connection:
        """Return the connection to the servers of one operator."""
        if self._current is None:
            raise RunError("operators that use parameter servers can run only within Executor.run")
        return self._current.to(endpoints)

    def _plan(self, program: Program) -> _Plan:
        plan = self._plans.get(program)
        if plan is None or plan.version != program.version:
            plan = self._plans[program] = self._made(program)
        return plan

    def _made(self, program: Program) -> _Plan:
        if not any(op.type in SENDING for op in program.global_block().ops):
            return _Plan(program, ())
        from paddle.fluid.remote.connection import Connection  # imports the wire protocol of servers

        connections = [each for each in program._connections if isinstance(each, Connection)]
        if not connections:
            distribution = distribution_of(program)
            servers = {*distribution.endpoints}
            connections = [each for each in self._used.values() if servers <= {*each.distribution.endpoints}][
                -1:
            ]
        if not connections:
            connections = [self._own.setdefault(distribution, Connection(distribution))]
        return _Plan(program, connections)


class _Plan:
    """The servers with which one version of a program communicates, and the values that it receives from each.

    If several programs were transpiled with one startup program, that program communicates with the servers of all. If
    several connections lead to the same servers, the last one is used.
    """

    def __init__(self, program: Program, connections: Sequence[Connection]) -> None:
        self.version = program.version
        types = {op.type for op in program.global_block().ops}
        self.trains, self.starts = "send" in types, "recv" in types and "send" not in types
        self._by_endpoint = {
            endpoint: each for each in connections for endpoint in each.distribution.endpoints
        }
        self.wanted = {
            each: received_names(
                program, [endpoint for endpoint in self._by_endpoint if self._by_endpoint[endpoint] is each]
            )
            for each in connections
        }
        self.in_place = received_in_place(program)

    def to(self, endpoints: Sequence[str]) -> Connection:
        """Return the connection that knows the first of these servers; otherwise the last one, which refuses them."""
        last = next(reversed(self.wanted))
        return self._by_endpoint.get(endpoints[0], last) if endpoints else last
