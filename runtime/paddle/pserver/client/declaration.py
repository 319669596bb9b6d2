# SPDX-License-Identifier: Apache-2.0
"""The tensors that a program of any framework creates, checked and put into one order for all trainers: by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from paddle.errors import ConfigError
from paddle.optim.spec import ParameterSpec
from paddle.pserver.client.interop import HostArray, host_array
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import MAX_ROWS, TableSpec


@dataclass(frozen=True, slots=True)
class TensorOptions:
    """See `paddle.optim.spec.ParameterSpec`, which checks the values.

    Attributes:
        sparse: a table (height, width) of which steps touch some rows; gradients are (ids, rows).
        learning_rate: factor on the optimizer's.
        momentum: of v2's rules; others have their own.
        l1: rate of L1 decay.
        l2: rate of L2 decay.
        clip: bound on each element of the summed gradient; 0: none.
    """

    sparse: bool = False
    learning_rate: float = 1.0
    momentum: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    clip: float = 0.0


@dataclass(frozen=True, slots=True)
class GrowingTable:
    """Given in place of a tensor's value: rows by any int64 id, made as ids are seen.

    See `paddle.pserver.sparse.spec.TableSpec`, which checks the values.

    Attributes:
        width: elements of a row.
        initial: what rows begin with, a function of seed and id alone.
        entry: the row of an id is made when the id is seen for the entry-th time.
        max_age: a row that got no gradient for more than so many steps is dropped; 0: never.
        max_rows: on one server.
    """

    width: int
    initial: Initial = field(default_factory=Initial)
    entry: int = 1
    max_age: int = 0
    max_rows: int = MAX_ROWS


_PLAIN = TensorOptions()


class Declaration(NamedTuple):
    """The description of the tensors for the servers.

    Attributes:
        parameters: tensors that have a value.
        values: of these, by name.
        tables: growing ones.
    """

    parameters: list[ParameterSpec]
    values: dict[str, HostArray]
    tables: list[TableSpec]


def declare(values: Mapping[str, Any], options: Mapping[str, TensorOptions]) -> Declaration:
    """Read what `neutral_client.Client.create` was given.

    Raises:
        ConfigError: a value, name or option is wrong.
    """
    if not values:
        raise ConfigError("there is no tensor to create")
    for name in options:
        if name not in values:
            raise ConfigError(f"options of tensor {name!r}: no such tensor; there are {', '.join(values)}")
    declared = Declaration([], {}, [])
    for name in sorted(values):
        value, asked = values[name], options.get(name, _PLAIN)
        if isinstance(value, GrowingTable):
            declared.tables.append(
                TableSpec(
                    _parameter(name, (1, value.width), asked, sparse=True),
                    value.initial,
                    value.entry,
                    value.max_age,
                    value.max_rows,
                )
            )
            continue
        array = host_array(value, f"value of tensor {name}")
        _require_finite_float32(f"value of tensor {name}", array)
        declared.values[name] = array
        # A single number is kept as an array of one.
        declared.parameters.append(_parameter(name, array.shape or (1,), asked, sparse=asked.sparse))
    return declared


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
    )


def _require_finite_float32(what: str, array: HostArray) -> None:
    if array.dtype != np.float32:
        raise ConfigError(f"{what}: expected float32, got {array.dtype}")
    if not np.isfinite(array).all():
        raise ConfigError(f"{what} is NaN or infinite")
