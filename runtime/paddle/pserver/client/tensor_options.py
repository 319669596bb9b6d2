# SPDX-License-Identifier: Apache-2.0
"""What a program of any framework says of the tensors it creates."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import MAX_ROWS


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
