# SPDX-License-Identifier: Apache-2.0
"""Compiles all kernels before anybody waits for them: seconds the first time on a machine, fractions later."""

from __future__ import annotations

import functools
import logging
import time

import numpy as np

from paddle.kernel_cache import made_once
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.mixing import segments_of
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.touching import touch

_log = logging.getLogger(__name__)

_TOLD_FROM_S = 1.0
_SEGMENT = 9


@functools.cache
def warm_up() -> None:
    """Do everything that a table does once, on a small one; at most once in a process."""
    start = time.monotonic()
    with made_once("growing"):
        for rule in ("momentum", "decayed_adagrad"):  # one has a compiled formula, one has none
            _use(rule)
    took_s = time.monotonic() - start
    if took_s > _TOLD_FROM_S:
        _log.info("growing tables: compiled in %.1f s", took_s)


def _use(rule: str) -> None:
    spec = TableSpec(ParameterSpec("warming", (1, 2), sparse=True), Initial("normal"), entry=3, max_age=1)
    table = HashTable(spec, OptimizerSpec(rule))
    some = np.arange(10_000)
    ids = some[segments_of(some) == _SEGMENT][:2]
    values = np.zeros((2, 2), np.float32)
    from_the_wire = values.copy()
    from_the_wire.flags.writeable = False
    for gradient in (values, from_the_wire, values, from_the_wire):
        table.update([RowGradient(ids, gradient)], 0.0)
    table.lookup(ids)
    list(table.snapshot())
    touch(values)
    while len(table):  # until their segment's turn comes
        table.update([], 0.0)
