# SPDX-License-Identifier: Apache-2.0
"""RemoteUpdater: sends gradients to parameter servers and receives new weights.

Dense parameters are stored in this process and overwritten after every batch. If a server on this node has a whole
parameter, nothing is copied. Gradients are computed into memory that the server reads, and the weights are a read-only
view of the server's own. Since any trainer's batch can change the weights, they are copied before this trainer leaves,
fails, or waits for the others at the end of a pass. Of a sparse parameter, this process has only the rows that a batch
reads. They arrive before the forward pass (with the answer to the previous update if the batch is already known), and
their gradients are sent after the backward pass. Static parameters are never sent. Optimizer state is on the servers,
so it also outlives a call of ``train``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from paddle.endpoints import listed
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from paddle.reader.tasks import PASSES_READ
from paddle.v2.errors import UsageError
from paddle.v2.settings import Settings
from paddle.v2.training.feeder import Feed, ids_in
from paddle.v2.training.gradient_machine import Gradient, GradientMachine, Value
from paddle.v2.training.updater import Updater, parameter_spec
from paddle_node.contract.classes import NamedTuple

_log = logging.getLogger(__name__)


class _Ahead(NamedTuple):
    """Rows that arrived with an update for the next batch: by parameter, ids (n,) and rows (n, width)."""

    feed: Feed
    ids: Mapping[str, NDArray[np.int64]]
    rows: Mapping[str, Value]


class RemoteUpdater(Updater):
    """The updater of one trainer in a cluster. Calls block until the servers have answered or a deadline has passed."""

    def __init__(self, machine: GradientMachine, optimizer: OptimizerSpec, settings: Settings) -> None:
        """Connect to the servers, agree with the other trainers on parameters, and copy trainer 0's values.

        Raises:
            UsageError: the parameters cannot be trained this way.
            PserverError: the servers cannot be reached or refuse.
        """
        self._machine, self._is_async = machine, optimizer.is_async
        trained = [config for config in machine.network.parameters.values() if not config.is_static]
        self._sparse = {config.name: config for config in trained if config.sparse_remote_update}
        dense = [config for config in trained if not config.sparse_remote_update]
        _check(list(self._sparse), [config.name for config in dense], settings)
        self._ids = {name: machine.lookups(name) for name in self._sparse}
        self.looks_ahead = bool(self._ids)  # useful only if there are rows to fetch
        self._on_gpu = settings.use_gpu
        self._home = {config.name: self._buffer(config.name) for config in dense}
        self._near: set[str] = set()
        self._trained = self._passes_read = 0
        self._ahead: _Ahead | None = None
        key = settings.environment.job_key
        self._client = TrainerSession.connect(
            settings.endpoints,
            settings.sparse_endpoints,
            trainer_id=settings.trainer_id,
            num_trainers=settings.num_trainers,
            job_key=key,
            wire=settings.environment.wire or ("curve" if key else "plain"),
            takes_over=settings.environment.restart_count > 0,
            patience_s=settings.environment.pserver_patience_s,
            ports=settings.ports,
        )
        try:
            specs = [parameter_spec(config, sparse=config.sparse_remote_update) for config in trained]
            self._client.configure(specs, optimizer, self._first_values(settings))
            # A restarted trainer, and a job resumed from a checkpoint, continue in the middle of a pass. The servers
            # know how many batches the trainer has pushed.
            self._is_restarted = settings.environment.restart_count > 0
            resumed = None if self._is_restarted else self._client.resumed
            self.continues = self._is_restarted or resumed is not None
            self.passes_over = self._client.rejoin() if self.continues else 0
            if resumed is not None:
                shared = settings.num_trainers if optimizer.is_async else 1
                self._trained = resumed.in_pass // shared
                self.first_step = (resumed.version - resumed.in_pass) // shared
            if self._client.held_values and not self.continues and not settings.trainer_id:
                _warn_of_unsent(machine, [config.name for config in trained])
            machine.parameters.unsent.clear()
            if not self._on_gpu:
                for name in self._home:
                    machine.put_gradient(name, self._client.gradient_array(name))
            self._fetch()
        except BaseException:
            self._client.close()
            raise

    def start_pass(self) -> None:
        """Wait until the other trainers also begin the pass."""
        self._ahead = None
        pushed = self._client.start_pass(repeats=self._is_restarted)
        if self._is_restarted:
            self._trained, self.first_step = pushed.in_pass, pushed.version - pushed.in_pass
            self._is_restarted = False
        self._passes_read = len(PASSES_READ)

    def skip_batch(self) -> bool:
        """Skip the next batch, and return True, if it was trained before this process started.

        Batches of a task queue are not skipped, since it does not repeat what an earlier process has read.
        """
        if len(PASSES_READ) > self._passes_read:
            self._client.leave_out_no_server()
            return False
        if not self._trained:
            return False
        self._trained -= 1
        return True

    def prepare(self, feed: Feed) -> None:
        """Set the rows that a batch reads: received with the previous update, or fetched now."""
        ahead = self._ahead
        is_here = ahead is not None and ahead.feed is feed
        for name, sources in self._ids.items():
            if ahead is not None and is_here:
                self._machine.set_rows(name, ahead.ids[name], ahead.rows[name])
            else:
                ids = ids_in(feed, sources)
                self._machine.set_rows(name, ids, self._client.pull_rows(name, ids))

    def update(self, gradients: Mapping[str, Gradient], num_samples: int, ahead: Feed | None = None) -> None:
        """Send a batch's gradients.

        Wait for the new dense weights and for the rows that the next batch, `ahead`, reads.
        """
        self._ahead = None
        ids = {} if ahead is None else {name: ids_in(ahead, sources) for name, sources in self._ids.items()}
        if self._on_gpu:
            gradients = {name: self._machine.gradient(name) for name in gradients}  # type: ignore[misc]
        far = {name: home for name, home in self._home.items() if name not in self._near}
        try:
            rows = self._client.push_pull(gradients, num_samples, far, ids)
        except BaseException:
            self._unmap_weights()
            raise
        self._take(far)
        if ahead is not None:
            self._ahead = _Ahead(ahead, ids, rows)

    def follow(self) -> bool:
        """Wait until the other trainers have trained a batch, and fetch the dense weights; see `Updater.follow`."""
        self._unmap_weights()
        if self._is_async or not self._client.follow():
            return False
        self._fetch()
        return True

    def finish_pass(self) -> None:
        """Wait until every trainer has finished the pass, then fetch the dense weights."""
        self._unmap_weights()
        self._trained = 0  # a trainer may have fewer batches than the pass
        self._client.finish_pass()
        self._fetch()

    def table(self, name: str) -> Value:
        """Fetch and return all rows of a sparse parameter, with pending decay applied to these copies."""
        table = np.empty(self._sparse[name].shape, np.float32)
        self._client.pull({name: table})
        return table

    def close(self) -> None:
        """Leave the job; the other trainers continue without this one."""
        self._unmap_weights()
        self._client.close()

    def _buffer(self, name: str) -> Value:
        """Return the array that the client writes to: the weights, or a host copy of weights on a GPU."""
        return np.array(self._machine.newest(name)) if self._on_gpu else self._machine.flat(name)

    def _fetch(self) -> None:
        """Fetch the current dense weights."""
        self._client.refresh_values()
        self._near = {name for name in self._home if self._client.value_array(name) is not None}
        far = {name: home for name, home in self._home.items() if name not in self._near}
        if far:
            self._client.pull(far)
        self._take(far)

    def _take(self, far: Mapping[str, Value]) -> None:
        """Set the weights to the received values: those in `far`, and those in memory of a server on this node."""
        lost: dict[str, Value] = {}
        for name in sorted(self._near):
            value = self._client.value_array(name)
            if value is None:
                lost[name] = self._home[name]
            elif self._on_gpu:
                self._machine.replace(name, value)
            else:
                self._machine.show(name, value)
        if lost:  # the server was started again, and its memory with it
            self._unmap_weights()
            self._client.pull(lost)
        if self._on_gpu:
            for name, value in {**far, **lost}.items():
                self._machine.replace(name, value)

    def _unmap_weights(self) -> None:
        """Copy the weights out of shared memory, because a server may change it later."""
        if not self._on_gpu:
            for name in self._near:
                self._home[name][...] = self._machine.flat(name)
                self._machine.show(name, self._home[name])
        self._near = set()

    def _first_values(self, settings: Settings) -> dict[str, Value]:
        if settings.trainer_id:
            return {}
        return {**self._home, **{name: self._machine.parameters.current(name) for name in self._sparse}}


def _warn_of_unsent(machine: GradientMachine, trained: list[str]) -> None:
    unsent = [name for name in trained if name in machine.parameters.unsent]
    if unsent:
        _log.warning(
            "the pservers continue with the values and optimizer state of an earlier trainer of this model; the values "
            "that this script gave %s have no effect. To start from them, start new pservers",
            listed(unsent),
        )


def _check(sparse: list[str], dense: list[str], settings: Settings) -> None:
    if sparse and not dense:
        raise UsageError(
            f"is_local=False: all parameters ({', '.join(sparse)}) are sparse_update; at least one must be dense, for "
            "example a bias"
        )
    if not dense:
        raise UsageError(
            "is_local=False: all parameters are static, so parameter servers have nothing to train; use is_local=True"
        )
    if not settings.endpoints:
        raise UsageError(
            "is_local=False needs parameter servers: set pservers, port and ports_num in paddle.init"
        )
