# SPDX-License-Identifier: Apache-2.0
"""The end of a job: nothing that a node reported or listed may be missing without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.connection.link import heard
from paddle_cluster.job.shutdown import Shutdown, Undone
from paddle_node.contract.frames import WINDOW
from tests.launcher.staged_job import StagedJob


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StagedJob]:
    job = StagedJob(tmp_path, "HOSTS = ['a', 'b']\nCOLLECT_TIMEOUT_S = 1\n", collecting=True)
    for record in job.roster.all():
        record.traces.use()
    yield job
    job.context.collector.close()
    job.console.close()


def end(job: StagedJob) -> Undone:
    return Shutdown(job.context, job.loop, job.nodes, job.context.clock.enter).run()


def test_nodes_that_list_what_is_here_prove_the_end(job: StagedJob) -> None:
    undone = end(job)
    assert undone.is_proven
    assert undone.missing == ()


def test_a_message_that_cannot_be_read_is_missing_in_the_end(job: StagedJob) -> None:
    for _ in range(3):
        job.agents[1].say("usage", procs="nonsense")
    job.settle()
    (line,) = end(job).missing
    assert line == "NOT READ from b: 3 'usage' messages could not be read"


def test_a_file_that_never_came_is_not_proven_and_named(job: StagedJob) -> None:
    job.agents[0].list = b'[["output/w","file",3,"00"]]'
    undone = end(job)
    assert not undone.is_proven
    assert any("node 0: output/w: not received" in line for line in undone.missing)
    assert any(line.startswith("NOT COLLECTED from a: ") for line in undone.missing)


@pytest.mark.parametrize("path", ["../x", "output/w"])
def test_a_node_whose_files_cannot_be_taken_is_lost_and_nothing_is_left_out(
    job: StagedJob, path: str
) -> None:
    """Node 1 has no output/ that is collected."""
    job.events.put(heard(1, "b", "file", {"path": path, "offset": 0, "reset": True}, b"x"))
    assert job.loop.until(lambda: bool(job.roster.failures), 60)
    (failure,) = job.roster.failures
    assert failure.headline().startswith("node b: lost: malformed file data: ")


def test_more_than_the_window_ends_the_node_with_the_reason(job: StagedJob, tmp_path: Path) -> None:
    job.events.put(heard(1, "b", "file", {"path": "log/a", "offset": 0, "reset": True}, bytes(WINDOW)))
    job.settle()
    (failure,) = job.roster.failures
    assert f"the window is {WINDOW} bytes" in failure.headline()
    assert list(tmp_path.rglob("a")) == []
