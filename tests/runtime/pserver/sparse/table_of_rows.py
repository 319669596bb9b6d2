# SPDX-License-Identifier: Apache-2.0
"""Growing tables for tests, and ids that follow no pattern."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.sparse.blocks import Block, Header
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec

INITIALS = {
    "constant": Initial("constant", 0.25),
    "uniform": Initial.uniform(-0.5, 1.5, 7),
    "normal": Initial.normal(0.1, 2.0, 7),
}


def arbitrary_ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count)


def table_of(initial: Initial, width: int) -> HashTable:
    parameter = ParameterSpec("emb", (1, width), sparse=True)
    return HashTable(TableSpec(parameter, initial), OptimizerSpec("adagrad"))


def restore(table: HashTable, header: Header, blocks: Iterable[Block]) -> None:
    for block in blocks:
        table.fill(block)
    table.resume(header)
