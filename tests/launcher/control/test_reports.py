# SPDX-License-Identifier: Apache-2.0
"""What processes report of themselves, from their agents' messages to `status` and the last screen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.resolve import resolve
from paddle_cluster.control import state, store
from paddle_cluster.control.curves import JobCurves
from paddle_cluster.control.status_text import as_json, detail
from paddle_cluster.errors import ProtocolError
from paddle_cluster.job.job import discards, idle, unmatched, unsaved
from paddle_cluster.job.starter import Starter
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.system.state_dir import StatePlaces
from tests.launcher.control.test_control_state import put, record
from tests.launcher.control_jobs import Bench
from tests.launcher.staged_job import JOB, StagedJob

LARGE = 1 << 53
NONSENSE = """
import os
step = '{"event": "progress", "pass_id": 0, "batch_id": 0, "step": 1, "cost": 1.5, "samples": 1, "samples_per_s": 1}'
for line in (
    step.replace('"pass_id": 0', '"pass_id": 1e999'),
    step.replace('"pass_id": 0, ', ''),
    step.replace('1.5', 'null'),
    step.replace('1.5', 'NaN'),
    '{"event": "progress", "step": 5, "cost": 0.3}',
    '{"event": "progress", "pass_id": %s}' % ("9" * 400),
    '{"event": "pushes", "trainers": [[70, 1, 0]]}',
    '{"event": "pushes", "trainers": [[0, 1, 2]]}',
):
    os.write(int(os.environ["PADDLE_REPORT_FD"]), (line + chr(10)).encode())
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StagedJob]:
    """A pserver and a trainer on each of three nodes."""
    job = StagedJob(tmp_path, "HOSTS = ['a', 'b', 'c']\n")
    starter = Starter(job.context, "key")
    job.context.clock.enter("run")
    starter.start(starter.pservers())
    for node_id, agent in enumerate(job.agents):
        agent.say(
            "ready", proc=f"pserver-{node_id}", endpoints=[f"10.0.0.{node_id + 1}:7164"], sparse_endpoints=[]
        )
    job.settle()
    starter.start(starter.trainers(job.context.plan))
    job.settle()
    yield job
    job.console.close()


def tell(job: StagedJob, node_id: int, *trainers: object, proc: str = "") -> None:
    job.agents[node_id].say("pushes", proc=proc or f"pserver-{node_id}", trainers=list(trainers))
    job.settle()


def status(job: StagedJob) -> dict[str, Any]:
    """What status.json says after a way through the file."""
    taken = state.take(JOB, Scrollback(), job.roster, JobCurves())
    return store.read_status(json.loads(json.dumps(taken)))


def told(job: StagedJob) -> dict[str, tuple[object, object]]:
    """Pushed and discarded of all processes that have them."""
    return {
        one["name"]: (one["pushed"], one["discarded"]) for one in status(job)["processes"] if "pushed" in one
    }


def screen(job: StagedJob) -> str:
    """What the job has shown."""
    job.console.close()
    return job.shown.getvalue()


def test_what_pservers_count_is_summed_by_trainer(job: StagedJob) -> None:
    tell(job, 0, [0, 10, 0], [2, 4, 3])
    tell(job, 1, [0, 10, 1], [2, 5, 3])
    assert told(job) == {"trainer-0": (20, 1), "trainer-2": (9, 6)}


def test_the_newest_counts_of_a_pserver_replace_its_older_ones(job: StagedJob) -> None:
    for count in (3, 7):
        tell(job, 0, [0, 10 * count, count])
    assert told(job) == {"trainer-0": (70, 7)}


def test_synchronous_training_shows_no_counts(job: StagedJob) -> None:
    assert told(job) == {}
    assert discards(job.roster) == []


def test_counts_of_trainers_that_the_job_does_not_have_or_from_others_than_pservers_mean_nothing(
    job: StagedJob,
) -> None:
    tell(job, 0, [3, 10, 1], [1, 8, 0])
    tell(job, 0, [0, 10, 1], proc="trainer-0")
    assert told(job) == {"trainer-1": (8, 0)}


