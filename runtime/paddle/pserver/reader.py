# SPDX-License-Identifier: Apache-2.0
"""Reads the parameters of a running job from outside, for serving, evaluation or a dashboard.

A reader does not take part in training, and trainers do not wait for it. Servers describe the job's tensors, and
send a consistent snapshot of their dense values in parts: see `server.readers`. Every call blocks for a limited time.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from paddle.env import JobEnvironment
from paddle.errors import ConfigError, PserverError, WaitTimeout, WireError
from paddle.freed_memory import MESSAGES, keep_freed_memory
from paddle.optim.spec import optimizer_of
from paddle.pserver.client.exchange import Exchange, Network
from paddle.pserver.client.interop import Destinations, HostArray, put_rows, read_ids
from paddle.pserver.client.job_servers import JobServers, positive
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.client.links import Links
from paddle.pserver.client.stored_values import StoredValues, reply_array
from paddle.pserver.followed import Followed
from paddle.pserver.sparse.blocks import Lineage
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.walk import Cursor, TableRows
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import READ_PART, READER, Message, Section, rows_at_once
from paddle.pserver.wire.table_rows import read_left, read_lineage, read_rows
from paddle.pserver.wire.verbs import Describe, Ok, View, Walk, Walked
from paddle_node.contract.classes import dataclass, replace


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The description of one tensor of a job.

    Attributes:
        shape: the shape of the whole tensor; (0, width) for a growing table, which has no height.
        dtype: always "float32".
        sparse: whether its rows can be looked up.
        growing: whether it has rows for any int64 id; such a table cannot be read as a whole array.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    sparse: bool = False
    growing: bool = False


class Reader:
    """A read-only client of a running job's servers. A context manager; not thread-safe.

    Attributes:
        tensors: the tensors of the job, by name.
    """

    def __init__(self, network: Network, *, timeout_s: float = 60.0, wait_s: float = 600.0) -> None:
        """Read through existing connections; `connect` opens them.

        Raises:
            PserverError: see `connect`.
        """
        self._network, self._exchange = network, Exchange(network, READER, timeout_s)
        self._exchange.wait_s = wait_s
        try:
            self._exchange.hello(0)
            replies = self._exchange.run({0: Message(Describe())})  # which is never idle
            self._model = _read_model(replies, network.endpoints)
            replies |= self._exchange.run(dict.fromkeys(self._model.used[1:], Message(Describe())))
            _read_model(replies, network.endpoints)
            self._layout = layout = Layout.of(self._model)
        except BaseException:
            network.close()
            raise
        tensors = {name: TensorInfo(p.shape, sparse=p.sparse) for name, p in layout.parameters.items()}
        for name, table in layout.growing.items():
            tensors[name] = TensorInfo((0, table.width), sparse=True, growing=True)
        self.tensors: Mapping[str, TensorInfo] = tensors
        self._destinations = Destinations(layout.parameters, layout.growing)
        self._stored = StoredValues(self._exchange, network.endpoints, layout, 4 * READ_PART)
        self._closed = False
        self._again: Callable[[], Reader] | None = None
        atexit.register(self.close)

    @classmethod
    def connect(
        cls,
        endpoints: Sequence[str] | None = None,
        sparse_endpoints: Sequence[str] | None = None,
        *,
        job_key: str | None = None,
        wire: str | None = None,
        timeout_s: float = 60.0,
        wait_s: float = 600.0,
        patience_s: float = 60.0,
    ) -> Self:
        """Connect to all servers of a job; wait until its trainers have created its tensors.

        Arguments that are not given are taken from the environment, as for `Client`.

        Args:
            endpoints: "ip:port" of each server, in the same order as in the trainers.
            sparse_endpoints: the servers for sparse tensors, if these are separate.
            job_key: secret of the job, for the wire "curve".
            wire: "curve" or "plain"; by default curve if there is a key.
            timeout_s: maximum time in seconds that a server may be silent.
            wait_s: maximum time of one request in seconds, including the wait for the tensors.
            patience_s: time in seconds to wait for a server that is being restarted.

        Raises:
            ConfigError: an argument or a variable is invalid, or the servers' endpoints are not given anywhere.
            PserverLost: a server did not answer in time.
            PserverError: a server refused the reader, has too many readers, or belongs to a different job.
            WaitTimeout: no trainer created tensors in time.
        """
        servers = JobServers.find("Reader", JobEnvironment.read(), endpoints, sparse_endpoints, job_key, wire)
        positive("timeout_s", timeout_s)
        positive("wait_s", wait_s)
        keys = WireKeys.asked(servers.wire, servers.job_key)
        keep_freed_memory(MESSAGES)
        links = Links(
            [*servers.endpoints, *servers.sparse_endpoints],
            keys,
            min(patience_s, timeout_s),
            within_node=False,
            first_answer_s=timeout_s,
        )
        reader = cls(links, timeout_s=timeout_s, wait_s=wait_s)
        reader._again = lambda: cls.connect(
            servers.endpoints,
            servers.sparse_endpoints,
            job_key=servers.job_key,
            wire=servers.wire,
            timeout_s=timeout_s,
            wait_s=wait_s,
            patience_s=patience_s,
        )
        return reader

    def pull(self, out: Mapping[str, Any]) -> int:
        """Fill the given arrays with the servers' values; a sparse tensor is filled in full.

        All dense values of a server are from the same point in time. Rows of sparse tensors arrive in parts, which are
        from different points in time and do not include pending decay.

        Args:
            out: float32 arrays of the tensors' shapes, filled in place.

        Returns:
            The number of batches that every server had applied to these values.

        Raises:
            ConfigError: a name, shape or dtype is wrong; no request was sent, and the reader remains usable.
            PserverError: a server refused or failed; the reader can then only be closed.
        """
        hosts, finish = self._destinations.of(out)
        sparse = [name for name in hosts if self.tensors[name].sparse]
        views = self._layout.views({name: host for name, host in hosts.items() if name not in sparse})
        version = self._pull_dense(views) if views else self.version()
        for name in sparse:
            self._stored.pull_table(name, hosts[name])
        for each in finish:
            each()
        return version

    def pull_rows(self, name: str, ids: Any, out: Any = None) -> HostArray:
        """Return rows of a sparse tensor, without changing the tensor or creating rows.

        Args:
            name: the name of the tensor; a growing table returns initial values for ids that have had no gradient.
            ids: (...) int64 or int32; may repeat.
            out: (..., width) float32, also filled in place; None means only the result is returned.

        Returns:
            (..., width) float32, a new array.

        Raises:
            ConfigError, PserverError: see `pull`.
        """
        if name not in self.tensors:
            raise ConfigError(f"rows of tensor {name}: no such tensor; known: {', '.join(self.tensors)}")
        if not self.tensors[name].sparse:
            raise ConfigError(f"rows of tensor {name}: the tensor is not sparse; use pull")
        rows = read_ids(ids, f"row ids of tensor {name}")
        flat = rows.reshape(-1)
        width = self.tensors[name].shape[1]
        found = np.empty((flat.size, width), np.float32)
        step = rows_at_once(width)
        for start in range(0, flat.size, step):
            wanted = self._stored.want(name, flat[start : start + step])
            found[start : start + step] = self._stored.rows(wanted)
        found = found.reshape(*rows.shape, width)
        if out is not None:
            put_rows(name, found, out)
        return found

    def table(self, name: str) -> TableSpec:
        """Return the description of a growing table. Raises ConfigError if no table has this name."""
        if name not in self._layout.growing:
            raise ConfigError(
                f"no growing table is named {name}; known: {', '.join(self._layout.growing) or 'none'}"
            )
        return self._layout.growing[name]

    def rule(self, name: str) -> str:
        """Return the name of a growing table's update rule, such as "adagrad". Raises ConfigError like `table`."""
        return optimizer_of(self.table(name).parameter, self._model.optimizer).rule

    def holders(self, name: str) -> list[int]:
        """Return the numbers of the servers that have rows of a growing table, for `walk`.

        Raises ConfigError like `table`.
        """
        self.table(name)
        return [index for index, _ in self._layout.holders(name)]

    def walk(self, name: str, server: int, since: int | None = None, *, states: bool = False) -> TableWalk:
        """Return an iterator over one server's rows of a growing table, in pieces; training continues between pieces.

        Args:
            name: the name of the table.
            server: number of the server, one of `holders`.
            since: only return rows that changed after this batch of the table; None means all rows.
            states: whether to include the update rule's state of each row.
        """
        width = self.table(name).width
        return TableWalk(
            self._exchange, self._network.endpoints[server], server, (name, width), since, states
        )

    def follow(self, name: str, *, within_s: float = 5.0, max_bytes: int = 0) -> Followed:
        """Return a copy of a growing table that a thread keeps up to date, over separate connections.

        Args:
            name: the name of the table.
            within_s: maximum age of the copy in seconds; lookups fail when it is older.
            max_bytes: memory limit of the copy; 0 means no limit.

        Raises:
            ConfigError: the table does not exist, an argument is out of range, or `connect` did not create this reader.
        """
        self.table(name)
        if self._again is None:
            raise ConfigError("follow: this reader cannot reconnect; use Reader.connect")
        return Followed(self._again, name, within_s=within_s, max_bytes=max_bytes)

    def version(self) -> int:
        """Return the number of batches that every server has applied.

        In asynchronous training, this counts the batches of all trainers together.
        """
        replies = self._exchange.run(dict.fromkeys(self._layout.used, Message(Describe(is_brief=True))))
        return min(reply.expect(Ok).version for reply in replies.values())

    def close(self) -> None:
        """Close all connections; safe to call twice."""
        if not self._closed:
            self._closed = True
            atexit.unregister(self.close)
            self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pull_dense(self, views: Mapping[str, Array]) -> int:
        """Fill all whole parameters (size,), or none on an error; return the lowest batch count of all servers.

        Raises:
            WaitTimeout: a server repeatedly discarded its values before all of them had arrived.
            PserverError: see `Reader`.
        """
        slabs = [np.empty(size, np.float32) for size in self._layout.sizes]
        wanted = [
            i
            for i, share in enumerate(self._layout.shares)
            if any(part.parameter.name in views for part in share.dense)
        ]
        ends_at = time.monotonic() + self._exchange.wait_s
        starts, moments = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0)
        while starts:
            if time.monotonic() >= ends_at:
                raise WaitTimeout(
                    f"gave up after {self._exchange.wait_s:g} s: values change faster than they can be read"
                )
            replies = self._exchange.run({i: Message(View(start, moments[i])) for i, start in starts.items()})
            for i, reply in replies.items():
                if not reply.sections:
                    starts[i] = 0
                    continue
                part = slabs[i][starts[i] : starts[i] + READ_PART]
                part[...] = reply_array(reply, self._network.endpoints[i], "", part.shape)
                moments[i] = reply.expect(Ok).version
                starts[i] += READ_PART
                if starts[i] >= slabs[i].size:
                    del starts[i]
        for i in wanted:
            self._layout.scatter(i, slabs[i], views)
        return min(moments.values())


