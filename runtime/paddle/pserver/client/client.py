# SPDX-License-Identifier: Apache-2.0
"""The client of parameter servers for any framework: sends gradients and receives values of named tensors.

A wrapper around `session.TrainerSession` that accepts numpy, cupy and DLPack arrays. A step is one push by every
trainer; a tensor that is left out has gradient 0. Every call blocks, for a bounded time: `timeout_s` limits how long a
server may be silent, `wait_s` how long a call waits for other trainers. After a server error, a client can only be
closed; calls on a closed client raise PserverError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, overload
from weakref import WeakValueDictionary

from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.client.batch import Batch, batches_of, gradient_of
from paddle.pserver.client.declaration import TensorOptions, declare
from paddle.pserver.client.interop import (
    Destinations,
    HostArray,
    host_array,
    put_rows,
    read_ids,
    require_names,
    row_gradient,
)
from paddle.pserver.client.job_servers import JobServers, positive
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.sparse.budget import MAX_SCORE
from paddle.pserver.wire.configuration import Position
from paddle.signatures import explained


@explained
class Client:
    """One trainer's client of a job's parameter servers; a context manager that leaves the job on exit.

    Not thread-safe.

    Attributes:
        trainer_id: rank of this trainer.
        num_trainers: number of trainers; gradients of one step are summed over them.
        barriers: number of barriers that this trainer has passed, including those before a restart or a resume.
        patience_s: time in seconds to wait for a server that is being restarted.
        resumed: after `create`, the point in training from which a job resumes; None means no checkpoint was loaded.
    """

    def __init__(
        self,
        endpoints: Sequence[str] | None = None,
        sparse_endpoints: Sequence[str] | None = None,
        *,
        trainer_id: int | None = None,
        num_trainers: int | None = None,
        job_key: str | None = None,
        wire: str | None = None,
        timeout_s: float = 60.0,
        wait_s: float = 600.0,
        patience_s: float | None = None,
        within_node: bool = True,
        wire_dtype: str = "float32",
    ) -> None:
        """Connect to all servers of a job.

        Arguments that are not given are taken from the job's environment, as set by `paddle.py`.

        Args:
            endpoints: "ip:port" of each server, the same list in every trainer.
            sparse_endpoints: servers for sparse tensors; if there are none, all servers store them.
            trainer_id: rank of this trainer; default 0.
            num_trainers: trainers in the job; default 1.
            job_key: secret of the job, for the wire "curve".
            wire: "curve" or "plain"; by default curve if there is a key.
            timeout_s: maximum silence of a server, in seconds.
            wait_s: maximum time of one request in seconds, including the wait for other trainers.
            patience_s: time in seconds to wait for a server that is being restarted; by default the job's setting.
            within_node: whether to share memory with servers of this node; False means everything is sent.
            wire_dtype: "float16" or "bfloat16" halves the bytes of sparse tensors' rows and gradients on the wire;
                servers compute in float32.

        Raises:
            ConfigError: an argument or a variable is invalid, or the servers' endpoints are not given anywhere.
            PserverLost: a server did not answer in time.
            PserverError: a server refused the client.
        """
        job = JobEnvironment.read()
        servers = JobServers.find("Client", job, endpoints, sparse_endpoints, job_key, wire)
        self.trainer_id = (job.trainer_id or 0) if trainer_id is None else trainer_id
        self.num_trainers = (job.num_trainers or 1) if num_trainers is None else num_trainers
        self.barriers = 0
        self.patience_s = job.pserver_patience_s if patience_s is None else patience_s
        self.resumed: Position | None = None
        self._wait_s = positive("wait_s", wait_s)
        self._restarted = job.restart_count > 0
        self._parameters: dict[str, ParameterSpec] = {}
        self._growing: tuple[str, ...] = ()
        self._destinations = Destinations({}, self._growing)
        self._session = TrainerSession.connect(
            servers.endpoints,
            servers.sparse_endpoints,
            trainer_id=self.trainer_id,
            num_trainers=self.num_trainers,
            job_key=servers.job_key,
            wire=servers.wire,
            timeout_s=positive("timeout_s", timeout_s),
            takes_over=self._restarted,
            patience_s=self.patience_s,
            within_node=within_node,
            wire_dtype=wire_dtype,
        )
        self._session.wait_at_most(self._wait_s)

    @property
    def growing(self) -> tuple[str, ...]:
        """The names of the growing tables that were created."""
        return self._growing

    def create(
        self,
        values: Mapping[str, Any],
        optimizer: OptimizerSpec,
        options: Mapping[str, TensorOptions] | None = None,
    ) -> None:
        """Create the job's tensors, or attach to existing ones; wait until every trainer has connected.

        All initial values come from the first trainer to connect; `pull` then returns them to every trainer. Servers
        that already have these tensors keep their values.

        Args:
            values: initial value of each tensor, float32, or a GrowingTable; names, shapes and options are the same
                in every trainer.
            optimizer: the optimizer that the servers run, and whether they apply each gradient on arrival.
            options: options of the tensors that need any.

        Raises:
            ConfigError: a value, name or option is invalid; nothing was sent.
            PserverError: another trainer created different tensors; the message names the first difference.
            WaitTimeout: the other trainers did not connect in time.
        """
        self._session.check_open()
        if self._parameters:
            raise ConfigError("tensors have already been created: create all of them in a single call")
        declared = declare(values, options or {})
        parameters, found, tables, _ = declared
        rows = declared.rows(optimizer)
        self._session.configure(parameters, optimizer, found, first_comes=True, tables=tables, rows=rows)
        parameters += [table.parameter for table in tables]
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._growing = tuple(table.name for table in tables)
        self._sparse_names = frozenset(name for name, each in self._parameters.items() if each.sparse)
        self._destinations = Destinations(self._parameters, self._growing)
        self.resumed = self._session.resumed
        if self._restarted or self.resumed is not None:
            self.barriers = self._session.rejoin()
        self._session.start_pass()

    def push(self, gradients: Mapping[str, Any], num_samples: int = 1) -> None:
        """Take a step like `push_pull` without receiving values; see `push_pull` for arguments and errors."""
        self._require_created()
        self._session.push(self._gradients(gradients), num_samples)

    def pull(self, out: Mapping[str, Any]) -> None:
        """Fill the given arrays with the servers' values, sparse tensors in full. See `push_pull` for errors.

        Args:
            out: float32 arrays of the tensors' shapes, filled in place.
        """
        self._require_created()
        hosts, finish = self._destinations.of(out)
        self._session.pull(hosts)
        for each in finish:
            each()

    def push_pull(
        self,
        gradients: Mapping[str, Any],
        out: Mapping[str, Any],
        num_samples: int = 1,
        ahead: Batch | Mapping[str, Batch] | Sequence[Batch] | None = None,
    ) -> None:
        """Push gradients and receive new values, in a step of all trainers, or of this one if asynchronous.

        A push is applied exactly once, even if a connection breaks during the call.

        Args:
            gradients: float32 of the tensor's shape, or for a sparse tensor (ids, rows): ids (...) int64 or int32,
                which may repeat, and rows (..., width) float32; or a `Batch` with its `grad`, or several in a list.
                For a table with scores also (ids, rows, shows, clicks), the last two (...) non-negative numbers.
            out: dense tensors to refresh, float32, filled in place; may be the tensors of the model themselves.
            num_samples: number of samples that the gradients come from; some learning rate schedules count them.
            ahead: batches of the next step. Their rows arrive with the answer, as of the end of this step. In
                synchronous training, a later request would return the same rows.

        Raises:
            ConfigError: a name, shape, dtype or row id is wrong, or a gradient contains NaN or infinity; nothing was
                changed, and the client remains usable.
            WaitTimeout: other trainers did not push in time.
        """
        self._require_created()
        hosts, finish = self._destinations.of(out)
        for name in self._sparse_names.intersection(out):
            raise ConfigError(
                f"out array of tensor {name}: the tensor is sparse; use pull_rows, or pull without an out array"
            )
        coming = {} if ahead is None else batches_of(ahead)
        ids = {name: each.ids for name, each in coming.items()}
        found = self._session.push_pull(self._gradients(gradients), num_samples, hosts, ids)
        for name, rows in found.items():
            coming[name].take(rows)
        for each in finish:
            each()

    def gradient_array(self, name: str) -> HostArray:
        """Return an array for a dense tensor's gradients: float32 in the tensor's shape. All steps can reuse it.

        If a server of this node stores the whole tensor, the array is shared memory, and pushing it copies nothing;
        otherwise it is an ordinary array. Its contents are unchanged between pushes.

        Raises:
            ConfigError: the tensor does not exist, or is sparse.
        """
        shape = self._dense(name, "gradient_array").shape
        return self._session.gradient_array(name).reshape(shape)

    def value_array(self, name: str) -> HostArray | None:
        """Return a dense tensor's values from the last push_pull: float32 in its shape, read-only, not a copy.

        The array is valid until the next push begins: call this after each push. The result is None if no push has
        returned the tensor, or if no server of this node that shares its memory stores the whole tensor: then call
        `pull`, and pass the tensor in the next `out`.

        Raises:
            ConfigError: the tensor does not exist, or is sparse.
        """
        shape = self._dense(name, "value_array").shape
        array = self._session.value_array(name)
        return None if array is None else array.reshape(shape)

    def pull_rows(self, name: str, ids: Any, out: Any = None) -> HostArray:
        """Return the current rows of a sparse tensor, without a step. Raises ConfigError if an argument is wrong.

        Args:
            name: the name of the tensor; a growing table returns initial values for ids that have had no gradient.
            ids: (...) int64 or int32; may repeat.
            out: (..., width) float32, also filled in place; None means only the result is returned.

        Returns:
            (..., width) float32, a new array.
        """
        self._require_created()
        rows = read_ids(ids, f"row ids of tensor {name}")
        found = self._session.pull_rows(name, rows.reshape(-1))
        found = found.reshape(*rows.shape, found.shape[-1])
        if out is not None:
            put_rows(name, found, out)
        return found

    @overload
    def batch(self, name: str, ids: Any) -> Batch: ...
    @overload
    def batch(self, name: Mapping[str, Any]) -> dict[str, Batch]: ...
    def batch(self, name: str | Mapping[str, Any], ids: Any = None) -> Batch | dict[str, Batch]:
        """Return a `Batch`: the distinct rows of a sparse tensor that the next forward pass needs.

        This call sends nothing: rows are fetched at their first use, or with the answer to a push that names the batch
        in `ahead`. One request fetches the rows of several tensors.

        Args:
            name: name of the tensor; or a dict of ids by tensor name.
            ids: (...) int64 or int32; may repeat.

        Raises:
            ConfigError: the tensor does not exist or is not sparse, or the ids are not integers.
        """
        if isinstance(name, str):
            return self._batches({name: ids})[name]
        return self._batches(name)

    def shrink(self, name: str, *, min_score: float) -> None:
        """Drop the rows of a growing table with scores below `min_score`; wait until every trainer calls this.

        Every trainer calls this between the same two steps, with the same arguments: all servers drop the rows
        between the same two batches, exactly once. `status` reports the number of dropped rows.

        Args:
            name: a table with `evict="lfu"` or `evict="score"`.
            min_score: 0 or more.

        Raises:
            ConfigError: the table does not exist, or its rows have no scores; nothing was sent.
            PserverError: the trainers passed different scores; nothing was dropped.
            WaitTimeout: the other trainers did not call this method in time.
        """
        self._require_created()
        if name not in self._growing:
            raise ConfigError(
                f"shrink: no growing table is named {name!r}; known: {', '.join(self._growing) or 'none'}"
            )
        if isinstance(min_score, bool) or not 0 <= min_score <= MAX_SCORE:
            raise ConfigError(
                f"shrink {name}: min_score: expected a number from 0 to {MAX_SCORE:g}, got {min_score}"
            )
        self._session.shrink(name, min_score)

    def barrier(self, wait_s: float | None = None) -> None:
        """Wait for every trainer that has not left. Meanwhile, servers do not wait for this trainer's gradients.

        Args:
            wait_s: maximum time in seconds until all trainers have passed the barrier; None means the client's limit
                for all requests.

        Raises:
            WaitTimeout: a trainer did not reach the barrier; the message names it if the servers know it.
        """
        self._require_created()
        self._session.wait_at_most(self._wait_s if wait_s is None else positive("wait_s", wait_s))
        self._session.finish_pass()
        self._session.start_pass()
        self._session.wait_at_most(self._wait_s)
        self.barriers += 1

    def close(self) -> None:
        """Leave the job, so that other trainers no longer wait for this one. Waits at most 2 s; safe to call twice."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(self, ids: Mapping[str, Any]) -> dict[str, Batch]:
        self._require_created()

        # Weak: a dropped batch needs no rows, and a reference cycle of batches would keep all of their rows.
        made: WeakValueDictionary[str, Batch] = WeakValueDictionary()

        def bring() -> None:
            lacking = {name: each.ids for name, each in made.items() if not each.has_rows}
            for name, rows in self._session.pull_rows_of(lacking).items():
                made[name].take(rows)

        found = {}
        for name, theirs in ids.items():
            found[name] = made[name] = Batch(name, theirs, self._sparse(name).shape[1], bring)
        return found

    def _gradients(self, gradients: Mapping[str, Any]) -> dict[str, HostArray | RowGradient]:
        require_names(gradients, "gradients")
        found = {}
        for name, given in gradients.items():
            gradient = given if self._destinations.is_plain(name, given) else self._gradient(name, given)
            if gradient is not None:
                found[name] = gradient
        return found

    def _gradient(self, name: str, given: Any) -> HostArray | RowGradient | None:
        what = f"gradient of tensor {name}"
        if isinstance(given, Batch):
            return gradient_of(name, [given])
        if isinstance(given, list) and given and all(isinstance(each, Batch) for each in given):
            return gradient_of(name, given)
        if isinstance(given, tuple):
            if len(given) not in (2, 4):
                expected = "(ids, rows) or (ids, rows, shows, clicks)"
                raise ConfigError(f"{what}: expected {expected}, got a tuple of length {len(given)}")
            return row_gradient(given[0], given[1], what, given[2:])
        array = host_array(given, what)
        if name in self._parameters and self._parameters[name].sparse:
            raise ConfigError(f"{what} is sparse: expected (ids, rows), got {type(given).__name__}")
        self._destinations.check(name, array, what)
        return array

    def _dense(self, name: str, what: str) -> ParameterSpec:
        self._require_created()
        parameter = self._parameters.get(name)
        if parameter is None:
            raise ConfigError(
                f"{what}: no tensor named {name!r} was created; known: {', '.join(self._parameters)}"
            )
        if parameter.sparse:
            raise ConfigError(
                f"{what}: tensor {name} is sparse, so its gradients are (ids, rows); see pull_rows"
            )
        return parameter

    def _sparse(self, name: str) -> ParameterSpec:
        parameter = self._parameters.get(name)
        if parameter is None or not parameter.sparse:
            known = ", ".join(each for each, found in self._parameters.items() if found.sparse) or "none"
            raise ConfigError(f"batch: no sparse tensor is named {name!r}; sparse tensors are {known}")
        return parameter

    def _require_created(self) -> None:
        self._session.check_open()
        if not self._parameters:
            raise ConfigError("no tensors exist yet: call create first")
