# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules whose rows are stored on the parameter servers, and the optimizer that trains them there.

    model = Net()                                   # has Embedding("ads", 16) or EmbeddingBag(...) in it
    with ServerOptimizer(model, Adagrad(lr=0.01)) as optimizer:
        for ids, clicks in Prefetching(loader, optimizer, lambda batch: batch[0]):
            optimizer.zero_grad()
            loss(model(ids), clicks).backward()
            optimizer.step()

A lookup fetches distinct rows (n, dim) as a leaf of the graph, and `step` pushes the gradient of that leaf.
Values and gradients are those of `torch.nn.Embedding` and `EmbeddingBag`. Only importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.batch import Batch
from paddle.pserver.client.client import Client
from paddle.pserver.client.declaration import GrowingTable, TensorOptions

Ids = npt.NDArray[np.int64]

_MODES = ("sum", "mean", "max")


class _Given(NamedTuple):
    """The ids of a module's call: flat (m,), with their shape and the offsets of sequences or bags."""

    flat: Any
    shape: tuple[int, ...]
    offsets: Any = None  # (B + 1,) of a jagged tensor, (B,) of a pair
    is_jagged: bool = False


class Tables(torch.nn.Module):  # type: ignore[misc]
    """Base of `Embedding` and `EmbeddingBag`: growing tables by name, and the servers that store them.

    Attributes:
        tables: `GrowingTable` by name.
    """

    def __init__(
        self, tables: str | Mapping[str, GrowingTable], dim: int | None = None, **table: Any
    ) -> None:
        """Declare the tables, which `ServerOptimizer` creates.

        Args:
            tables: the name of one table, which the other arguments describe; or a dict of several `GrowingTable`.
            dim: elements of a row.
            table: other arguments of `GrowingTable`, such as std, optimizer, min_count, max_age.

        Raises:
            ConfigError: an argument is unknown, or is given for a dict of tables.
        """
        super().__init__()
        if not isinstance(tables, str) and (dim is not None or table):
            raise ConfigError(
                f"{type(self).__name__}: with several tables, set the arguments of each GrowingTable"
            )
        self._is_one = isinstance(tables, str)
        self.tables = {tables: GrowingTable(dim=dim, **table)} if isinstance(tables, str) else dict(tables)
        self._servers: ServerOptimizer | None = None

    def extra_repr(self) -> str:
        """Return what PyTorch prints of the module."""
        return ", ".join(f"{name}: {table.width}" for name, table in self.tables.items())

    def __getstate__(self) -> dict[str, Any]:
        """A copy of a module has no servers yet."""
        return {**self.__dict__, "_servers": None}

    def _by_name(self, given: Any) -> dict[str, Any]:
        """Return arguments by table name."""
        if self._is_one:
            return dict.fromkeys(self.tables, given)
        if not isinstance(given, Mapping) or not given.keys() <= self.tables.keys():
            got = sorted(given) if isinstance(given, Mapping) else type(given).__name__
            raise ConfigError(f"expected ids by the names of tables {', '.join(self.tables)}, got {got}")
        return dict(given)

    def _looked_up(self, given: Mapping[str, _Given]) -> dict[str, tuple[Any, Any]]:
        """Return the distinct rows (n, dim) of each table, and the position of each id in them, (m,)."""
        if self._servers is None:
            raise ConfigError(
                f"{type(self).__name__} of {', '.join(self.tables)} has no servers yet: create "
                "ServerOptimizer(model, ...) first"
            )
        return self._servers.rows({name: each.flat for name, each in given.items()}, records=self.training)


class Embedding(Tables):
    """`torch.nn.Embedding` for any int64 ids, with rows in growing tables."""

    def forward(self, ids: Any) -> Any:
        """Return the rows of ids, float32.

        Args:
            ids: int64 or int32 (...), or a nested tensor of sequences; for several tables by name.

        Returns:
            (..., dim), or a jagged tensor (B, *, dim); for several tables by name.

        Raises:
            ConfigError: there is no such table, or the ids are no integers.
        """
        given = {name: _read(each) for name, each in self._by_name(ids).items()}
        out = {}
        for name, (rows, inverse) in self._looked_up(given).items():
            values, each = torch.nn.functional.embedding(inverse, rows), given[name]
            if each.is_jagged:
                out[name] = torch.nested.nested_tensor_from_jagged(values, each.offsets)
            else:
                out[name] = values.reshape(*each.shape, rows.shape[1])
        return next(iter(out.values())) if self._is_one else out


