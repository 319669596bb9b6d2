# SPDX-License-Identifier: Apache-2.0
"""A server without memory for a growing table refuses batches by table and bytes; it applies none in part unnoticed."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import DiskError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import Adagrad, Client, GrowingTable, Reader
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.slabs import RowMemoryError
from paddle.pserver.sparse.spec import TableSpec
from tests.runtime.pserver.in_process_job import InProcessJob
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

WIDTH, NEW, MARGIN = 16, 1000, 24 << 20
IDS = np.arange(NEW)


def batch(number: int, width: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(number)
    return {"t": (IDS + NEW * number, rng.standard_normal((NEW, width)).astype(np.float32))}


def trained(client: Client, width: int, batches: int) -> int:
    for number in range(batches):
        try:
            client.push(batch(number, width))
        except PserverError as error:
            assert "table t: no memory for 1000 more rows; its " in str(error)  # noqa: PT017
            assert " bytes: [Errno 12] Cannot allocate memory" in str(error)  # noqa: PT017
            return number
    return batches


@pytest.mark.parametrize("width", [1, 64])  # the index takes more than such rows; much less
def test_a_limit_of_the_address_space_refuses_a_batch_whole(width: int) -> None:
    rows, done = [], 10**6
    for is_limited in (True, False):
        with PserverProcess("--port=0", "--num_gradient_servers=1") as server:
            pid = server.process.pid
            with Client(server.endpoints, server.sparse_endpoints, job_key=KEY) as client:
                client.create({"t": GrowingTable(width, std=0.1)}, Adagrad(lr=0.1))
                if is_limited:
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
                    most = pages * resource.getpagesize() + MARGIN
                    resource.prlimit(pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
                done = trained(client, width, done)
                assert server.process.poll() is None
                if is_limited:
                    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
                with Reader.connect(server.endpoints, server.sparse_endpoints, job_key=KEY) as reader:
                    assert reader.version() == done
                    rows.append(reader.pull_rows("t", np.arange(NEW * (done + 1))))
    limited, unlimited = rows
    assert np.array_equal(limited, unlimited)


@pytest.mark.parametrize(
    ("error", "cause"),
    [(MemoryError, "memory ran out"), (RowMemoryError, "memory ran out"), (DiskError, "a disk failed")],
)
def test_a_step_that_memory_or_a_disk_cuts_is_told_to_all_and_nothing_is_answered_from_it(
    error: type[Exception], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableSpec(ParameterSpec("t", (1, WIDTH), sparse=True))
    apply = HashTable.apply

    def cut(self: HashTable, gradients: list[RowGradient], rate: float) -> None:
        apply(self, gradients, rate)
        if self.clock == 3:
            raise error("not enough memory to add 5 ids")

    monkeypatch.setattr(HashTable, "apply", cut)

    def work(client: TrainerSession, trainer: int) -> None:
        client.configure([], OptimizerSpec("sgd", learning_rate=1.0), {}, tables=[table])
        client.start_pass()
        gradient = RowGradient(IDS, np.ones((NEW, WIDTH), np.float32))
        for _ in range(2):
            client.push_pull({"t": gradient}, 1, {})
        for ask in (
            lambda: client.push_pull({"t": gradient}, 1, {}),
            lambda: client.pull_rows("t", IDS),
            lambda: client.push_pull({"t": gradient}, 1, {}),
        ):
            with pytest.raises(
                PserverError, match=r"after batch 2, .* to add 5 ids; table t: \d+ bytes.* from a checkpoint"
            ):
                ask()

    job = InProcessJob(2, num_dense=1)
    job.run(work)
    with Reader(job.servers.connect(job.endpoints)) as reader:
        assert reader.version() == 2
        with pytest.raises(PserverError, match=f"{cause} after batch 2"):
            reader.pull_rows("t", IDS)
    assert not any(engine.is_quiet for engine in job.servers.engines.values())  # so none begins a checkpoint
