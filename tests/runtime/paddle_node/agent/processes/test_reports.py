# SPDX-License-Identifier: Apache-2.0
"""What a process writes to PADDLE_REPORT_FD: whole records are passed on, anything else is told once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node

STEP = {
    "pass_id": 0,
    "batch_id": 7,
    "step": 8,
    "cost": 5.1,
    "samples": 256,
    "samples_per_s": 900.0,
    "passes": [],
}
READY = {"event": "ready", "endpoints": ["10.0.0.1:7164"], "sparse_endpoints": []}
REPORT = """
import os, sys
fd = int(os.environ['PADDLE_REPORT_FD'])
data = open('report', 'rb').read()
for start in range(0, len(data), 4096): os.write(fd, data[start:start + 4096])
"""


def progress(**changed: Any) -> dict[str, Any]:
    return {"event": "progress", **STEP, **changed}


def pushes(*trainers: Any) -> dict[str, Any]:
    return {"event": "pushes", "trainers": list(trainers)}


def report(node: Node, *lines: object) -> None:
    """Have a process write these lines, records or raw text, and end."""
    data = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    Path(node.root / "job" / "report").write_bytes(
        "".join(line + "\n" for line in data).encode("utf-8", "surrogateescape")
    )
    node.python(REPORT)


def remarks(node: Node) -> list[str]:
    return [text for text in node.notices() if "report pipe" in text]


def test_ready_and_progress_are_passed_on(node: Node) -> None:
    report(node, READY, progress(secret="x"))
    assert node.expect("ready").fields["endpoints"] == ["10.0.0.1:7164"]
    assert node.expect("progress").fields == {"proc": "trainer-0", **STEP}


def test_a_cost_that_is_no_number_is_passed_on_as_null(node: Node) -> None:
    report(node, progress(cost=None))
    assert node.expect("progress").fields["cost"] is None
    node.expect("exited", code=0)
    assert not remarks(node)


def test_fields_that_a_script_leaves_out_have_defaults(node: Node) -> None:
    report(node, {"event": "progress", "step": 5, "cost": 0.3})
    assert node.expect("progress").fields == {
        "proc": "trainer-0",
        "pass_id": 0,
        "batch_id": 5,
        "step": 5,
        "cost": 0.3,
        "samples": 0,
        "samples_per_s": None,
        "passes": [],
    }


def test_progress_is_told_at_most_four_times_a_second_and_the_last_one_always(node: Node) -> None:
    node.python(
        "import json, os, time; fd = int(os.environ['PADDLE_REPORT_FD'])\n"
        f"event = {progress()}\n"
        "for step in range(100):\n"
        "    os.write(fd, json.dumps(dict(event, step=step)).encode() + b'\\n')\n"
        "    time.sleep(0.01)\n"
    )
    node.expect("exited", code=0)
    steps = [event.fields["step"] for event in node.messages("progress")]
    assert steps[-1] == 99
    assert len(steps) <= 12  # a second on an idle machine, more on a busy one


def test_who_waits_for_whom_is_passed_on(node: Node) -> None:
    told = {"version": 7, "requests": 40, "waiting": 2, "missing": [1], "waited_s": 12.5, "lags": [[0, 3]]}
    told |= {"rows": 900, "rows_bytes": 1 << 40, "rows_disk_bytes": 1 << 41, "rows_made": 1000}
    told |= {"rows_dropped": 100, "rows_asked": 5000, "rows_found": 4000}
    report(node, {"event": "queue", **told})
    assert node.expect("queue").fields == {"proc": "trainer-0", **told}


def test_counts_of_pushes_that_come_in_parts_are_passed_on_as_one(node: Node) -> None:
    report(node, pushes([2, 10, 3]), pushes([0, 9, 0], [2, 12, 4]), pushes())
    node.expect("pushes", proc="trainer-0", trainers=[[0, 9, 0], [2, 12, 4]])


def test_counts_of_as_many_trainers_as_a_server_takes_are_passed_on(node: Node) -> None:
    everybody = [[trainer, 1 << 53, 1 << 52] for trainer in range(65535)]
    report(node, *(pushes(*everybody[start : start + 1000]) for start in range(0, 65535, 1000)))
    node.expect("pushes", 120.0, proc="trainer-0", trainers=everybody)
    assert not remarks(node)


@pytest.mark.parametrize(
    "junk",
    [
        "no json",
        "[" * 50_000,
        "\udcff",
        "x" * 500_000,
        "[]",
        {"event": "end"},
        {**READY, "endpoints": "x"},
        {**READY, "sparse_endpoints": [1]},
        progress(batch_id=-1),
        progress(batch_id=1.5),
        progress(passes=[[0, 1.5]] * 17),
        {"event": "pushes"},
        {"event": "pushes", "trainers": {"0": [1, 0]}},
        {"event": "queue", "missing": [65535]},
        {"event": "queue", "lags": [[0]]},
        {"event": "queue", "waited_s": "long"},
        pushes(7),
        pushes([0, 1]),
        pushes([0, 1, 0, 0]),
        pushes([0, 1, 2]),
        pushes([-1, 1, 0]),
        pushes([65535, 1, 0]),
        pushes([0, (1 << 53) + 1, 0]),
        pushes([0, 1.0, 0]),
        pushes([True, 1, 0]),
        pushes([0, 1, 0], [1, None, 0]),
    ],
    ids=lambda junk: json.dumps(junk)[:60],
)
def test_junk_on_the_report_pipe_is_told_once_and_ignored(node: Node, junk: object) -> None:
    report(node, junk, junk, junk, progress())
    node.expect("progress", step=8)
    node.expect("exited", code=0)
    assert len(remarks(node)) == 1
    assert [event.kind for event in node.seen if getattr(event, "kind", "") in ("ready", "pushes")] == []
    assert len(node.messages("progress")) == 1


@pytest.mark.parametrize(
    ("line", "left_out"),
    [
        (progress(pass_id="0"), {"pass_id": None}),
        (progress(step=True), {"step": 0}),
        (progress(step=(1 << 53) + 1), {"step": 0}),
        (progress(samples=1 << 70), {"samples": 0}),
        (progress(cost="5.1"), {"cost": None}),
        (json.dumps(progress(cost=float("nan"))), {"cost": None}),
        (json.dumps(progress(samples_per_s=float("inf"))), {"samples_per_s": None}),
        (json.dumps(progress()).replace("5.1", "1" + "0" * 400), {"cost": None}),
    ],
    ids=str,
)
def test_a_number_that_is_not_within_its_limit_is_named_and_the_others_count(
    node: Node, line: object, left_out: dict[str, Any]
) -> None:
    report(node, line, line)
    assert node.expect("progress").fields == {"proc": "trainer-0", **STEP, **left_out}
    node.expect("exited", code=0)
    (remark,) = remarks(node)
    assert f"the process: progress.{next(iter(left_out))} must be" in remark
