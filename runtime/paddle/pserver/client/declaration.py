# SPDX-License-Identifier: Apache-2.0
"""Validates the tensors that a program of any framework creates, and sorts them by name so that all trainers agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, optimizer_of
from paddle.pserver.client.interop import HostArray, host_array, require_names
from paddle.pserver.client.pytorch_names import one_of, refuse_others
from paddle.pserver.exported.folder import read_start
from paddle.pserver.sparse.blocks import ROW_DTYPES
from paddle.pserver.sparse.budget import Budget, size_of
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import MAX_ROWS, TableSpec
from paddle.pserver.sparse.walk import TableRows
from paddle.signatures import explained
from paddle_node.contract.classes import NamedTuple, asdict, dataclass, fields, replace


@explained
@dataclass(frozen=True, slots=True)
class TensorOptions:
    """The options of one tensor; `paddle.optim.spec.ParameterSpec` validates them.

    Attributes:
        sparse: a table (height, width) whose steps update a few rows; gradients are (ids, rows).
        learning_rate: factor of the optimizer's rate.
        momentum: momentum of v2's rules; other rules have a hyperparameter.
        l1: rate of L1 decay.
        l2: rate of L2 decay.
        clip: bound on each element of the summed gradient; 0 means none.
        optimizer: this tensor's rule, rate and schedule; None means the job's.
    """

    sparse: bool = False
    learning_rate: float = 1.0
    momentum: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    clip: float = 0.0
    optimizer: OptimizerSpec | None = None


@dataclass(frozen=True, slots=True, init=False)
class GrowingTable:
    """The declaration of a growing table, in place of a tensor's value. Rows of int64 ids are created on demand.

    See `paddle.pserver.sparse.spec.TableSpec`, which checks the values.

    Attributes:
        width: number of elements per row; also accepted under PyTorch's name `dim`.
        initial: initial values of rows, which depend only on the seed and the id; `std=x`: `Initial("normal",
            spread=x)`.
        entry: number of batches that must contain an id before its row is created; also called `min_count`.
        max_age: a row without a gradient for more than this number of steps is dropped; 0 means never.
        max_rows: maximum number of rows on one server.
        optimizer: this table's optimizer; None means the job's.
        memory: limit on the bytes of rows, states and index on one server, or text such as "8GB"; when it is reached,
            rows are evicted. 0 means no limit.
        evict: which rows are evicted first: "lru", the least recently updated; "lfu", those that occurred in the fewest
            batches; "score", those with the lowest scores.
        decay: factor by which each batch multiplies the scores; for "score".
        click: number of shows that one click is worth; for "score".
        min_score: rows with a lower score are dropped, at most 1024 batches later; 0 means none.
        start: an exported table or a file with the table's initial rows, see `paddle.pserver.tables`; for a file with
            several matrices (path, key).
        disk: a directory on each server's machine for a file of evicted rows, which are loaded again when a batch
            has their ids. If empty, they are dropped.
        dtype: dtype of the values on the servers: "float32", or "float16", which takes half the memory. Updates are
            computed in float32, and their results are rounded; states are float32.
    """

    width: int
    initial: Initial
    entry: int
    max_age: int
    max_rows: int
    optimizer: OptimizerSpec | None
    memory: int
    evict: str
    decay: float
    click: float
    min_score: float
    start: str | Path | tuple[str | Path, str] | None
    disk: str
    dtype: str

    def __init__(
        self,
        width: int | None = None,
        initial: Initial | None = None,
        entry: int | None = None,
        max_age: int = 0,
        max_rows: int = MAX_ROWS,
        optimizer: OptimizerSpec | None = None,
        memory: int | str = 0,
        evict: str = "lru",
        decay: float = 0.9999,
        click: float = 10.0,
        min_score: float = 0.0,
        disk: str = "",
        *,
        start: str | Path | tuple[str | Path, str] | None = None,
        dtype: str = "float32",
        dim: int | None = None,
        std: float | None = None,
        min_count: int | None = None,
        **others: object,
    ) -> None:
        """Describe a table. Raises ConfigError if an argument is unknown, or is given under two names."""
        refuse_others("GrowingTable", others, (*self.__dataclass_fields__, "dim", "std", "min_count"))
        normal = None if std is None else Initial("normal", spread=std)
        found = {
            "width": one_of("GrowingTable", width=width, dim=dim),
            "initial": one_of("GrowingTable", initial=initial, std=normal) or Initial(),
            "entry": one_of("GrowingTable", entry=entry, min_count=min_count),
            "max_age": max_age,
            "max_rows": max_rows,
            "optimizer": optimizer,
            "start": start,
            "dtype": _row_dtype(dtype),
        }
        try:
            found |= asdict(Budget(size_of(memory), evict, decay, click, min_score, disk))
        except ConfigError as error:
            raise ConfigError(f"GrowingTable: {error}") from None
        if found["width"] is None:
            raise ConfigError("GrowingTable: expected the width of its rows, such as GrowingTable(16)")
        if found["entry"] is None:
            found["entry"] = 1
        for name, value in found.items():
            object.__setattr__(self, name, value)


_PLAIN = TensorOptions()


class Declaration(NamedTuple):
    """A validated description of the tensors to create, as sent to the servers.

    Attributes:
        parameters: tensors that have a value.
        values: the tensors' values, by name.
        tables: growing tables.
        starts: path and key of the initial rows of growing tables, by name.
    """

    parameters: list[ParameterSpec]
    values: dict[str, HostArray]
    tables: list[TableSpec]
    starts: dict[str, tuple[Path, str]]

    def rows(self, optimizer: OptimizerSpec) -> dict[str, Iterator[TableRows]]:
        """Return table name -> iterator over the initial rows, read from files; `optimizer` is the job's."""
        specs = {table.name: table for table in self.tables}
        return {
            name: read_start(
                path, key, specs[name].width, optimizer_of(specs[name].parameter, optimizer).rule
            )
            for name, (path, key) in self.starts.items()
        }


