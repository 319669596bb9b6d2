# SPDX-License-Identifier: Apache-2.0
"""One trainer's gradients of one batch, as far as they are for one server."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle.optim.spec import RowGradient
from paddle.pserver.message import Message, Section

Slab = npt.NDArray[np.float32]


class Gradient(NamedTuple):
    """What one trainer pushes to one server in one batch.

    Attributes:
        slab: gradient of all dense blocks here.
        rows: gradients of sparse parameters, by name; a parameter without touched rows may be left out.
        num_samples: samples in the trainer's batch.
    """

    slab: Slab
    rows: dict[str, RowGradient]
    num_samples: int


def read_gradient(message: Message) -> Gradient:
    """Read a push: a slab, then for each sparse parameter its row ids and its values, both under its name.

    Raises:
        WireError: the message is made up otherwise. What the arrays hold is for the store to check.
    """
    slab, *rest = message.sections or (Section("", np.zeros(0, np.float32)),)
    if slab.name or len(rest) % 2:
        raise WireError("a push is a slab, then row ids and values of each sparse parameter")
    rows: dict[str, RowGradient] = {}
    for ids, values in zip(rest[::2], rest[1::2], strict=True):
        if ids.name != values.name or ids.name in rows:
            raise WireError(
                f"a push has row ids of {ids.name!r} and values of {values.name!r}, or one of them twice"
            )
        rows[ids.name] = RowGradient(ids.array, values.array)
    return Gradient(slab.array, rows, message.value)