@pytest.mark.parametrize(
    "trainers",
    [
        None,
        7,
        [7],
        [[0, 1]],
        [[0, 1, 0, 0]],
        [[0, 1, 2]],
        [[-1, 1, 0]],
        [["0", 1, 0]],
        [[0, 1.0, 0]],
        [[0, True, 0]],
        [[0, LARGE + 1, 0]],
        [[[], 1, 0]],
    ],
    ids=repr,
)
def test_counts_that_are_something_else_are_left_out_and_told_once(job: StagedJob, trainers: object) -> None:
    for _ in range(2):
        job.agents[1].say("pushes", proc="pserver-1", trainers=trainers)
    job.settle()
    assert told(job) == {}
    assert screen(job).count("b: cannot read its 'pushes' message") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pass_id", float("inf")),
        ("batch_id", None),
        ("pass_id", LARGE + 1),
        ("cost", float("nan")),
        ("cost", 10**400),
        ("cost", "1.5"),
        ("samples_per_s", float("inf")),
    ],
)
def test_a_step_that_is_something_else_is_left_out_and_told_once(
    job: StagedJob, name: str, value: object
) -> None:
    step = {"pass_id": 0, "batch_id": 0, "cost": 1.0, "samples_per_s": 1.0}
    for _ in range(2):
        job.agents[1].say("progress", proc="trainer-1", **{**step, name: value})
    job.settle()
    assert screen(job).count(f"b: cannot read its 'progress' message: progress.{name} ") == 1
    assert not job.roster.failures


@pytest.mark.parametrize("endpoints", ["10.0.0.1:7164", [7164], None, ["a\0:1"], ["a:1,b:2"]])
def test_endpoints_that_are_something_else_are_an_error_of_their_node(
    job: StagedJob, endpoints: object
) -> None:
    job.agents[1].say("ready", proc="pserver-1", endpoints=endpoints, sparse_endpoints=[])
    with pytest.raises(ProtocolError, match="b: cannot read its 'ready' message"):
        job.settle()


def test_late_news_of_a_process_that_the_job_goes_on_without_means_nothing(job: StagedJob) -> None:
    del job.roster.processes["trainer-2"]
    step = {"pass_id": 0, "batch_id": 0, "cost": 1.0, "samples_per_s": 1.0}
    job.agents[2].say("ready", proc="trainer-2", endpoints=[], sparse_endpoints=[])
    job.agents[2].say("pushes", proc="trainer-2", trainers=[])
    job.agents[2].say("progress", proc="trainer-2", **step)
    job.settle()
    assert not job.roster.failures


def test_a_step_without_a_cost_is_shown_without_one(job: StagedJob) -> None:
    job.agents[1].say("progress", proc="trainer-1", pass_id=2, batch_id=3, cost=None, samples_per_s=None)
    job.settle()


def test_a_job_whose_process_reports_nonsense_is_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "ws" / "train.py").write_text(NONSENSE)
    try:
        done = bench.run("-p", "ws", "--conf=conf.py", "--mode=collective")
    finally:
        bench.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ignored on the report pipe" in done.stdout


def test_the_last_screen_says_of_whom_how_many_gradients_were_discarded(job: StagedJob) -> None:
    tell(job, 0, [0, 400, 0], [2, 200, 60])
    tell(job, 1, [2, 200, 60])
    assert discards(job.roster) == ["trainer 2: 120 of 400 gradients were discarded as too old"]
    tell(job, 2, [0, 410, 3])
    assert discards(job.roster) == [
        "trainer 2: 120 of 400 gradients were discarded as too old; trainer 0: 3 of 810"
    ]


def test_the_last_screen_names_trainers_that_saw_no_sample(job: StagedJob) -> None:
    step = {"pass_id": 0, "batch_id": 0, "cost": None}
    job.agents[0].say("progress", proc="trainer-0", **step, samples_per_s=0.0)
    job.agents[1].say("progress", proc="trainer-1", **step, samples_per_s=0.0)
    job.agents[2].say("progress", proc="trainer-2", **step, samples_per_s=None)
    job.settle()
    (line,) = idle(job.roster)
    assert line.startswith("WARNING: trainer-0, trainer-1 of 3 trainers ")
    job.agents[0].say("progress", proc="trainer-0", pass_id=1, batch_id=0, cost=1.0, samples_per_s=10.0)
    job.settle()
    (line,) = idle(job.roster)
    assert line.startswith("WARNING: trainer-1 of 3 trainers ")