class EmbeddingBag(Tables):
    """`torch.nn.EmbeddingBag` for any int64 ids: sums, means or maxima of rows in growing tables."""

    def __init__(
        self,
        tables: str | Mapping[str, GrowingTable],
        dim: int | None = None,
        *,
        mode: str = "mean",
        **table: Any,
    ) -> None:
        """Declare the tables and how to combine the rows of a bag: "sum", "mean" or "max"; see `Tables`."""
        super().__init__(tables, dim, **table)
        if mode not in _MODES:
            raise ConfigError(f"EmbeddingBag: mode: expected one of {', '.join(_MODES)}, got {mode!r}")
        self.mode = mode

    def forward(self, ids: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Return one vector per bag, float32; an empty bag gives 0.

        Args:
            ids: (B, length); or (m,) with `offsets`, or the pair of both; or a nested tensor of B sequences. For
                several tables by name.
            offsets: (B,), for one table: the position in ids at which each bag begins.
            per_sample_weights: float32, one for each id; mode "sum" only. For several tables by name.

        Returns:
            (B, dim); for several tables by name.

        Raises:
            ConfigError: there is no such table, or the ids are no integers.
        """
        named = self._by_name(ids if offsets is None else (ids, offsets))
        weights = {} if per_sample_weights is None else self._by_name(per_sample_weights)
        given = {name: _read(each) for name, each in named.items()}
        out = {}
        for name, (rows, inverse) in self._looked_up(given).items():
            each = given[name]
            bags = each.offsets[:-1] if each.is_jagged else each.offsets
            out[name] = torch.nn.functional.embedding_bag(
                inverse if bags is not None else inverse.reshape(each.shape),
                rows,
                bags,
                mode=self.mode,
                per_sample_weights=_weights(weights[name], each) if name in weights else None,
            )
        return next(iter(out.values())) if self._is_one else out


class Prefetched:
    """The result of `ServerOptimizer.prefetch`. `batches`: by table; their rows arrive with the next step's answer."""

    def __init__(self, batches: Mapping[str, Batch], ids: Mapping[str, Ids], step: int) -> None:
        self.batches, self._ids, self._step = dict(batches), dict(ids), step

    @property
    def is_here(self) -> bool:
        """Whether all rows have arrived."""
        return all(batch.has_rows for batch in self.batches.values())

    def is_of(self, step: int) -> bool:
        """Return whether its rows are those of the given step; later steps make them outdated."""
        return step == self._step

    def brings(self, name: str, ids: Ids, step: int) -> bool:
        """Return whether a lookup at the given step can use its rows: they are not from an earlier step."""
        return name in self.batches and self.is_of(step) and np.array_equal(self._ids[name], ids)


class _Lookup(NamedTuple):
    batch: Batch
    rows: Any  # a leaf of the graph


class ServerOptimizer:
    """Trains the tables and the dense parameters of a model on parameter servers. A context manager; not thread-safe.

    Attributes:
        client: its `Client`, for `barrier` and other calls.
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
            model: a `torch.nn.Module` with `Embedding` or `EmbeddingBag` in it. Its parameters that require gradients
                take the servers' values.
            optimizer: optimizer of the tensors that have none of their own.
            client: connected to the servers; None: those of this job.
            dense: False: another optimizer, such as that of a DDP model, trains the dense parameters.
            options: see `Client.create`.

        Raises:
            ConfigError: a tensor is not float32, or two modules describe one table differently.
            PserverError: see `Client.create`.
        """
        modules = [each for each in model.modules() if isinstance(each, Tables)]
        tables: dict[str, GrowingTable] = {}
        for module in modules:
            for name, table in module.tables.items():
                if tables.setdefault(name, table) != table:
                    raise ConfigError(
                        f"table {name}: two modules describe it differently: {tables[name]}, {table}"
                    )
        self._dense = {name: p for name, p in model.named_parameters() if dense and p.requires_grad}
        if shared := sorted(self._dense.keys() & tables.keys()):
            raise ConfigError(f"table {shared[0]} has the name of a parameter: rename the table")
        self._own = client is None
        self.client = Client() if client is None else client
        try:
            self.client.create({**self._dense, **tables}, optimizer, options)
            self.client.pull(self._dense)
            self._into = {name: self.client.gradient_array(name) for name in self._dense}
        except BaseException:
            self.close()
            raise
        self._lookups: list[_Lookup] = []
        self._coming: list[Prefetched] = []
        self._steps = 0
        for module in modules:
            module._servers = self

    def rows(self, ids: Mapping[str, Any], *, records: bool) -> dict[str, tuple[Any, Any]]:
        """Return for each table the rows (n, dim) of distinct ids, and the position of each id (m,) in them.

        Args:
            ids: (m,) int64 or int32 tensors, by table; one request fetches the rows that were not prefetched.
            records: whether `step` pushes the rows' gradients, if autograd is on.
        """
        flat = {name: _on_host(each) for name, each in ids.items()}
        batches = {name: self._prefetched(name, each) for name, each in flat.items()}
        made = self.client.batch({name: flat[name] for name, found in batches.items() if found is None})
        found = {}
        for name, tensor in ids.items():
            batch = batches[name] or made[name]
            rows = torch.from_numpy(batch.rows).to(tensor.device, non_blocking=True)
            if records and torch.is_grad_enabled():
                rows.requires_grad_()
                self._lookups.append(_Lookup(batch, rows))
            found[name] = rows, torch.from_numpy(batch.inverse).to(tensor.device, non_blocking=True)
        return found

    def prefetch(self, ids: Any) -> Prefetched:
        """Request rows with the next step, as of its end; later lookups of these ids use them.

        Args:
            ids: the argument of a module's call: ids, a pair (values, offsets) or a nested tensor if the model has
                one table; otherwise a dict of them by table.

        Raises:
            ConfigError: there is no such table, or the ids are no integers.
        """
        if not isinstance(ids, Mapping):
            tables = self.client.growing
            if len(tables) != 1:
                raise ConfigError(f"prefetch: expected ids by the names of tables {', '.join(tables)}")
            ids = {tables[0]: ids}
        flat = {name: _on_host(_read(each).flat) for name, each in ids.items()}
        handle = Prefetched(self.client.batch(flat), flat, self._steps + 1)
        self._coming = [h for h in self._coming if h.is_here or not h.batches.keys() & flat.keys()]
        self._coming.append(handle)
        return handle

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Discard the gradients of the model's parameters and of the rows looked up since the last step."""
        for tensor in [*self._dense.values(), *(each.rows for each in self._lookups)]:
            if set_to_none:
                tensor.grad = None
            elif tensor.grad is not None:
                tensor.grad.zero_()

    def step(self, num_samples: int = 1) -> None:
        """Apply the mean of all trainers' gradients; update the parameters in place.

        A parameter or row without a gradient has the gradient 0. `num_samples`: see `Client.push_pull`.

        Raises:
            ConfigError, WaitTimeout, PserverError: see `Client.push_pull`.
        """
        share = 1.0 / self.client.num_trainers
        gradients: dict[str, Any] = {}
        for name, parameter in self._dense.items():
            if parameter.grad is not None:
                into = torch.from_numpy(self._into[name]).reshape(parameter.shape)
                into.copy_(parameter.grad if share == 1.0 else parameter.grad * share)
                gradients[name] = self._into[name]
        for batch, rows in self._lookups:
            if rows.grad is not None:
                batch.grad = rows.grad if share == 1.0 else rows.grad.mul_(share)
                gradients.setdefault(batch.name, []).append(batch)
        self._lookups = []
        ahead: dict[str, Batch] = {}
        for handle in self._coming:
            ahead.update((name, batch) for name, batch in handle.batches.items() if not batch.has_rows)
        self.client.push_pull(gradients, self._dense, num_samples, ahead)
        self._steps += 1
        self._coming = [each for each in self._coming if each.is_of(self._steps)]

    def close(self) -> None:
        """Leave the job, if the optimizer created the client; safe to call twice."""
        if self._own:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prefetched(self, name: str, ids: Ids) -> Batch | None:
        for handle in self._coming:
            if handle.brings(name, ids, self._steps):
                return handle.batches.pop(name)
        return None


class Prefetching:
    """Wraps a DataLoader and prefetches the next batch's rows while a batch is computed."""

    def __init__(self, loader: Iterable[Any], optimizer: ServerOptimizer, ids: Callable[[Any], Any]) -> None:
        """Wrap a loader. `ids`: function from a batch to the argument of `ServerOptimizer.prefetch`."""
        self._loader, self._optimizer, self._ids = loader, optimizer, ids

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        for batch in batches:
            for following in batches:
                self._optimizer.prefetch(self._ids(following))
                yield batch
                batch = following
            yield batch


def _read(ids: Any) -> _Given:
    """Parse ids in any form that a module accepts."""
    ids, *more = ids if isinstance(ids, tuple) else (ids,)
    if wrong := [each for each in (ids, *more) if not isinstance(each, torch.Tensor)]:
        raise ConfigError(f"ids: expected a tensor of int64 or int32, got {type(wrong[0]).__name__}")
    if more:
        (offsets,) = more
        return _Given(ids, tuple(ids.shape), offsets)
    if ids.is_nested:
        if ids.layout != torch.jagged:
            ids = torch.nested.nested_tensor(list(ids.unbind()), dtype=ids.dtype, layout=torch.jagged)
        return _Given(ids.values(), tuple(ids.values().shape), ids.offsets(), is_jagged=True)
    return _Given(ids.reshape(-1), tuple(ids.shape))


def _weights(given: Any, ids: _Given) -> Any:
    """Return weights in the layout that `embedding_bag` uses for the ids."""
    if given.is_nested:
        return _read(given).flat
    return given if ids.offsets is not None else given.reshape(ids.shape)


def _on_host(ids: Any) -> Ids:
    if ids.dtype not in (torch.int64, torch.int32):
        raise ConfigError(f"ids: expected int64 or int32, got {ids.dtype}")
    found: Ids = ids.detach().cpu().numpy()
    return found
