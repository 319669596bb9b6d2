# SPDX-License-Identifier: Apache-2.0
"""Copies that follow a table: what they hold, how old they say they are, when they refuse to answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverLost
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import Reader
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.followed import Followed, StaleCopy
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from tests.runtime.pserver.in_process_job import Clock, InProcessJob

SGD = OptimizerSpec("sgd", learning_rate=1.0)
TABLE = TableSpec(ParameterSpec("t", (1, 4), sparse=True), Initial("uniform", spread=0.5, seed=9))
IDS = np.arange(-40, 900, 3)
WAIT_S = 30.0


def begun(job: InProcessJob) -> TrainerSession:
    client = job.client(0)
    client.configure([], SGD, {}, tables=[TABLE])
    client.start_pass()
    return client


def push(client: TrainerSession, ids: np.ndarray, by: float) -> None:
    client.push_pull({"t": RowGradient(ids, np.full((len(ids), 4), by, np.float32))}, 1, {})


def follow(jobs: list[InProcessJob], **more: Any) -> Followed:
    def connect() -> Reader:
        if not jobs:
            raise PserverLost("no server is there", "d0")
        return Reader(jobs[-1].servers.connect(jobs[-1].endpoints), timeout_s=5.0)

    return Followed(connect, "t", **{"within_s": WAIT_S, "every_s": 0.02, **more})


def test_a_copy_has_what_servers_have_and_initial_values_of_all_other_ids() -> None:
    job = InProcessJob(1, num_dense=3)
    with begun(job) as client:
        push(client, IDS, 1.0)
        with follow([job]) as copy:
            for batch, ids in ((1, IDS), (2, IDS[:5]), (3, np.array([2**50]))):
                if batch > 1:
                    push(client, ids, 0.5)
                copy.wait(WAIT_S, batch)
                asked = np.array([[-41, 2**50], [IDS[0], IDS[-1]]])
                found = copy.lookup(asked)
                assert found.rows.shape == (2, 2, 4)
                assert found.batch == batch
                assert np.array_equal(found.rows.reshape(4, 4), client.pull_rows("t", asked.reshape(-1)))
                assert 0 <= found.age_s <= WAIT_S
            assert copy.size[0] == len(IDS) + 1


def test_an_old_copy_refuses_and_says_what_is_the_matter() -> None:
    job, clock = InProcessJob(1, num_dense=1), Clock()
    with begun(job) as client:
        push(client, IDS, 1.0)
        jobs = [job]
        with follow(jobs, within_s=0.4, clock=clock) as copy:
            copy.wait(WAIT_S)
            assert copy.lookup(IDS).batch == 1
            jobs.clear()
            job.servers.kill("d0")
            while not copy.fault:
                pass
            clock.now += 0.3
            assert copy.lookup(IDS).age_s == pytest.approx(0.3)
            clock.now += 0.2
            with pytest.raises(StaleCopy, match=r"copy of table t: it .*, but at most 0.4 s are"):
                copy.lookup(IDS)
            with pytest.raises(StaleCopy, match=r"not filled within 0.01 s: "):
                copy.wait(0.01, 99)


def test_a_copy_survives_errors_of_the_system() -> None:
    job, faults = InProcessJob(1, num_dense=1), [OSError(24, "Too many open files"), MemoryError()]
    with begun(job) as client:
        push(client, IDS, 1.0)

        def connect() -> Reader:
            if faults:
                raise faults.pop(0)
            return Reader(job.servers.connect(job.endpoints), timeout_s=5.0)

        with Followed(connect, "t", within_s=WAIT_S, every_s=0.02) as copy:
            copy.wait(WAIT_S)
            assert copy.lookup(IDS).batch == 1
            assert not faults
            assert not copy.fault


def test_a_copy_takes_another_job_anew_and_forgets_the_rows_of_the_first() -> None:
    first, second = InProcessJob(1, num_dense=1), InProcessJob(1, num_dense=2)
    with begun(first) as one, begun(second) as two:
        push(one, IDS, 1.0)
        push(two, IDS[3:], 2.0)
        push(two, IDS[3:], 2.0)
        jobs = [first]
        with follow(jobs) as copy:
            copy.wait(WAIT_S)
            jobs.append(second)
            first.servers.kill("d0")
            copy.wait(WAIT_S, 2)
            assert copy.size[0] == len(IDS) - 3
            assert np.array_equal(copy.lookup(IDS).rows, two.pull_rows("t", IDS))


def test_memory_is_bounded_and_wrong_arguments_are_refused() -> None:
    job = InProcessJob(1, num_dense=1)
    with begun(job) as client:
        push(client, IDS, 1.0)
        with (
            follow([job], max_bytes=1000) as copy,
            pytest.raises(StaleCopy, match=r"copy takes \d+ bytes, but only 1000|not been filled yet"),
        ):
            copy.wait(1.0)
        with pytest.raises(ConfigError, match=r"positive within_s"):
            follow([job], within_s=0.0)
        with (
            Reader(job.servers.connect(job.endpoints)) as reader,
            pytest.raises(ConfigError, match=r"use Reader.connect"),
        ):
            reader.follow("t")


@pytest.mark.parametrize("servers", [1, 2])
def test_rows_that_left_the_table_leave_its_copy(servers: int) -> None:
    budget = Budget(memory=40 * (16 + 17))
    small = replace(TABLE, budget=budget)
    job = InProcessJob(1, num_dense=servers)
    client = job.client(0)
    client.configure([], SGD, {}, tables=[small])
    client.start_pass()
    with client:
        push(client, IDS[:30], 1.0)
        with follow([job]) as copy:
            copy.wait(WAIT_S, 1)
            for batch in range(2, 8):
                push(client, IDS[30 * batch : 30 * batch + 30], 1.0)
                copy.wait(WAIT_S, batch)
                assert np.array_equal(copy.lookup(IDS).rows, client.pull_rows("t", IDS))
            push(client, IDS[:30], 1.0)
            copy.wait(WAIT_S, 8)
            assert np.array_equal(copy.lookup(IDS).rows, client.pull_rows("t", IDS))
            assert copy.size[0] <= servers * 40
