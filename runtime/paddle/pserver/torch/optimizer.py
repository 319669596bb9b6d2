# SPDX-License-Identifier: Apache-2.0
"""The optimizer that trains a model's tables and dense parameters on the parameter servers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Self

import torch

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.batch import Batch
from paddle.pserver.client.client import Client
from paddle.pserver.client.declaration import GrowingTable, TensorOptions
from paddle.pserver.torch.ids import by_table, on_host, read
from paddle.pserver.torch.prefetching import Coming, Prefetched
from paddle.pserver.torch.tables import Tables
from paddle_node.contract.classes import NamedTuple

_MANY = 1000
"""The number of lookups with a gradient that no step pushed after which a warning is logged."""


class _Lookup(NamedTuple):
    batch: Batch
    rows: Any  # a leaf of the graph


class ServerOptimizer:
    """An optimizer whose steps run on parameter servers, for a model's tables and dense parameters.

    A context manager; not thread-safe.

    Attributes:
        client: the `Client`, for `barrier` and other calls.
    """

    def __init__(
        self,
        model: Any,
        optimizer: OptimizerSpec,
        *,
        client: Client | None = None,
        dense: bool = True,
        options: Mapping[str, TensorOptions] | None = None,
    ) -> None:
        """Create the model's tensors on the servers, or attach to existing ones; wait for all trainers.

        Args:
            model: a `torch.nn.Module` that contains `Embedding` or `EmbeddingBag`. Its parameters that require
                gradients are set to the servers' values.
            optimizer: optimizer of the tensors that do not specify one.
            client: a client that is connected to the servers; None means connect to those of this job.
            dense: whether to train dense parameters; False means another optimizer does, such as that of a DDP model.
            options: options of single tensors; see `Client.create`.

        Raises:
            ConfigError: a tensor is not float32, or two modules describe one table differently.
            PserverError: see `Client.create`.
        """
        modules = [each for each in model.modules() if isinstance(each, Tables)]
        tables: dict[str, GrowingTable] = {}
        for module in modules:
            for name, table in module.tables.items():
                if (first := tables.setdefault(name, table)) != table:
                    pairs = {each: (getattr(first, each), getattr(table, each)) for each in table.__slots__}
                    what, (one, other) = next(item for item in pairs.items() if item[1][0] != item[1][1])
                    raise ConfigError(
                        f"table {name}: two modules differ in {what}, {one!r} and {other!r}; give both the same "
                        "GrowingTable"
                    )
        self._dense = {name: p for name, p in model.named_parameters() if dense and p.requires_grad}
        if shared := sorted(self._dense.keys() & tables.keys()):
            raise ConfigError(f"table {shared[0]} has the same name as a parameter: rename the table")
        self._own = client is None
        self.client = Client() if client is None else client
        try:
            self.client.create({**self._dense, **tables}, optimizer, options)
            self.client.pull(self._dense)
            self._into = {name: self.client.gradient_array(name) for name in self._dense}
        except BaseException:
            self.close()
            raise
        self._lookups: dict[int, _Lookup] = {}  # by the identity of the rows
        self._coming, self._steps = Coming(), 0
        self._paddings = {name: each.padding_idx for each in modules for name in each.tables}
        for module in modules:
            module.attach(self)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups, as in `torch.optim.Optimizer`: the dense parameters, and the rows with a gradient."""
        return [{"params": [*self._dense.values(), *(each.rows for each in self._lookups.values())]}]

    @property
    def has_dense(self) -> bool:
        """Return whether the servers also train dense parameters."""
        return bool(self._dense)

    def rows(self, ids: Mapping[str, Any], *, records: bool) -> dict[str, tuple[Any, Any]]:
        """Return, for each table, the distinct rows (n, dim), and the position of each id (m,) in them.

        Args:
            ids: (m,) int64 or int32 tensors, by table; one request fetches the rows that were not prefetched.
            records: whether `step` pushes the rows' gradients, if autograd is enabled.
        """
        flat = {name: on_host(each) for name, each in ids.items()}
        batches = {}
        for name, each in flat.items():
            if (batch := self._coming.found(name, each, self._steps)) is not None:
                batches[name] = batch
        made = self.client.batch({name: each for name, each in flat.items() if name not in batches})
        for name, batch in made.items():
            self._coming.fill(name, batch)
        batches |= made
        found = {}
        for name, tensor in ids.items():
            batch = batches[name]
            rows = torch.from_numpy(batch.rows).to(tensor.device, non_blocking=True)
            if records and torch.is_grad_enabled():
                rows.requires_grad_()
                rows.register_post_accumulate_grad_hook(functools.partial(self._note, batch))
            found[name] = rows, torch.from_numpy(batch.inverse).to(tensor.device, non_blocking=True)
        return found

    def prefetch(self, ids: Any, steps: int = 1) -> Prefetched:
        """Request rows for lookups after a later step; they arrive with the answer to that step, as updated by it.

        Args:
            ids: the argument of a module's call: ids, a pair (values, offsets) or a jagged tensor if the model has one
                table; otherwise a dict of them by table.
            steps: number of calls of `step` before the lookup. Several prefetches can be for the same step.

        Raises:
            ConfigError: the table does not exist, or the ids are not integers.
        """
        tables = self.client.growing
        named = by_table(ids, tables, is_one=len(tables) == 1 and not isinstance(ids, Mapping))
        flat = {}
        for name, each in named.items():
            found = on_host(read(each).flat)
            padding_idx = self._paddings.get(name)
            flat[name] = found if padding_idx is None else found[found != padding_idx]
        handle = Prefetched(self.client.batch(flat), flat, self._steps + steps)
        self._coming.add(handle)
        return handle

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Discard the gradients of the model's parameters, and of the rows looked up since the last step."""
        for parameter in self._dense.values():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()
        for each in self._lookups.values():
            each.rows.grad = None
        self._lookups.clear()

    def step(self, num_samples: int = 1) -> None:
        """Apply the mean of all trainers' gradients, and update the model's parameters in place.

        Gradients of several backward passes are summed. A parameter or row without a gradient counts as 0.
        `num_samples`: see `Client.push_pull`.

        Raises:
            ConfigError, WaitTimeout, PserverError: see `Client.push_pull`. The gradients of rows are discarded.
        """
        share = 1.0 / self.client.num_trainers
        gradients: dict[str, Any] = {}
        for name, parameter in self._dense.items():
            if parameter.grad is not None:
                into = torch.from_numpy(self._into[name]).reshape(parameter.shape)
                into.copy_(parameter.grad if share == 1.0 else parameter.grad * share)
                gradients[name] = self._into[name]
        lookups, self._lookups = self._lookups, {}
        for batch, rows in lookups.values():
            if rows.grad is not None:
                batch.grad = rows.grad if share == 1.0 else rows.grad.mul_(share)
                gradients.setdefault(batch.name, []).append(batch)
        ahead = self._coming.of_step(self._steps + 1, self.client)
        self.client.push_pull(gradients, self._dense, num_samples, ahead)
        self._steps += 1
        self._coming.arrive(self._steps)

    def close(self) -> None:
        """Leave the job, if the optimizer created the client; safe to call twice."""
        if self._own:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._lookups:
            self._warn("before close()")
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            "ServerOptimizer has connections and cannot be copied or pickled: save the model, "
            "and create an optimizer in each process"
        )

    def _note(self, batch: Batch, rows: Any) -> None:
        """Record a lookup whose rows received a gradient."""
        self._lookups[id(rows)] = _Lookup(batch, rows)
        if len(self._lookups) == _MANY:
            self._warn("so far")

    def _warn(self, when: str) -> None:
        warnings.warn(
            f"ServerOptimizer: the gradients of {len(self._lookups)} lookups were not pushed {when}: "
            "call step() after backward(), or zero_grad() to discard them",
            RuntimeWarning,
            stacklevel=3,
        )
