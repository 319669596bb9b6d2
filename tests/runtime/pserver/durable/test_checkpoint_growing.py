# SPDX-License-Identifier: Apache-2.0
"""Growing tables in checkpoints: whole ones and changes, the same rows on any number of servers."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.durable.checkpoint.format import Manifest
from paddle.pserver.durable.checkpoint.restore import load
from paddle.pserver.durable.checkpoint.series import Origin, Series
from paddle.pserver.recovery import Safekeeper, Safety
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from tests.runtime.pserver.inproc import InprocServers

DENSE = ParameterSpec("w", (40, 3))
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})
TABLE = ParameterSpec("ids", (1, 4), sparse=True, l2=1e-3)
TABLES = {
    "plain": TableSpec(TABLE),
    "entry and age": TableSpec(TABLE, entry=2, max_age=9),
    "own optimizer": TableSpec(replace(TABLE, optimizer=OptimizerSpec("row_adagrad", learning_rate=0.3))),
    "memory": TableSpec(TABLE, budget=Budget(40 * 53)),
    "disk": TableSpec(TABLE, entry=2, max_age=9, budget=Budget(40 * 53, disk=tempfile.gettempdir())),
    "float16": TableSpec(TABLE, Initial.normal(0.0, 0.1, 3), dtype="float16"),
    "float16, own optimizer": TableSpec(
        replace(TABLE, optimizer=OptimizerSpec("row_adagrad", learning_rate=0.3)), dtype="float16"
    ),
    "float16, disk": TableSpec(
        TABLE, max_age=9, budget=Budget(40 * 45, disk=tempfile.gettempdir()), dtype="float16"
    ),
    "memory and scores": TableSpec(TABLE, entry=2, budget=Budget(40 * 61, "score", 0.9, min_score=0.3)),
}
IDS = np.random.default_rng(1).integers(-(2**62), 2**62, 300)
STEPS, PERIOD = 23, 4
WIDTH = 3
SPEC = TableSpec(
    ParameterSpec("emb", (1, WIDTH), sparse=True), Initial.normal(0.0, 0.1, 3), entry=2, max_age=900
)
POOL = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 4000)


class Job:
    """One trainer and servers with keepers."""

    def __init__(
        self, safety: Safety, table: TableSpec, servers: int, optimizer: OptimizerSpec = ADAGRAD
    ) -> None:
        names = [f"d{i}" for i in range(servers)]
        keepers = [Safekeeper(safety) for _ in names]
        self.engines = [Engine(EngineOptions(1), i, keeper=keeper) for i, keeper in enumerate(keepers, 1)]
        for keeper, engine in zip(keepers, self.engines, strict=True):
            keeper.recover(engine)
        links = InprocServers(dict(zip(names, self.engines, strict=True))).connect(names)
        self.client = TrainerSession(links, 0, trainer_id=0, num_trainers=1)
        values = {"w": np.zeros((40, 3), np.float32)}
        self.client.configure([DENSE], optimizer, values, tables=[table])
        self.client.start_pass()

    def train(self, first: int, last: int) -> None:
        for number in range(first, last):
            rng = np.random.default_rng(number)
            ids = np.unique(rng.choice(IDS, 30))
            rows = RowGradient(ids, rng.standard_normal((len(ids), 4)).astype(np.float32))
            w = rng.standard_normal((40, 3)).astype(np.float32)
            self.client.push_pull({"w": w, "ids": rows}, 4, {"w": np.empty_like(w)})
            if number % PERIOD != 1:  # now and then a step comes while a copy is under way
                deadline = time.monotonic() + 10
                while any(engine.background() < 1e9 for engine in self.engines):
                    assert time.monotonic() < deadline
                    time.sleep(0.001)

    def rows(self) -> np.ndarray:
        return self.client.pull_rows("ids", IDS)


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("case", TABLES)
def test_a_resumed_job_has_the_same_rows(case: str, servers: int, tmp_path: Path) -> None:
    table = TABLES[case]
    if table.budget.memory and not table.budget.disk and servers != 2:
        pytest.skip("a server's memory is its own: more servers keep more rows")
    job = Job(Safety(checkpoints=tmp_path, period=PERIOD), table, 2)
    if table.budget.disk:  # and go on without one
        table = replace(table, budget=Budget())
    job.train(0, STEPS)
    expected = job.rows()
    job.client.close()
    again = Job(Safety(checkpoints=tmp_path, resume="latest"), table, servers)
    version = STEPS // PERIOD * PERIOD
    assert {engine.version for engine in again.engines} == {version}
    again.train(version, STEPS)
    assert np.array_equal(again.rows().view(np.uint32), expected.view(np.uint32))
    again.client.close()


@pytest.mark.parametrize("rule", ["fluid_adagrad", "decayed_adagrad", "sgd"])
def test_states_of_another_rule_are_refused_by_its_name(rule: str, tmp_path: Path) -> None:
    job = Job(Safety(checkpoints=tmp_path, period=PERIOD), TABLES["plain"], 2)
    job.train(0, PERIOD)
    job.client.close()
    again = Safety(checkpoints=tmp_path, resume="latest")
    with pytest.raises(
        PserverError, match=f"parameter w was trained with adagrad, .* differ from those of {rule}"
    ):
        Job(again, TABLES["plain"], 2, OptimizerSpec(rule, learning_rate=0.1))
    own = replace(TABLE, optimizer=OptimizerSpec(rule, learning_rate=0.1))
    with pytest.raises(
        PserverError, match=f"parameter ids was trained with adagrad, .* differ from those of {rule}"
    ):
        Job(again, TableSpec(own), 3)


@pytest.mark.parametrize(("there", "here"), [("float16", "float32"), ("float32", "float16")])
def test_a_checkpoint_of_another_dtype_is_refused(there: str, here: str, tmp_path: Path) -> None:
    job = Job(Safety(checkpoints=tmp_path, period=PERIOD), TableSpec(TABLE, dtype=there), 2)
    job.train(0, PERIOD)
    job.client.close()
    again = Safety(checkpoints=tmp_path, resume="latest")
    match = f"table ids: the checkpoint has rows of dtype {there}.* dtype {here}.*start"
    with pytest.raises(PserverError, match=match):
        Job(again, TableSpec(TABLE, dtype=here), 2)


def test_float16_halves_the_values_in_a_checkpoint(tmp_path: Path) -> None:
    sizes = {}
    for dtype in ("float32", "float16"):
        spec = TableSpec(ParameterSpec("emb", (1, 16), sparse=True), dtype=dtype)
        configuration = Configuration((), OptimizerSpec("sgd"), 1, 0, 0, (spec,))
        store = Store(configuration.share(), configuration.optimizer)
        rows = RowGradient(np.arange(5000), np.ones((5000, 16), np.float32))
        store.growing["emb"].update([rows], 0.1)
        series = Series(tmp_path / dtype, Origin("job", 0, 1, configuration.to_text()), store, keep=1)
        series.begin({})
        while series.is_busy and (outcome := series.outcome()) is None:
            series.advance()
        assert isinstance(outcome, Manifest)
        sizes[dtype] = sum(file.nbytes for file in outcome.files)
    assert abs(sizes["float32"] - sizes["float16"] - 5000 * 16 * 2) < 2000


def test_another_rate_of_the_same_rule_goes_on(tmp_path: Path) -> None:
    job = Job(Safety(checkpoints=tmp_path, period=PERIOD), TABLES["plain"], 1)
    job.train(0, PERIOD)
    job.client.close()
    again = Job(
        Safety(checkpoints=tmp_path, resume="latest"),
        TABLES["plain"],
        1,
        OptimizerSpec("adagrad", learning_rate=0.01),
    )
    assert again.engines[0].version == PERIOD
    again.client.close()


class Server:
    """One of several servers that hold the table, with its checkpoints."""

    def __init__(self, index: int, count: int, root: Path) -> None:
        configuration = Configuration(
            (), OptimizerSpec("adagrad", learning_rate=0.1), count, 0, index, (SPEC,)
        )
        self.store = Store(configuration.share(), configuration.optimizer)
        self.served = self.store.growing["emb"]
        self.series = Series(root, Origin("job", index, count, configuration.to_text()), self.store, keep=3)

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
