# SPDX-License-Identifier: Apache-2.0
"""Growing tables in checkpoints: whole ones and changes, written while training goes on, loaded by other servers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.durable.checkpoint.loading import load
from paddle.pserver.durable.checkpoint.manifest import Manifest
from paddle.pserver.durable.checkpoint.series import Origin, Series
from paddle.pserver.durable.checkpoint.sink import DirectSink
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration

WIDTH = 3
SPEC = TableSpec(
    ParameterSpec("emb", (1, WIDTH), sparse=True), Initial.normal(0.0, 0.1, 3), entry=2, max_age=900
)
POOL = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 4000)


class Server:
    """One of several servers that hold the table, with its checkpoints."""

    def __init__(self, index: int, count: int, root: Path) -> None:
        configuration = Configuration(
            (), OptimizerSpec("adagrad", learning_rate=0.1), count, 0, index, (SPEC,)
        )
        self.store = Store(configuration.share(), configuration.optimizer)
        self.served = self.store.growing["emb"]
        self.series = Series(
            root, Origin("job", index, count, configuration.to_text()), self.store, DirectSink, 3
        )

    def step(self, batch: int) -> None:
        """Take the batch's step with the ids that lie here."""
        rng = np.random.default_rng(batch)
        ids = rng.choice(POOL[batch : batch + 300], 60)
        values = rng.standard_normal((60, WIDTH)).astype(np.float32)
        mine = self.served.share.holds(ids)
        self.served.update([RowGradient(ids[mine], values[mine])], 0.1)
        self.store.version += 1

    def checkpoint(self, batches: range) -> Manifest:
        """Write a checkpoint of now, and take steps meanwhile."""
        self.series.begin({})
        left = list(batches)
        while self.series.is_busy:
            self.series.advance()
            if left:
                self.step(left.pop(0))
            outcome = self.series.outcome()
            if outcome is not None:
                assert isinstance(outcome, Manifest), outcome
                for batch in left:
                    self.step(batch)
                return outcome
        raise AssertionError("no checkpoint came")


def content(servers: list[Server]) -> dict[int, tuple[bytes, int]]:
    found = {}
    for server in servers:
        for ids, parts, ticks in server.served.table.snapshot():
            for i, row_id in enumerate(ids.tolist()):
                found[row_id] = (parts[:, i].tobytes(), int(ticks[i]))
    return found


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (2, 3), (3, 1)])
def test_servers_that_load_a_checkpoint_go_on_as_those_that_wrote_it(
    tmp_path: Path, writers: int, readers: int
) -> None:
    old = [Server(index, writers, tmp_path) for index in range(writers)]
    for server in old:
        for batch in range(600):
            server.step(batch)
        server.checkpoint(range(600, 620))
        for batch in range(620, 1800):
            server.step(batch)
    parts, at_checkpoint = [], content(old)
    for server in old:
        parts.append(server.checkpoint(range(1800, 1815)))
    assert any(len(part.files) > 1 for part in parts), "the second checkpoint holds changes alone"
    new = [Server(index, readers, tmp_path / "new") for index in range(readers)]
    for server in new:
        load(server.store, tmp_path, parts)
    assert len(at_checkpoint) > 100
    assert content(new) == at_checkpoint
    for server in new:
        for batch in range(1800, 1815):
            server.step(batch)
    assert content(new) == content(old)
