# SPDX-License-Identifier: Apache-2.0
"""Trainers shrink a growing table together: at one moment, exactly once, on all servers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import Client, GrowingTable
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.reader import Reader
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from tests.runtime.pserver.in_process_job import InProcessJob
from tests.runtime.pserver.neutral_job import run, server

WIDTH = 2
SGD = OptimizerSpec("sgd", learning_rate=1.0)
SCORED = TableSpec(
    ParameterSpec("t", (1, WIDTH), sparse=True), Initial("constant"), budget=Budget(evict="lfu")
)
IDS = np.arange(-50, 50)


def push(client: TrainerSession, ids: np.ndarray) -> None:
    client.push_pull({"t": RowGradient(ids, np.ones((len(ids), WIDTH), np.float32))}, 1, {})


@pytest.mark.parametrize("is_async", [False, True])
def test_rows_below_the_score_leave_all_servers_when_every_trainer_asked(is_async: bool) -> None:
    def work(client: TrainerSession, trainer: int) -> np.ndarray:
        client.configure([], replace(SGD, is_async=is_async), {}, tables=[SCORED])
        client.start_pass()
        push(client, IDS)
        push(client, IDS[::2])
        client.shrink("t", 2.5 if is_async else 1.5)
        rows = client.pull_rows("t", IDS)
        client.finish_pass()
        return rows

    for rows in InProcessJob(2, num_dense=3).run(work):
        assert np.array_equal(rows[:, 0] != 0, np.isin(IDS, IDS[::2]))


def test_other_scores_unknown_tables_and_those_without_scores_are_refused() -> None:
    plain = replace(SCORED, parameter=replace(SCORED.parameter, name="plain"), budget=Budget())
    job = InProcessJob(1, num_dense=1)
    with job.client(0) as client:
        client.configure([], SGD, {}, tables=[SCORED, plain])
        with pytest.raises(PserverError, match="shrink a table outside a pass"):
            client.shrink("t", 1.0)
    job = InProcessJob(1, num_dense=1)
    with job.client(0) as client:
        client.configure([], SGD, {}, tables=[SCORED, plain])
        client.start_pass()
        with pytest.raises(
            PserverError, match=r"table plain: shrink needs scores; create the table with evict="
        ):
            client.shrink("plain", 1.0)


def test_trainers_with_different_scores_are_all_refused_by_name_and_nothing_is_dropped() -> None:
    def work(client: TrainerSession, trainer: int) -> tuple[str, np.ndarray]:
        client.configure([], SGD, {}, tables=[SCORED])
        client.start_pass()
        push(client, IDS)
        with pytest.raises(PserverError) as refused:
            client.shrink("t", 2.0 + (trainer == 2))
        with Reader(job.servers.connect(job.endpoints)) as reader:
            return str(refused.value), np.asarray(reader.pull_rows("t", IDS))

    job = InProcessJob(3, num_dense=1)
    each = "trainer 0: {'t': 2.0}; trainer 1: {'t': 2.0}; trainer 2: {'t': 3.0}. Give the same"
    for error, rows in job.run(work):
        assert each in error
        assert rows.all()


def test_a_client_shrinks_a_table_of_a_real_server() -> None:
    with server(1) as process:

        def work(client: Client, trainer: int) -> None:
            client.create({"t": GrowingTable(WIDTH, evict="lfu"), "u": GrowingTable(WIDTH)}, SGD)
            for ids in (IDS, IDS[::2]):
                client.push_pull({"t": (ids, np.ones((len(ids), WIDTH), np.float32))}, {})
            with pytest.raises(ConfigError, match=r"'v'; known: t, u"):
                client.shrink("v", min_score=1)
            with pytest.raises(ConfigError, match="expected a number from 0 to 1e"):
                client.shrink("t", min_score=-1)
            client.shrink("t", min_score=2)
            rows = client.pull_rows("t", IDS)
            assert np.array_equal(rows[:, 0] != 0, np.isin(IDS, IDS[::2]))

        run(process, 1, work)
        process.end()
