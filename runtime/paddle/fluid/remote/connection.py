# SPDX-License-Identifier: Apache-2.0
"""A trainer's connection with the servers of its programs, opened when the first message is due.

What a run sends is kept until it must have arrived, and goes with one message to each server; what a run
receives comes with the answers. Programs that are transpiled together, and their clones, share a connection.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle.backend import Array, to_host
from paddle.env import JobEnvironment
from paddle.fluid.errors import FluidError, RunError
from paddle.fluid.remote.distribution import Distribution, deadline_s, wire_keys
from paddle.ops.base.selected_rows import SelectedRows
from paddle.pserver.wire.named_values import Ids, Rows, Value

if TYPE_CHECKING:
    from paddle.pserver.client.program_client import ProgramClient

_Names = Mapping[str, Sequence[str]]


class Connection:
    """See `ops.base.remote.Remote`. One run at a time; `lookup` may be called by several threads of it."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution
        self._client: ProgramClient | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._numbers = {endpoint: at for at, endpoint in enumerate(distribution.endpoints)}
        self._wanted: Sequence[_Names] = ()
        self._outgoing: dict[int, dict[str, Value]] = {}
        self._incoming: dict[tuple[int, str], Value] = {}

    def begin(self, wanted: Sequence[_Names]) -> None:
        """Begin a run that will receive these names: endpoint -> names, for each time that sending is finished."""
        self._wanted = wanted
        self._outgoing, self._incoming = {}, {}

    def end(self) -> None:
        """End a run: what was sent and nobody waited for leaves now."""
        try:
            if self._outgoing:
                self._step({})
        finally:
            self.give_up()

    def give_up(self) -> None:
        """End a run that failed."""
        self._outgoing, self._incoming = {}, {}

    def close(self) -> None:
        """Leave the servers: they no longer wait for this trainer. Safe to call twice."""
        self._closed = True
        if self._client is not None:
            self._client.close()
            self._client = None

    def send(self, names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str]) -> None:
        """See `Remote`."""
        for name, value, endpoint in zip(names, values, endpoints, strict=True):
            self._outgoing.setdefault(self._number(endpoint), {})[name] = _to_wire(value)

    def finish_sending(self, endpoints: Sequence[str]) -> None:
        """See `Remote`."""
        everyone = {self._number(endpoint): () for endpoint in endpoints}
        self._step({**everyone, **self._numbered(self._wanted[0])})
        self._wanted = self._wanted[1:] or [{}]

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        """See `Remote`."""
        keys = [(self._number(endpoint), name) for name, endpoint in zip(names, endpoints, strict=True)]
        if any(key not in self._incoming for key in keys):
            wanted = self._numbered(self._wanted[0])
            for server, name in keys:
                if name not in wanted.setdefault(server, []):
                    wanted[server].append(name)
            if self._outgoing:
                self._step(wanted)
            else:
                self._note(self._open().fetch(wanted))
        return [_from_wire(self._incoming.pop(key)) for key in keys]

    def finish_receiving(self, endpoints: Sequence[str]) -> None:
        """See `Remote`; a server needs no telling: its next step waits for this trainer's gradients."""
        self._incoming = {}

    def fetch(self, wanted: _Names) -> dict[str, dict[str, Any]]:
        """Return variables of servers as they are: endpoint -> names."""
        found = self._open().fetch(self._numbered(wanted))
        return {
            self.distribution.endpoints[server]: {name: _from_wire(value) for name, value in values.items()}
            for server, values in found.items()
        }

    def lookup(self, names: Sequence[str], ids: Sequence[Array], endpoints: Sequence[str]) -> list[Any]:
        """See `Remote`; a server is asked only for what there is."""
        asked: dict[int, dict[str, Ids]] = {}
        for name, each, endpoint in zip(names, ids, endpoints, strict=True):
            asked.setdefault(self._number(endpoint), {})[name] = np.ascontiguousarray(to_host(each))
        with self._lock:
            found = self._open().lookup(asked)
        rows = [found[self._number(endpoint)][name] for name, endpoint in zip(names, endpoints, strict=True)]
        return [_from_wire(each) for each in rows]

    def save(self, name: str, paths: Mapping[str, str]) -> None:
        """See `Remote`."""
        self._open().save(name, {self._number(endpoint): path for endpoint, path in paths.items()})

    def _step(self, wanted: Mapping[int, Sequence[str]]) -> None:
        outgoing, self._outgoing = self._outgoing, {}
        self._note(self._open().step(outgoing, wanted))

    def _note(self, found: Mapping[int, Mapping[str, Value]]) -> None:
        for server, values in found.items():
            self._incoming.update({(server, name): value for name, value in values.items()})

    def _numbered(self, wanted: _Names) -> dict[int, list[str]]:
        return {self._number(endpoint): list(names) for endpoint, names in wanted.items()}

    def _number(self, endpoint: str) -> int:
        if endpoint not in self._numbers:
            known = ", ".join(self.distribution.endpoints)
            raise FluidError(f"{endpoint!r} is none of the servers: {known}")
        return self._numbers[endpoint]

    def _open(self) -> ProgramClient:
        if self._closed:
            raise RunError("the connection with the servers was closed by Executor.close: transpile again")
        if self._client is None:
            from paddle.pserver.client.program_client import ProgramClient  # heavy: ZeroMQ

            environment = JobEnvironment.read()
            self._client = ProgramClient.connect(
                self.distribution.endpoints,
                wire_keys(f"trainer {self.distribution.trainer_id}"),
                trainer_id=self.distribution.trainer_id,
                num_trainers=self.distribution.trainers,
                timeout_s=deadline_s(),
                takes_over=environment.restart_count > 0,
                patience_s=environment.pserver_patience_s,
            )
        return self._client


def _to_wire(value: Any) -> Value:
    if isinstance(value, SelectedRows):
        return Rows(to_host(value.rows), to_host(value.values), value.height)
    return np.asarray(to_host(value))


def _from_wire(value: Value) -> Any:
    return SelectedRows(value.ids, value.values, value.height) if isinstance(value, Rows) else value
