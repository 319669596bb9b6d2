# SPDX-License-Identifier: Apache-2.0
"""What preflight makes of the nodes' answers."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.preflight import HEADERS, Demands, Reply, judge

DEMANDS = Demands(modules=("numpy", "zmq"), port_is_explicit=False, allow_mismatch=False, python="python3")
GOOD = {
    "python_version": "3.11.7",
    "modules": {"numpy": "2.4.6", "zmq": "27.3.0"},
    "root_dir": "/root/jobs",
    "free_bytes": 10 << 30,
    "writable": True,
    "address": "10.0.0.1",
    "busy_ports": [],
    "problems": [],
}


def reply(name: str = "node-a", **changes: Any) -> Reply:
    return Reply(name, probed={**GOOD, **changes})


def demands(**changes: Any) -> Demands:
    return Demands(**{**{name: getattr(DEMANDS, name) for name in DEMANDS.__dataclass_fields__}, **changes})


def test_good_nodes_give_a_full_table_and_no_problem() -> None:
    verdict = judge([reply("node-a"), reply("node-b")], DEMANDS)
    assert verdict.problems == ()
    assert verdict.red == frozenset()
    assert [len(row) for row in verdict.rows] == [len(HEADERS)] * 2
    assert verdict.rows[1][-1] == "ok"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"python_version": "3.9.2"}, ["python3 is 3.9.2", "3.11 or newer"]),
        ({"python_version": None, "modules": {}}, ["python3 is missing"]),
        ({"modules": {"numpy": None, "zmq": "27.3.0"}}, ["cannot import numpy", "PYTHON in conf.py"]),
        ({"modules": {"numpy": "2.4.6"}}, ["install pyzmq"]),
        (
            {"problems": [["disk", "/root/jobs has 7 bytes free, 99 are needed"]]},
            ["disk: /root/jobs has 7 bytes"],
        ),
        ({"writable": False}, ["/root/jobs is not writable"]),
        ({"problems": [["nic", "no interface eth9, there are lo, eth0"]]}, ["no interface eth9"]),
    ],
)
def test_a_shortcoming_is_named_with_its_node(change: dict[str, Any], words: list[str]) -> None:
    verdict = judge([reply("node-a"), reply("node-b", **change)], DEMANDS)
    assert verdict.red == {1}
    text = "\n".join(verdict.problems)
    assert text.startswith("node-b: ")
    for word in words:
        assert word in text


def test_a_node_that_could_not_be_reached_does_not_hide_the_others() -> None:
    verdict = judge([Reply("node-a", error="connection refused"), reply("node-b")], DEMANDS)
    assert verdict.problems == ("node-a: connection refused",)
    assert verdict.rows[1][-1] == "ok"


def test_versions_that_differ_from_most_nodes_are_a_problem_unless_allowed() -> None:
    odd = reply("node-c", modules={"numpy": "1.26.4", "zmq": "27.3.0"})
    replies = [reply("node-a"), reply("node-b"), odd]
    assert judge(replies, DEMANDS).red == {2}
    assert "numpy is 1.26.4, most nodes have 2.4.6" in judge(replies, DEMANDS).problems[0]
    assert judge(replies, demands(allow_mismatch=True)).problems == ()


def test_a_busy_port_is_a_remark_unless_the_port_was_asked_for() -> None:
    busy = reply(busy_ports=[[7164, "pid 12 (python3)"]])
    assert judge([busy], DEMANDS).problems == ()
    assert "port 7164 is in use by pid 12 (python3)" in judge([busy], DEMANDS).remarks[0]
    assert judge([busy], demands(port_is_explicit=True)).problems == (
        "node-a: port: 7164 is in use by pid 12 (python3)",
    )


def test_a_missing_route_names_the_peer() -> None:
    verdict = judge([Reply("node-a", probed=GOOD, unreachable=("node-b: timed out",))], DEMANDS)
    assert verdict.problems == ("node-a: route: cannot reach node-b: timed out",)


def test_a_job_without_the_runtime_needs_no_modules() -> None:
    bare = reply(modules={}, python_version="3.8.10")
    assert judge([bare], demands(modules=())).problems == ()


def test_a_clock_that_is_off_is_a_remark() -> None:
    late = Reply("node-a", probed=GOOD, clock_offset_s=-3600.0)
    assert judge([late], DEMANDS).problems == ()
    assert "-3600 s" in judge([late], DEMANDS).remarks[0]


def test_a_machine_that_is_listed_under_two_names_is_refused_with_both() -> None:
    def named(name: str, hostname: str, **changes: Any) -> Reply:
        return Reply(name, probed={**GOOD, **changes}, hostname=hostname)

    verdict = judge([named("node-a", "a"), named("10.0.0.1", "a"), named("node-b", "b")], DEMANDS)
    assert verdict.red == {1}
    (problem,) = verdict.problems
    assert problem.startswith("10.0.0.1: host: the same machine as node-a")
    assert not judge([named("x@node-a", "a"), named("y@node-a", "a", root_dir="/home/y")], DEMANDS).red