class TableWalk:
    """An iterator over one server's rows of a growing table; see `Reader.walk`. Each piece is from a different time.

    Attributes:
        clock: number of the table's batches at the start of the walk; set by the first piece, which may be empty.
        since: the batch after which rows must have changed; None means all rows.
        left: ids whose rows left the table after `since`; drop them before adding the yielded rows. Set by the first
            piece.
        lineage: identifies the training run to which the batches belong; set by the first piece.
    """

    def __init__(
        self,
        exchange: Exchange,
        endpoint: str,
        server: int,
        of: tuple[str, int],
        since: int | None,
        with_states: bool,
    ) -> None:
        self._exchange, self._endpoint, self._server = exchange, endpoint, server
        self._name, self._width = of
        self._with_states = with_states
        self.clock, self.since, self.left = 0, since, np.zeros(0, np.int64)
        self.lineage = Lineage()

    def __iter__(self) -> Iterator[TableRows]:
        """Yield pieces, at least one. Raises PserverError as in `Reader`."""
        at, name, since = Cursor(), Section.text("name", self._name), self.since
        is_first = True
        while not at.is_over:
            asked = Walk(at.segment, at.first, -1 if since is None else since, self._with_states)
            reply = self._exchange.run({self._server: Message(asked, sections=(name,))})[self._server]
            said, rows = reply.expect(Walked), read_rows(reply)
            if is_first:
                is_first, self.clock, self.left = False, said.clock, read_left(reply)
                self.lineage = read_lineage(reply)
                since = self.since = None if said.since < 0 else said.since
            elif (None if said.since < 0 else said.since) != since:
                raise PserverError(
                    f"pserver {self._endpoint}: all rows of {self._name} changed in the meantime; start again"
                )
            following = Cursor(said.segment, said.first)
            is_right = rows.rows.shape[1] == self._width and (rows.states is not None) == self._with_states
            if following <= at or not is_right:
                raise WireError(
                    f"pserver {self._endpoint}: received rows of {self._name} that were not requested",
                    self._endpoint,
                )
            yield rows
            at = following


def _read_model(replies: Mapping[int, Message], endpoints: Sequence[str]) -> Configuration:
    """Return the description on which all servers agree.

    Raises:
        PserverError: the servers belong to several jobs, are incomplete, or are in a different order than in the
            trainers.
    """
    found = {i: Configuration.from_text(reply.section("").as_text()) for i, reply in replies.items()}
    first = found[0]
    for index, each in found.items():
        theirs = (each.used[each.server], each.num_listed)
        if theirs != (index, len(endpoints)):
            raise PserverError(
                f"pserver {endpoints[index]} is number {theirs[0]} of {theirs[1]} in its job, but is "
                f"listed as number {index} of {len(endpoints)}: use the endpoints and sparse_endpoints "
                "of the job's trainers",
                endpoints[index],
            )
        difference = first.difference(replace(each, server=first.server))
        if difference:
            raise PserverError(
                f"pservers {endpoints[0]} and {endpoints[index]} belong to different jobs: {difference}",
                endpoints[index],
            )
    return first
