# SPDX-License-Identifier: Apache-2.0
"""Looks at the parameters of a running job from outside: for serving, evaluation, a dashboard.

No trainer waits for a reader or notices it. Servers tell it what tensors there are. Every call blocks and ends.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle.freed_memory import MESSAGES, keep_freed_memory
from paddle.pserver.client.destinations import Destinations, put_rows
from paddle.pserver.client.exchange import Exchange, Network
from paddle.pserver.client.interop import HostArray
from paddle.pserver.client.job_servers import JobServers, positive
from paddle.pserver.client.links import Links
from paddle.pserver.client.row_gradients import read_ids
from paddle.pserver.client.tables import Tables
from paddle.pserver.reader.shown_model import TensorInfo, layout_of, read_model, tensors_of
from paddle.pserver.reader.viewing import Viewing
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.reader_protocol import READ_PART, READER, rows_at_once
from paddle.pserver.wire.verbs import Describe, Ok


class Reader:
    """One reader of a job. Not thread-safe; a context manager.

    Attributes:
        tensors: what the job has, by name.
    """

    def __init__(self, network: Network, *, timeout_s: float = 60.0, wait_s: float = 600.0) -> None:
        """Read through connections that there are; `connect` makes them.

        Raises:
            PserverError: see `connect`.
        """
        self._network, self._exchange = network, Exchange(network, READER, timeout_s)
        self._exchange.wait_s = wait_s
        self._everyone = range(len(network.endpoints))
        try:
            self._exchange.hello(0)
            replies = self._exchange.run(dict.fromkeys(self._everyone, Message(Describe())))
            self._layout = layout_of(read_model(replies, network.endpoints))
        except BaseException:
            network.close()
            raise
        layout, endpoints = self._layout, network.endpoints
        self.tensors: Mapping[str, TensorInfo] = tensors_of(layout)
        self._destinations = Destinations(layout.parameters, layout.growing)
        self._viewing = Viewing(self._exchange, endpoints, layout)
        self._tables = Tables(self._exchange, endpoints, 4 * READ_PART)
        self._closed = False
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

        What is not given comes from the environment, as for `Client`.

        Args:
            endpoints: "ip:port" of each server, in the order in which trainers have them.
            sparse_endpoints: of the servers for sparse tensors alone, if there are such.
            job_key: secret of the job, for the wire "curve".
            wire: "curve" or "plain"; by default curve if there is a key.
            timeout_s: how long a server may be silent.
            wait_s: how long one request may take, waiting for the tensors included.
            patience_s: how long a server may be gone, since somebody starts it again.

        Raises:
            ConfigError: an argument or a variable is wrong, or nobody says where servers are.
            PserverLost: a server did not answer in time.
            PserverError: a server refused us, has too many readers, or is of another job than the others.
            WaitTimeout: nobody created tensors.
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
        return cls(links, timeout_s=timeout_s, wait_s=wait_s)

    def pull(self, out: Mapping[str, Any]) -> int:
        """Fill tensors, sparse ones as a whole, with what the servers hold.

        Dense values of one server are all of one moment. Rows of sparse tensors come in parts, each of its own moment,
        and without what they owe of decay.

        Args:
            out: float32 arrays of the tensors' shapes, filled in place.

        Returns:
            Batches in these values: those that every server had applied.

        Raises:
            ConfigError: a name, shape or dtype is wrong; nothing was asked, and the reader can go on.
            PserverError: after it the reader can only be closed.
        """
        targets = {name: self._destinations.of(name, array) for name, array in out.items()}
        hosts = {name: each.host for name, each in targets.items()}
        sparse = [name for name in hosts if self.tensors[name].sparse]
        views = self._layout.views({name: host for name, host in hosts.items() if name not in sparse})
        version = self._viewing.pull(views) if views else self.version()
        for name in sparse:
            self._tables.pull(self._layout.tables(name), hosts[name])
        for each in targets.values():
            each.finish()
        return version

    def pull_rows(self, name: str, ids: Any, out: Any = None) -> HostArray:
        """Return rows of a sparse tensor; nothing changes by it, and no row is made.

        Args:
            name: of the tensor; a growing one has every id, with its initial values if it got no gradient yet.
            ids: (...) int64 or int32; may repeat.
            out: (..., width) float32, filled in place as well; None: nowhere.

        Returns:
            (..., width) float32, a new array.

        Raises:
            ConfigError, PserverError: see `pull`.
        """
        if name not in self.tensors:
            raise ConfigError(f"rows of tensor {name}: no such tensor; there are {', '.join(self.tensors)}")
        if not self.tensors[name].sparse:
            raise ConfigError(f"rows of tensor {name}: it is not sparse: use pull")
        rows = read_ids(ids, f"row ids of tensor {name}")
        flat = rows.reshape(-1)
        width = self.tensors[name].shape[1]
        found = np.empty((flat.size, width), np.float32)
        step = rows_at_once(width)
        for start in range(0, flat.size, step):
            found[start : start + step] = self._tables.rows(
                self._tables.want(self._layout, name, flat[start : start + step])
            )
        found = found.reshape(*rows.shape, width)
        if out is not None:
            put_rows(name, found, out)
        return found

    def version(self) -> int:
        """Return the batches that every server has applied; in asynchronous training every trainer's count."""
        replies = self._exchange.run(dict.fromkeys(self._everyone, Message(Describe(is_brief=True))))
        return min(reply.expect(Ok).version for reply in replies.values())

    def close(self) -> None:
        """Close all connections; safe to call twice."""
        if not self._closed:
            self._closed = True
            atexit.unregister(self.close)
            self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
