# SPDX-License-Identifier: Apache-2.0
"""Report lines to the agent: whole, few, and never in the way of training."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from paddle.env import JobEnvironment
from paddle.report import Reporter
from paddle_node.contract.facts import Progress


class Pipe:
    """The agent's end of the pipe."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.pipe()
        os.set_blocking(self.ours, False)

    def events(self) -> list[dict[str, Any]]:
        text = b""
        while True:
            try:
                part = os.read(self.ours, 1 << 16)
            except BlockingIOError:
                break
            if not part:
                break
            text += part
        assert text.endswith(b"\n") or not text
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    for descriptor in (pipe.ours, pipe.theirs):
        try:
            os.close(descriptor)
        except OSError:
            continue


def tell(reporter: Reporter, step: int, cost: float = 1.5) -> None:
    reporter.progress(Progress(step - 1, 0, cost, 900.0, step, 32 * step))


def test_ready_names_the_endpoints(pipe: Pipe) -> None:
    Reporter(pipe.theirs).ready(["10.0.0.1:7164"], [])
    assert pipe.events() == [{"event": "ready", "endpoints": ["10.0.0.1:7164"], "sparse_endpoints": []}]


def test_progress_has_the_fields_of_the_contract(pipe: Pipe) -> None:
    tell(Reporter(pipe.theirs), 8)
    assert pipe.events() == [
        {
            "event": "progress",
            "pass_id": 0,
            "batch_id": 7,
            "step": 8,
            "cost": 1.5,
            "samples": 256,
            "samples_per_s": 900.0,
            "passes": [],
        }
    ]


def test_of_many_steps_few_are_told_and_the_last_one_with_flush(pipe: Pipe) -> None:
    reporter = Reporter(pipe.theirs)
    for step in range(1, 1001):
        tell(reporter, step)
    steps = [event["step"] for event in pipe.events()]
    assert steps[0] == 1
    assert len(steps) < 500
    reporter.flush()
    assert pipe.events()[-1]["step"] == 1000
    reporter.flush()
    assert pipe.events() == []


def test_every_line_has_the_exact_means_of_the_last_passes(pipe: Pipe) -> None:
    reporter = Reporter(pipe.theirs)
    for pass_id in range(20):
        for batch in range(3):
            reporter.progress(Progress(batch, pass_id, 9.0, step=1 + batch), pass_id + batch / 8)
    reporter.flush()
    first, last = pipe.events()
    assert first["passes"] == [[0, 0.0]]
    assert last["passes"] == [[pass_id, pass_id + 0.25] for pass_id in range(4, 20)]


def test_a_mean_that_is_not_finite_is_left_out(pipe: Pipe) -> None:
    Reporter(pipe.theirs).progress(Progress(0, 0, 1.0), math.inf)
    assert pipe.events()[0]["passes"] == []


def test_at_most_four_lines_a_second_are_written(pipe: Pipe) -> None:
    reporter = Reporter(pipe.theirs)
    begin = time.monotonic()
    step = 0
    while time.monotonic() - begin < 0.6:
        step += 1
        tell(reporter, step)
    elapsed = time.monotonic() - begin
    assert len(pipe.events()) <= elapsed / 0.25 + 1


def told_pushes(pipe: Pipe) -> list[list[int]]:
    events = pipe.events()
    assert all(event.keys() == {"event", "trainers"} for event in events)
    assert {event["event"] for event in events} <= {"pushes"}
    return [count for event in events for count in event["trainers"]]


def test_of_counts_of_pushes_only_what_changed_is_told(pipe: Pipe) -> None:
    reporter = Reporter(pipe.theirs)
    reporter.pushes([])
    assert pipe.events() == []
    reporter.pushes([(0, 5, 0), (1, 4, 2)])
    assert pipe.events() == [{"event": "pushes", "trainers": [[0, 5, 0], [1, 4, 2]]}]
    reporter.pushes([(0, 5, 0), (1, 5, 3)])
    assert told_pushes(pipe) == [[1, 5, 3]]
    reporter.pushes([(0, 5, 0), (1, 5, 3)], is_last=True)
    assert pipe.events() == []


def test_counts_of_many_trainers_go_in_lines_that_every_reader_takes(pipe: Pipe) -> None:
    fcntl.fcntl(pipe.theirs, fcntl.F_SETPIPE_SZ, 1 << 20)
    counts = [(trainer, 10**15, 10**14) for trainer in range(65535 - 4000, 65535)]
    Reporter(pipe.theirs).pushes(counts)
    text = os.read(pipe.ours, 1 << 20)
    assert all(len(line) < 1 << 16 for line in text.splitlines())
    rows = [tuple(row) for line in text.splitlines() for row in json.loads(line)["trainers"]]
    assert rows == counts


def test_counts_that_find_a_full_pipe_are_told_later(pipe: Pipe) -> None:
    size = fcntl.fcntl(pipe.theirs, fcntl.F_GETPIPE_SZ)
    reporter = Reporter(pipe.theirs)
    os.write(pipe.theirs, b"x" * (size - 1) + b"\n")
    begin = time.monotonic()
    reporter.pushes([(0, 5, 1)])
    assert time.monotonic() - begin < 20
    assert os.read(pipe.ours, size).endswith(b"x\n")
    assert pipe.events() == []
    reporter.pushes([(0, 5, 1)])
    assert told_pushes(pipe) == [[0, 5, 1]]


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf])
def test_a_cost_that_is_not_finite_is_still_json(pipe: Pipe, cost: float) -> None:
    tell(Reporter(pipe.theirs), 1, cost)
    assert pipe.events()[0]["cost"] is None


def test_without_a_pipe_nothing_happens() -> None:
    reporter = Reporter.from_environment(JobEnvironment())
    tell(reporter, 1)
    reporter.ready(["a:1"], [])
    reporter.flush()


def test_a_closed_pipe_does_not_disturb(pipe: Pipe) -> None:
    reporter = Reporter(pipe.theirs)
    os.close(pipe.ours)
    for _ in range(2):
        tell(reporter, 1)
        reporter.flush()


def test_a_descriptor_that_does_not_exist_does_not_disturb() -> None:
    reporter = Reporter.from_environment(JobEnvironment.read({"PADDLE_REPORT_FD": "987"}))
    tell(reporter, 1)
    reporter.ready([], [])


def test_another_pipe_at_the_number_of_the_agents_is_not_taken(pipe: Pipe) -> None:
    status = os.fstat(pipe.ours)
    given = {
        "PADDLE_REPORT_FD": str(pipe.theirs),
        "PADDLE_REPORT_PIPE": f"{status.st_dev}:{status.st_ino + 1}",
    }
    Reporter.from_environment(JobEnvironment.read(given)).ready(["a:1"], [])
    assert pipe.events() == []


def test_a_full_pipe_does_not_stop_training_and_lines_stay_whole(pipe: Pipe) -> None:
    filler = b"x" * 4095 + b"\n"
    reporter = Reporter(pipe.theirs)
    size = fcntl.fcntl(pipe.theirs, fcntl.F_GETPIPE_SZ)
    for _ in range(size // len(filler)):
        os.write(pipe.theirs, filler)
    begin = time.monotonic()
    tell(reporter, 1)
    assert time.monotonic() - begin < 20
    assert os.read(pipe.ours, size).endswith(b"x\n")
    reporter.flush()
    assert [event["step"] for event in pipe.events()] == [1]


def test_children_do_not_inherit_the_pipe(pipe: Pipe) -> None:
    os.set_inheritable(pipe.theirs, True)
    Reporter(pipe.theirs)
    assert not os.get_inheritable(pipe.theirs)
