# SPDX-License-Identifier: Apache-2.0
"""The progress of scripts that do not import `paddle`: what they report, and what is found in their log lines."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from paddle_cluster.config.entry import READY
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.processes import log_progress
from paddle_node.agent.processes.report import ScriptProgress
from paddle_node.contract.facts import Progress
from paddle_node.contract.records import fields_of
from tests.runtime.paddle_node.agent.driven_node import Node

HANGS = r"^(a+)+b(?P<loss>\d)"


def step(at: int, cost: float | None = None, speed: float | None = None, samples: int = 0) -> Progress:
    return Progress(at, None, cost, speed, at, samples)


def test_known_names_become_progress_and_all_others_curves() -> None:
    progress, points = ScriptProgress(print).take(
        {"step": 5.0, "loss": 0.5, "samples": 64.0, "lr": 0.1, "f1": 0.25}, 0.0
    )
    assert progress == step(5, 0.5, None, 64)
    assert points is not None
    assert points.points == (("f1", 5, 0.25), ("lr", 5, 0.1))


def test_reports_without_a_step_are_counted() -> None:
    script = ScriptProgress(print)
    assert [script.take({"loss": 1.0}, 0.0)[0] for _ in range(3)] == [
        step(0, 1.0),
        step(1, 1.0),
        step(2, 1.0),
    ]
    assert script.take({"f1": 1.0}, 0.0) == (None, ((("f1", 2, 1.0),),))
    script.take({"step": 7.0}, 0.0)
    assert script.take({"samples": 1.0}, 0.0)[0] == step(7, 1.0, None, 1)


def test_a_step_that_falls_is_one_of_the_next_epoch() -> None:
    script = ScriptProgress(print)
    taken = [script.take({"step": at}, 0.0)[0] for at in (1.0, 90.0, 100.0, 1.0, 100.0, 2.0)]
    assert [one.step for one in taken if one] == [1, 90, 100, 101, 200, 202]


def test_a_speed_is_that_of_the_last_seconds() -> None:
    script, at, samples = ScriptProgress(print), 0.0, 0.0
    for speed in (100.0, 10.0):
        for _ in range(100):
            at, samples = at + 0.1, samples + 0.1 * speed
            progress, _ = script.take({"samples": samples}, at)
        assert progress is not None
        assert progress.samples_per_s == pytest.approx(speed)
    script.take({"samples_per_s": 7.0}, at)
    progress, _ = script.take({"loss": 1.0}, at)
    assert progress == step(201, 1.0, 7.0)


@pytest.mark.parametrize("numbers", [{"step": -1.0}, {"samples": 2.0**60}])
def test_a_count_out_of_range_is_named_and_the_other_numbers_count(numbers: dict[str, float]) -> None:
    told: list[str] = []
    progress, points = ScriptProgress(told.append).take({**numbers, "loss": 0.5, "f1": 1.0}, 0.0)
    assert progress == step(0, 0.5)
    (name,) = numbers
    assert told == [f"{name} must be a number from 0 to 2**53, got {numbers[name]!r}"]
    assert points is not None
    assert points.points == (("f1", 0, 1.0),)


def test_a_step_beyond_the_limit_after_many_epochs_stays_at_the_limit() -> None:
    script = ScriptProgress(print)
    taken = [script.take({"step": at}, 0.0)[0] for at in (2.0**53, 1.0)]
    assert [one.step for one in taken if one] == [1 << 53, 1 << 53]


def test_numbers_on_the_report_pipe_are_passed_on(node: Node) -> None:
    node.python(
        "import os; fd = int(os.environ['PADDLE_REPORT_FD'])\n"
        'os.write(fd, b\'{"event": "numbers", "values": {"step": 3, "loss": 0.5, "f1": 0.25}}\\n\')'
    )
    assert node.expect("progress").fields == {"proc": "trainer-0", **fields_of(step(3, 0.5))}
    assert node.expect("points").fields["points"] == [["f1", 3, 0.25]]


@pytest.mark.parametrize("values", ["[]", '{"loss": "x"}', '{"step": -1}'])
def test_numbers_that_are_none_are_remarked_on(node: Node, values: str) -> None:
    line = f'{{"event": "numbers", "values": {values}}}'
    node.python(f"import os; os.write(int(os.environ['PADDLE_REPORT_FD']), b'{line}\\n')")
    node.expect("exited", code=0)
    assert any("report pipe" in text for text in node.notices())
    assert node.messages("progress") == []


def test_numbers_are_found_in_log_lines_the_last_ones_too(node: Node) -> None:
    node.python(
        "import time\nprint('epoch 1 loss=2.5 lr=1e-3')\ntime.sleep(0.6)\nprint('epoch 2 loss=nan')\n"
        "print('epoch 2 loss=1.5 lr=1e-4')",
        patterns=[r"loss=(?P<loss>\S+)", r"(?P<name>lr|f1)=(?P<value>\S+)"],
    )
    node.expect("exited", code=0)
    assert [event.fields["cost"] for event in node.messages("progress")] == [2.5, 1.5]
    assert node.messages("points")[-1].fields["points"] == [["lr", 1, 1e-4]]


def test_a_bar_that_draws_over_itself_is_progress(node: Node) -> None:
    node.python(
        "import time\nfor n in range(6): print('\\rfit: %d/6 [00:01<00:09, loss=%.1f]' % (n, 9 - n), end=''); "
        "time.sleep(0.2)\nprint()",
        patterns=list(READY["tqdm"]),
    )
    node.expect("exited", code=0)
    found = [(event.fields["step"], event.fields["cost"]) for event in node.messages("progress")]
    assert found[-1] == (5, 4.0)
    assert len(found) > 2


def test_a_pattern_without_end_is_ended_and_said(node: Node) -> None:
    node.python(
        "import time\nprint('loss=1'); time.sleep(0.6)\nprint('a' * 60); time.sleep(0.6)\nprint('loss=2')",
        patterns=[r"loss=(?P<loss>\d)", HANGS],
    )
    node.link.send("ping", seq=1)
    node.expect("pong")
    node.expect("exited", code=0)
    assert [event.fields["cost"] for event in node.messages("progress")] == [1.0]
    (remark,) = [text for text in node.notices() if "PROGRESS" in text]
    assert "(a+)+b" in remark


def test_a_pattern_that_this_python_does_not_take_is_said_and_the_others_are_searched() -> None:
    told: list[str] = []
    found: list[dict[str, float]] = []
    patterns = [r"(?P<f1>\d++", r"loss=(?P<loss>\d)"]
    progress = log_progress.LogProgress(Loop(), patterns, found.append, told.append)
    progress.heard(b"loss=3\n")
    progress.search()
    assert found == [{"loss": 3.0}]
    assert [f"Python {sys.version_info[0]}" in one for one in told] == [True]


def test_the_work_of_other_threads_is_no_fault_of_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    def burn() -> None:
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            sum(range(100_000))  # the timer counts no time of system calls

    def add(found: dict[str, float], groups: dict[str, str]) -> None:
        other = threading.Thread(target=burn)
        other.start()
        other.join()
        found["loss"] = float(groups["loss"])

    monkeypatch.setattr(log_progress, "_add", add)
    told: list[str] = []
    found: list[dict[str, float]] = []
    progress = log_progress.LogProgress(Loop(), [r"loss=(?P<loss>\d)"], found.append, told.append)
    progress.heard(b"loss=3\n")
    progress.search()
    assert (found, told) == ([{"loss": 3.0}], [])


def test_a_script_that_reports_steps_and_then_none_hangs(node: Node) -> None:
    node.python(
        "import time\nprint('step 1')\ntime.sleep(60)",
        patterns=[r"step (?P<step>\d+)"],
        step_timeout_s=2.0,
    )
    assert "no step for" in str(node.expect("stalled", timeout_s=30).fields)
