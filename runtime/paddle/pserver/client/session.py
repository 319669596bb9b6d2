# SPDX-License-Identifier: Apache-2.0
"""A trainer's session with the parameter servers: pushes gradients, pulls parameters, and synchronizes trainers.

A step is one exchange: every server gets one message with everything that it needs, and sends one reply. A server that
holds no part of the model is idle: it is only told when the trainer joins and leaves. Every wait is bounded:
PserverLost is raised for a server that is silent for `timeout_s`, or whose connection cannot be restored. Waiting for
other trainers can take longer, as long as the server reports that it is alive.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, PserverError
from paddle.freed_memory import MESSAGES, keep_freed_memory
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.client.exchange import Exchange, Network
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.client.links import Links
from paddle.pserver.client.step import TrainerStep, WithinNode
from paddle.pserver.client.stored_values import StoredValues
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.walk import TableRows
from paddle.pserver.transports.transport import SharedSlabs
from paddle.pserver.wire.configuration import (
    Configuration,
    PortRange,
    Position,
    configure_message,
    read_positions,
    trainer_positions,
)
from paddle.pserver.wire.half import number_of
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.table_rows import score_section
from paddle.pserver.wire.verbs import (
    Configured,
    FinishPass,
    Ok,
    Pull,
    PushPull,
    Ready,
    Record,
    Shrink,
    StartPass,
)

_log = logging.getLogger(__name__)
_LEAVE_S = 2.0
_NO_ROWS: Mapping[str, Iterable[TableRows]] = MappingProxyType({})
_NOTHING: Mapping[str, npt.NDArray[np.int64]] = MappingProxyType({})


class TrainerSession:
    """One trainer's session with all servers. Not thread-safe; all methods block.

    Attributes:
        resumed: the point in training from which a job resumes; None means no checkpoint was loaded.
        held_values: whether all servers already had values when this trainer described the model.
    """

    def __init__(
        self,
        network: Network,
        num_sparse: int,
        *,
        trainer_id: int,
        num_trainers: int,
        timeout_s: float = 60.0,
        takes_over: bool = False,
        wire_dtype: str = "float32",
    ) -> None:
        """Start a session on links to the dense servers and then the `num_sparse` sparse ones.

        Args:
            takes_over: whether the trainer's earlier process is known to be dead, even if servers have not detected it.
            wire_dtype: dtype of table rows and their gradients on the wire: "float32", "float16" or "bfloat16".

        Raises:
            PserverLost: a server did not answer within `timeout_s`.
            PserverError: a server refused: see `Sessions.join`.
        """
        self._rows_as = number_of(wire_dtype)
        self._network = network
        self._exchange = Exchange(network, trainer_id, timeout_s)
        self._trainer = trainer_id
        self._num_sparse = num_sparse
        self._closed = False
        self._versions: dict[int, int] = {}
        self.resumed: Position | None = None
        self.held_values = False
        self._lay_out(Layout([], len(network.endpoints) - num_sparse, num_sparse), {})
        try:
            self._exchange.hello(num_trainers, takes_over=takes_over)
        except BaseException:
            network.close()
            raise
        atexit.register(self.close)

    @classmethod
    def connect(
        cls,
        endpoints: Sequence[str],
        sparse_endpoints: Sequence[str],
        *,
        trainer_id: int,
        num_trainers: int,
        job_key: str | None,
        wire: str,
        timeout_s: float = 60.0,
        takes_over: bool = False,
        patience_s: float = 0.0,
        within_node: bool = True,
        wire_dtype: str = "float32",
        ports: tuple[int, int] | None = None,
    ) -> Self:
        """Connect to all servers, which may still be starting; until then, log `reachability` findings as warnings.

        Args:
            endpoints, sparse_endpoints, job_key, wire, timeout_s, patience_s, within_node,
                wire_dtype: see `Client`.
            trainer_id: rank of this trainer; 0 provides initial values.
            takes_over: whether the trainer's earlier process is known to be dead; see `__init__`.
            ports: the dense and the sparse ports that each server must have been started with; None means any.

        Raises:
            ConfigError: an argument is wrong, or a server has different ports.
            PserverLost: a server did not answer in time.
            PserverError: a server refused the trainer, or another program listens on its port.
        """
        keys = WireKeys.asked(wire, job_key)
        number_of(wire_dtype)
        if not endpoints:
            raise ConfigError("no pserver endpoint is given: expected at least one ip:port")
        if not 0 <= trainer_id < num_trainers:
            raise ConfigError(f"trainer_id: expected 0 to {num_trainers - 1}, got {trainer_id}")
        for index, endpoint in enumerate([*endpoints, *sparse_endpoints]):
            _log.info("pserver %d %s", index, endpoint)
        return cls(
            Links(
                [*endpoints, *sparse_endpoints],
                keys,
                min(patience_s, timeout_s),
                within_node,
                timeout_s,
                None if ports is None else PortRange(*ports),
            ),
            len(sparse_endpoints),
            trainer_id=trainer_id,
            num_trainers=num_trainers,
            timeout_s=timeout_s,
            wire_dtype=wire_dtype,
            takes_over=takes_over,
        )

    def configure(
        self,
        parameters: Sequence[ParameterSpec],
        optimizer: OptimizerSpec,
        values: Mapping[str, Array],
        *,
        first_comes: bool = False,
        tables: Sequence[TableSpec] = (),
        rows: Mapping[str, Iterable[TableRows]] = _NO_ROWS,
    ) -> None:
        """Agree on the model with the servers and the other trainers; wait until all initial values have arrived.

        Trainer 0's values are used, unless the servers already have values of the same model. `pull` then returns the
        servers' values to every trainer.

        Args:
            parameters: the parameters, in the same order in every trainer; static ones are not sent.
            values: on trainer 0: each parameter's value, float32 of its shape.
            first_comes: whether every trainer passes values, of which the servers use those of the first trainer that
                connects.
            tables: growing tables, which have no initial arrays.
            rows: on trainer 0: initial rows of growing tables, by name; read once, and only if needed.

        Raises:
            ConfigError: a value is missing or has a different shape or dtype.
            PserverError: a server is configured for a different model, or does not support this one.
        """
        keep_freed_memory(MESSAGES)
        endpoints = self._network.endpoints
        model = Configuration.of(endpoints, self._num_sparse, parameters, optimizer, tables)
        layout = Layout.of(model)
        # Server 0 decides which trainer came first; the others query the remaining servers once all values are set.
        self._exchange.agree_on_list()
        numbered = [*enumerate(layout.used)]
        replies: dict[int, Message] = {}
        for servers in [numbered[:1], numbered[1:]] if first_comes else [numbered]:
            messages = {i: configure_message(model, number, first_comes) for number, i in servers}
            replies |= self._exchange.run(messages)
        shared = {i: self._exchange.attach(i, layout.sizes[i]) for i in layout.used}
        self._lay_out(layout, {i: slabs for i, slabs in shared.items() if slabs is not None})
        self.resumed = read_positions(replies, endpoints, is_async=optimizer.is_async)
        missing = [i for i, reply in replies.items() if not reply.expect(Configured).has_values]
        if not missing:
            self.held_values = True
            if self._trainer == 0:
                _log.info("the pservers already hold values of this model; training continues from them")
            return
        flat = {name: self._layout.flat(name, values, "value") for name in self._layout.parameters}
        self._stored.send(missing, flat)
        for name, pieces in rows.items():
            self._stored.send_rows(missing, name, pieces)
        # Server 0 last: its answer lets other trainers continue with all servers.
        for turn in ([i for i in missing if i], [i for i in missing if not i]):
            self._exchange.run({i: Message(Ready()) for i in turn})

    def wait_at_most(self, wait_s: float) -> None:
        """Limit the duration of each later call, in seconds.

        A call that exceeds the limit raises WaitTimeout; afterwards, only `leave` and `close` are possible.
        """
        self._exchange.wait_s = wait_s

    def rejoin(self) -> int:
        """Replace an earlier process of this trainer; return the number of passes that it finished.

        The earlier process may have reported the end of a pass to only some servers. This call reports it to the other
        servers as well, because other trainers would otherwise wait forever.
        """
        replies = self._exchange.run({i: Message(Pull(length=1)) for i in self._layout.used})
        passes = {i: reply.expect(Ok).passes for i, reply in replies.items()}
        behind = [i for i, number in passes.items() if number < max(passes.values())]
        turns: tuple[Record, ...] = (StartPass(), FinishPass()) if behind else ()
        for record in turns:
            self._exchange.run({i: Message(record) for i in behind})
        return max(passes.values())

    def start_pass(self, *, repeats: bool = False) -> Position:
        """Wait until every trainer starts a pass; return this trainer's position, the batches that it has pushed.

        Args:
            repeats: whether this trainer repeats the batch that an earlier process may have pushed to only some
                servers. The next step then leaves these servers out, so that each server counts the batch once.
        """
        replies = self._exchange.run({i: Message(StartPass()) for i in self._layout.used})
        self._note_versions(replies)
        found = trainer_positions(replies)
        first = min(found.values(), key=lambda at: at.version)
        self._step.left_out = {i: at.in_pass - first.in_pass for i, at in found.items()} if repeats else {}
        return first

    def leave_out_no_server(self) -> None:
        """Push the next batch to all servers: it differs from the batch of this trainer's earlier process."""
        self._step.left_out = {}

    def shrink(self, name: str, min_score: float) -> None:
        """Drop the rows of a growing table with scores below `min_score`, once every trainer has sent this request."""
        asked = Message(Shrink(), sections=(score_section(name, min_score),))
        self._exchange.run({index: asked for index, _ in self._layout.holders(name)})

    def follow(self) -> bool:
        """Take part in a synchronous batch without data, because other trainers have more data than this one.

        Returns:
            Whether a batch was applied; False means every trainer has processed all its data.
        """
        push = Message(PushPull(wants_values=False))
        return self._note_versions(self._exchange.run(dict.fromkeys(self._layout.used, push)))

    def finish_pass(self) -> None:
        """Report that this trainer has processed all its data, and wait until every trainer has reported the same."""
        self._exchange.run({i: Message(FinishPass()) for i in self._layout.used})

    def push_pull(
        self,
        grads: Mapping[str, Array | RowGradient],
        num_samples: int,
        out: Mapping[str, Array],
        ahead: Mapping[str, npt.NDArray[np.int64]] = _NOTHING,
    ) -> dict[str, Array]:
        """Push this batch's gradients and return the values as of the end of the batch.

        Args:
            grads: summed over the batch. Dense: float32 of the parameter's shape; sparse: a RowGradient.
                An omitted gradient is 0.
            num_samples: samples in the batch; schedules count them.
            out: dense parameters to refresh, float32, C-contiguous; filled in place.
            ahead: ids of rows that the next batch reads, by name: their rows arrive with the answer, as of the end of
                this batch, so that `pull_rows` need not request them.

        Returns:
            The result of `pull_rows` for each parameter in `ahead`.

        Raises:
            ConfigError: a name, shape, dtype or row id is wrong, or a gradient contains NaN or infinity; nothing
                was changed on servers, `out` has the servers' values, and the client remains usable.
            PserverError, PserverLost: see the class.
        """
        if not ahead:
            self._note_versions(self._step.run(grads, num_samples, out))
            return {}
        wanted = [self._stored.want(name, ids) for name, ids in ahead.items()]
        came = self._step.run(grads, num_samples, out, wanted)
        self._note_versions(came)
        return dict(zip(ahead, self._stored.rows_of(wanted, came), strict=True))

    def push(self, grads: Mapping[str, Array | RowGradient], num_samples: int) -> None:
        """Push this batch's gradients like `push_pull`, without receiving values."""
        self._note_versions(self._step.run(grads, num_samples, {}, is_quiet=True))

    def gradient_array(self, name: str) -> Array:
        """Return an array (size,) float32 in which to compute a dense parameter's gradients.

        Pushing it saves a copy if a server of this node stores the parameter; any other array can be pushed too.
        """
        self._layout.parameter(name)
        array = self._node.gradient(name)
        return np.zeros(self._layout.parameter(name).size, np.float32) if array is None else array

    def refresh_values(self) -> None:
        """Refresh `value_array` with the current values of this node's servers, without a step."""
        self._step.refresh_values()

    def value_array(self, name: str) -> Array | None:
        """Return a dense parameter's values (size,) as last received, read-only, not a copy.

        The array is valid until the next `push_pull`, `finish_pass` or `close`. The result is None if no server of this
        node stores the whole parameter: then pass it in `out`.
        """
        return self._node.value(name)

    def pull(self, out: Mapping[str, Array]) -> None:
        """Fill dense parameters and whole sparse tables, float32 and C-contiguous, with the servers' values."""
        views = self._layout.views(out)
        if any(not self._layout.parameter(name).sparse for name in out):
            self._stored.pull_dense(views)
        for name in out:
            if self._layout.parameter(name).sparse:
                self._stored.pull_table(name, out[name])

    def pull_rows(self, name: str, ids: npt.NDArray[np.int64]) -> Array:
        """Return rows (n, width) float32 of a sparse parameter for ids (n,) int64; ids may repeat.

        A growing table returns initial values for ids that have had no gradient.
        """
        return self._stored.rows(self._stored.want(name, ids))

    def pull_rows_of(self, ids: Mapping[str, npt.NDArray[np.int64]]) -> dict[str, Array]:
        """Return rows of several parameters by name, as `pull_rows` does for one, with one request per server."""
        wanted = [self._stored.want(name, theirs) for name, theirs in ids.items()]
        return dict(zip(ids, self._stored.rows_of(wanted), strict=True))

    def check_open(self) -> None:
        """Check that the session is open. Raises PserverError if `close` was called."""
        self._exchange.check_open()

    def close(self) -> None:
        """Leave the job, so that other trainers no longer wait for this one. Waits at most 2 s; safe to call twice."""
        try:
            self.leave(_LEAVE_S)
        except PserverError as error:
            _log.info("leaving: %s", error)

    def leave(self, timeout_s: float) -> None:
        """Leave the job, and wait until every server has acknowledged it; safe to call twice.

        Raises:
            PserverError: a server did not acknowledge it within `timeout_s`.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            self._exchange.leave(timeout_s)
        finally:
            self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_versions(self, replies: Mapping[int, Message]) -> bool:
        """Note the number of batches that each server has applied; return whether it has changed."""
        before, self._versions = self._versions, {i: each.expect(Ok).version for i, each in replies.items()}
        return self._versions != before

    def _lay_out(self, layout: Layout, shared: Mapping[int, SharedSlabs]) -> None:
        self._layout, self._node = layout, WithinNode(layout, shared)
        self._exchange.used = layout.used
        self._stored = StoredValues(self._exchange, self._network.endpoints, layout, rows_as=self._rows_as)
        self._step = TrainerStep(self._exchange, self._network, layout, self._node, self._stored)