def test_the_last_screen_reports_patterns_that_matched_no_line(job: StagedJob) -> None:
    assert unmatched(job.roster, ["tqdm"]) == []  # no trainer has written a line
    job.roster.processes["trainer-1"].write(b"epoch 1 done\n")
    assert unmatched(job.roster, []) == []
    (line,) = unmatched(job.roster, ["tqdm"])
    assert "PROGRESS in conf.py matched no line" in line
    job.agents[0].say("points", proc="trainer-0", points=[["lr", 1, 0.1]])
    job.settle()
    assert unmatched(job.roster, ["tqdm"]) == []


@pytest.mark.parametrize(("period", "is_told"), [(100, True), (20, True), (19, False), (0, False)])
def test_a_period_that_no_training_reaches_is_reported(
    job: StagedJob, tmp_path: Path, period: int, is_told: bool
) -> None:
    options = ["-p", "ws", f"--conf={tmp_path}/conf.py", "--checkpoint_dir=/c"]
    settings = resolve(parse([*options, f"--checkpoint_period={period}"]), {})
    for trainer, steps in ((0, 19), (1, 10)):
        job.agents[trainer].say("progress", proc=f"trainer-{trainer}", batch_id=steps, step=steps)
    job.settle()
    lines = unsaved(job.roster, settings)
    assert [
        f"--checkpoint_period={period}, but trainers trained only 19 batches" in one for one in lines
    ] == ([True] * is_told)
    job.agents[0].say("pushes", proc="pserver-0", trainers=[[0, 19, 0]])  # without synchronization
    job.settle()
    assert len(unsaved(job.roster, settings)) == (period > 29)
    job.roster.processes["trainer-1"].restarts = 1
    assert unsaved(job.roster, settings) == []  # the earlier batches are unknown


def test_the_last_screen_names_the_few_who_lost_most(tmp_path: Path) -> None:
    hosts = [f"h{number}" for number in range(7)]
    job = StagedJob(tmp_path, f"HOSTS = {hosts}\n")
    starter = Starter(job.context, "key")
    starter.start(starter.pservers())
    job.settle()
    tell(job, 0, *([trainer, 100, 10 + trainer] for trainer in range(7)))
    (line,) = discards(job.roster)
    job.console.close()
    assert line.startswith("trainer 6: 16 of 100 gradients were discarded as too old; trainer 5: 15 of 100; ")
    assert line.endswith("; trainer 3: 13 of 100; 3 more trainers: 33 of 300")


def test_status_shows_what_was_discarded_and_json_has_both_numbers(job: StagedJob, tmp_path: Path) -> None:
    tell(job, 0, [0, 1200, 0], [2, 400, 120])
    where = StatePlaces(tmp_path / "jobs", tmp_path / "short")
    directory = put(where, record(JOB), **state.take(JOB, Scrollback(), job.roster, JobCurves()))
    found = store.read(directory)
    assert found is not None
    head, *lines = [
        line for line in detail(found, 0.0) if line.startswith(("  process", "  pserver", "  trainer"))
    ]
    assert head.endswith("discarded")
    assert {line.split()[0]: line[head.index("discarded") :].strip() for line in lines} == {
        **{f"pserver-{number}": "" for number in range(3)},
        "trainer-0": "0 of 1200",
        "trainer-1": "",
        "trainer-2": "120 of 400",
    }
    shown = {one["name"]: one for one in as_json(found)["status"]["processes"]}
    assert (shown["trainer-2"]["pushed"], shown["trainer-2"]["discarded"]) == (400, 120)


def test_status_of_synchronous_training_has_no_such_column(job: StagedJob, tmp_path: Path) -> None:
    where = StatePlaces(tmp_path / "jobs", tmp_path / "short")
    directory = put(where, record(JOB), **state.take(JOB, Scrollback(), job.roster, JobCurves()))
    found = store.read(directory)
    assert found is not None
    assert "discarded" not in "\n".join(detail(found, 0.0))