def declare(values: Mapping[str, Any], options: Mapping[str, TensorOptions]) -> Declaration:
    """Validate the arguments of `client.Client.create` and return the description of the tensors.

    Raises:
        ConfigError: a value, name or option is invalid.
    """
    require_names(values, "create")
    if not values:
        raise ConfigError("create needs at least one tensor")
    for name in options:
        if name not in values:
            raise ConfigError(f"options of tensor {name!r}: no such tensor; known: {', '.join(values)}")
    declared = Declaration([], {}, [], {})
    for name in sorted(values):
        value, asked = values[name], options.get(name, _PLAIN)
        if isinstance(value, GrowingTable):
            if value.optimizer is not None:
                if asked.optimizer is not None:
                    raise ConfigError(
                        f"options of tensor {name}: its GrowingTable already has an optimizer; omit one of the two"
                    )
                asked = replace(asked, optimizer=value.optimizer)
            if value.start is not None:
                path, key = value.start if isinstance(value.start, tuple) else (value.start, "")
                declared.starts[name] = Path(path), key
            declared.tables.append(
                TableSpec(
                    _parameter(name, (1, value.width), asked, sparse=True),
                    value.initial,
                    value.entry,
                    value.max_age,
                    value.max_rows,
                    Budget(*(getattr(value, each.name) for each in fields(Budget))),
                    value.dtype,
                )
            )
            continue
        array = host_array(value, f"value of tensor {name}")
        _require_finite_float32(f"value of tensor {name}", array)
        declared.values[name] = array
        # A single number is stored as an array of one element.
        declared.parameters.append(_parameter(name, array.shape or (1,), asked, sparse=asked.sparse))
    return declared


def _row_dtype(given: object) -> str:
    """Return the dtype of a table. Raises ConfigError if the dtype is unsupported."""
    if isinstance(given, str) and given in ROW_DTYPES:
        return given
    text = str(given).lower()
    is_half = ("16" in text or "half" in text) and "bf" not in text
    near = "float16" if is_half else "float32" if "float" in text or "32" in text else ""
    hint = f': did you mean "{near}"?' if near and "bfloat" not in text else ""
    raise ConfigError(f'GrowingTable: dtype: expected "float32" or "float16", got {given!r}{hint}')


def _parameter(name: str, shape: tuple[int, ...], asked: TensorOptions, *, sparse: bool) -> ParameterSpec:
    return ParameterSpec(
        name,
        shape,
        learning_rate=asked.learning_rate,
        momentum=asked.momentum,
        l1=asked.l1,
        l2=asked.l2,
        clip=asked.clip,
        sparse=sparse,
        optimizer=asked.optimizer,
    )


def _require_finite_float32(what: str, array: HostArray) -> None:
    if array.dtype != np.float32:
        raise ConfigError(f"{what}: expected float32, got {array.dtype}")
    if not np.isfinite(array).all():
        raise ConfigError(f"{what}: expected finite values, but some are NaN or infinite")
