# SPDX-License-Identifier: Apache-2.0
"""Connection: a trainer's connection to the servers of its programs, opened when the first message is sent.

Small gradients are sent together, in one message per server, when all of them are complete. Large gradients are sent as
soon as they are computed: see `outbox`. Values from servers arrive with their answers. They are written to the arrays
of the scope on arrival, as far as no operator can notice that: a run that fails meanwhile leaves some of them new.
Programs that are transpiled together, and their clones, share a connection.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle import glog
from paddle.backend import Array, to_host
from paddle.env import JobEnvironment
from paddle.fluid.errors import FluidError, RunError
from paddle.fluid.remote.distribution import Distribution, deadline_s, wire_keys
from paddle.fluid.remote.local_writes import LocalWrites, ServedVariables, to_wire
from paddle.fluid.remote.outbox import Outbox, Parcel
from paddle.fluid.run.scope import Scope
from paddle.graph.scope import Cell
from paddle.ops.base.selected_rows import SelectedRows
from paddle.pserver.wire.named_values import Ids, Rows, Value, fingerprint

if TYPE_CHECKING:
    from paddle.pserver.client.program_client import ProgramClient
    from paddle.pserver.wire.assembled_values import Gathering

_Names = Mapping[str, Sequence[str]]


class Connection:
    """A trainer's connection to its servers, an implementation of `Remote`. Runs must not overlap.

    Threads of one run can call `lookup`.
    """

    def __init__(self, distribution: Distribution, served: ServedVariables | None = None) -> None:
        """Create a connection that is not open yet.

        Args:
            served: the variables on servers. None means they are unknown, so values set on this trainer are lost.
        """
        self.distribution = distribution
        self._writes = None if served is None else LocalWrites(served, self._whole)
        self._has_begun = False
        self._client: ProgramClient | None = None
        self._closed = False
        self._lock = threading.Lock()  # only one thread at a time communicates with servers
        self._outbox = Outbox(self._push)
        self._numbers = {endpoint: at for at, endpoint in enumerate(distribution.endpoints)}
        self._wanted: Sequence[_Names] = ()
        self._incoming: dict[tuple[int, str], Value] = {}
        self._cells: dict[tuple[int, str], Cell] = {}
        self._homes: dict[int, dict[str, Array]] = {}

    def begin(
        self,
        wanted: Sequence[_Names],
        in_place: Mapping[tuple[str, str], str],
        *,
        trains: bool,
        scope: Scope,
    ) -> None:
        """Begin a run of a program.

        Args:
            wanted: the values that the run will receive: one dict, endpoint -> names, each time that it finishes
                sending.
            in_place: see `received_in_place`.
            trains: whether the run sends gradients.
        """
        self._wanted = wanted
        self._incoming = {}
        self._outbox.begin(() if self._client is None else self._client.distant)
        if self._writes is not None:
            self._writes.begin_run(scope)
        if trains and self._writes is not None:
            if self._has_begun:
                self._writes.warn_of_late(scope)
            else:
                self._begin_training(self._writes, scope)
                self._has_begun = True
        self._cells = {
            (self._numbers[endpoint], name): scope.cell(variable)
            for (endpoint, name), variable in in_place.items()
            if endpoint in self._numbers
        }
        self._homes = {}
        for (server, name), cell in self._cells.items():
            if type(cell.value) is np.ndarray and cell.value.flags.carray:
                self._homes.setdefault(server, {})[name] = cell.value

    def end(self, *, trains: bool, starts: bool, scope: Scope) -> None:
        """End a run, and flush messages that no operator waited for.

        Args:
            trains: whether the run sent gradients.
            starts: whether the run received initial values.
        """
        if not self._outbox.is_empty:
            self._step({})
        if self._writes is not None and trains:
            self._writes.note_step(scope)
        elif self._writes is not None and starts and not self._has_begun:
            self._writes.note_first(scope)
        self._drop(has_trained=trains)

    def give_up(self) -> None:
        """Abandon a run that has failed, without sending the rest."""
        self._drop(has_trained=self._has_begun)

    def close(self) -> None:
        """Disconnect from the servers, so that they no longer wait for this trainer."""
        self._closed = True
        self._outbox.drop()
        if self._client is not None:
            self._client.close()
            self._client = None

    def send(self, names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str]) -> None:
        """Send named values to their servers, possibly later: they must not change until the run ends."""
        for name, value, endpoint in zip(names, values, endpoints, strict=True):
            self._outbox.put(self._number(endpoint), name, to_wire(value))

    def finish_sending(self, endpoints: Sequence[str]) -> None:
        """Report that all values of this step are sent, and wait until the servers have computed the step."""
        everyone = {self._number(endpoint): () for endpoint in endpoints}
        self._step({**everyone, **self._numbered(self._wanted[0])})
        self._wanted = self._wanted[1:] or [{}]

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        """Return the named values from their servers, in the given order."""
        keys = [(self._number(endpoint), name) for name, endpoint in zip(names, endpoints, strict=True)]
        if any(key not in self._incoming for key in keys):
            wanted = self._numbered(self._wanted[0])
            for server, name in keys:
                if name not in wanted.setdefault(server, []):
                    wanted[server].append(name)
            if not self._outbox.is_empty:
                self._step(wanted)
            else:
                with self._lock:
                    self._note(self._open().fetch(wanted, self._homes))
        values = [_from_wire(self._incoming.pop(key)) for key in keys]
        if not self._has_begun and self._writes is not None:
            self._writes.served.check_shapes(
                dict(zip(zip(endpoints, names, strict=True), values, strict=True))
            )
        return values

    def finish_receiving(self, endpoints: Sequence[str]) -> None:
        """Discard the received values. Servers need no message, because they wait for this trainer's next gradients."""
        self._incoming = {}

    def fetch(self, wanted: _Names) -> dict[str, dict[str, Any]]:
        """Fetch and return the current values of variables on servers; `wanted` maps endpoints to names."""
        with self._lock:
            found = self._open().fetch(self._numbered(wanted))
        return {
            self.distribution.endpoints[server]: {name: _from_wire(value) for name, value in values.items()}
            for server, values in found.items()
        }

    def lookup(self, names: Sequence[str], ids: Sequence[Array], endpoints: Sequence[str]) -> list[Any]:
        """Return rows (n, ...) of each named variable, for ids (n,) int64, from the servers that have them."""
        asked: dict[int, dict[str, Ids]] = {}
        for name, each, endpoint in zip(names, ids, endpoints, strict=True):
            asked.setdefault(self._number(endpoint), {})[name] = np.ascontiguousarray(to_host(each))
        with self._lock:
            found = self._open().lookup(asked)
        rows = [found[self._number(endpoint)][name] for name, endpoint in zip(names, endpoints, strict=True)]
        return [_from_wire(each) for each in rows]

    def save(self, name: str, paths: Mapping[str, str]) -> None:
        """Ask servers to save their rows of a table; `paths` maps endpoints to paths."""
        with self._lock:
            self._open().save(name, {self._number(endpoint): path for endpoint, path in paths.items()})

    def _begin_training(self, writes: LocalWrites, scope: Scope) -> None:
        """Send the initial values of trainer 0 to the servers, and fetch the servers' values on this trainer.

        Raises:
            RunError: this trainer set a value that differs from trainer 0's.
        """
        place, served, changed = self.distribution, writes.served, writes.changed(scope)
        gives = place.trainer_id == 0
        if not changed and (place.trainers == 1 or (not gives and not place.is_sync)):
            return
        mine = {name: served.cut(name, scope) for name in changed}
        values: dict[int, dict[str, Value]] = {server: {} for server in self._numbers.values()}
        for parts in mine.values() if gives else ():
            for (endpoint, name), value in parts.items():
                values[self._number(endpoint)][name] = value
        with self._lock:
            version, answers = self._open().begin(values)
        given = {
            (place.endpoints[server], name): digest
            for server, names in answers.items()
            for name, digest in names.items()
        }
        differs = {
            name
            for name, parts in mine.items()
            if any(given.get(at) != fingerprint(value) for at, value in parts.items())
        }
        if differs and not gives and not JobEnvironment.read().restart_count:
            raise RunError(
                f"{min(differs)!r} was set on trainer {place.trainer_id} before its first step, but "
                "has a different value on trainer 0, from which the parameter servers start. Load or set "
                "it on trainer 0, or on all trainers."
            )
        theirs = {
            name for name, parts in served.parts.items() if any((p.endpoint, p.name) in given for p in parts)
        }
        self._take(writes.served, differs | (theirs - mine.keys()) | (theirs if version else set()), scope)

    def _take(self, served: ServedVariables, names: Collection[str], scope: Scope) -> None:
        """Set variables of the scope to the values on the servers."""
        for name, value in self._wholes(served, names).items():
            scope.cell(name).value = value

    def _whole(self, name: str) -> Any:
        """Return the value of a variable on the servers, after a step."""
        assert self._writes is not None
        if self._closed:
            raise RunError(
                f"{name!r} has newer rows on the parameter servers, from which this trainer has disconnected: read "
                "or save it before Executor.close"
            )
        return self._wholes(self._writes.served, [name])[name]

    def _wholes(self, served: ServedVariables, names: Collection[str]) -> dict[str, Any]:
        wanted: dict[str, list[str]] = {}
        for name in names:
            for part in served.parts.get(name, ()):
                wanted.setdefault(part.endpoint, []).append(part.name)
        found = self.fetch(wanted) if wanted else {}
        return {name: served.joined(name, found) for name in names if name in served.parts}

    def _drop(self, *, has_trained: bool) -> None:
        self._incoming, self._cells, self._homes = {}, {}, {}
        self._outbox.drop()
        if self._writes is not None:
            self._writes.end_run(has_trained=has_trained)

    def _step(self, wanted: Mapping[int, Sequence[str]]) -> None:
        found = self._finish_step(wanted)
        with self._lock:
            self._note(self._open().collect(found))

    def _finish_step(self, wanted: Mapping[int, Sequence[str]]) -> dict[int, Gathering]:
        """Send the last gradients, which are freed before the values that follow the first answers need memory."""
        parcel = self._outbox.take()
        with self._lock:
            return self._opened_for(parcel).finish_step(parcel.values, wanted, self._homes)

    def _push(self, parcel: Parcel) -> None:
        with self._lock:
            self._opened_for(parcel).push(parcel.values)

    def _opened_for(self, parcel: Parcel) -> ProgramClient:
        client = self._open()
        if parcel.is_first:
            client.begin_step()
        return client

    def _note(self, found: Mapping[int, Mapping[str, Value]]) -> None:
        for server, values in found.items():
            for name, value in values.items():
                cell = self._cells.get((server, name))
                if cell is not None and not cell.is_set and isinstance(value, np.ndarray):
                    cell.value = value = value if value.base is None else value.copy()
                self._incoming[server, name] = value

    def _numbered(self, wanted: _Names) -> dict[int, list[str]]:
        return {self._number(endpoint): list(names) for endpoint, names in wanted.items()}

    def _number(self, endpoint: str) -> int:
        if endpoint not in self._numbers:
            known = ", ".join(self.distribution.endpoints)
            raise FluidError(f"{endpoint!r} is not one of the servers: {known}")
        return self._numbers[endpoint]

    def _open(self) -> ProgramClient:
        if self._closed:
            raise RunError("the connection to the servers was closed by Executor.close: transpile again")
        if self._client is None:
            from paddle.pserver.client.program_client import ProgramClient  # heavy: ZeroMQ

            glog.warn_on_stderr()  # a screen recognizes warnings, for example while the job stops
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


def _from_wire(value: Value) -> Any:
    return SelectedRows(value.ids, value.values, value.height) if isinstance(value, Rows) else value
