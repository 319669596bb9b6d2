# SPDX-License-Identifier: Apache-2.0
"""What doctor prints: readable on a narrow screen, and with fifty nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddle_cluster.nodes import doctor_text
from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.examination import Examined
from paddle_cluster.nodes.preflight import judge
from paddle_cluster.plan.addresses import Choice
from paddle_node.contract.probed import Route
from tests.launcher.planning import answer_to_probe

DEMANDS = Demands(modules=("numpy", "zmq"), port_is_explicit=False, allow_mismatch=False)


def node(number: int, *, kernel: str = "6.1.0", **probed: Any) -> Reply:
    machine = {"kernel": kernel, "cores": 64, "load": number / 10, "memory_bytes": 512 << 30}
    fields = {
        "python_version": "3.11.7",
        "modules": {"numpy": "2.4.6", "zmq": "27.3.0"},
        "root_dir": "/root/jobs",
        "free_bytes": (100 + number) << 30,
        "writable": True,
        "address": f"10.0.0.{number + 1}",
        "networks": [["eth0", f"10.0.0.{number + 1}", 24]],
        "gpus": {"count": 8, "driver": "550.54.15", "names": ["NVIDIA H100"]},
        "facts": {"root_dir": {"path": "/root/jobs", "free_bytes": (100 + number) << 30}, "machine": machine},
        "steps": {"python": 0.1 + number / 100},
    }
    return Reply(
        f"node-{number}",
        answer=answer_to_probe(**{**fields, **probed}),
        node_id=number,
        hostname=f"h{number}",
        login_s=0.2,
        clock_offset_s=0.0001 * number,
        clock_error_s=0.0002,
        routes=(Route((number + 1) % 50, True, "", f"10.0.0.{(number + 1) % 50 + 1}", 0.001),),
    )


def examined(*replies: Reply) -> Examined:
    return Examined(replies, judge(replies, DEMANDS), Choice({}, "every node has an address in 10.0.0.0/24"))


def report(*replies: Reply, width: int = 80) -> list[str]:
    return doctor_text.lines(examined(*replies), 1.5, width)


def fifty() -> list[Reply]:
    replies = [node(number) for number in range(50)]
    replies[7] = Reply("node-7", error="no answer to a connection within 10 s", node_id=7)
    replies[11] = node(11, modules={"numpy": "1.26.4", "zmq": "27.3.0"})
    replies[30] = node(30, kernel="5.10.0")
    return replies


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    for replies in (fifty(), fifty()[:3], fifty()[7:8]):
        assert max(len(line) for line in report(*replies, width=width)) <= width


def test_of_fifty_nodes_those_that_are_unlike_the_others_are_listed() -> None:
    lines = report(*fifty())
    assert len(lines) < 25
    for name in ("node-7", "node-11", "node-30"):
        assert any(line[2:].startswith(name + " ") for line in lines)
    assert not any(line[2:].startswith("node-12 ") for line in lines)
    assert any(line.startswith("47 other nodes are ok") for line in lines)


def test_what_all_nodes_have_in_common_is_said_once() -> None:
    text = "\n".join(report(*fifty()))
    assert text.count("8 NVIDIA H100, driver 550.54.15") == 1
    assert text.count("27.3.0") == 1


def test_limits_of_memory_have_their_unit() -> None:
    machine = {"limits": {"memlock": 8388608, "core": 0, "nofile": 20000}}
    text = " ".join(
        " ".join(report(node(0, facts={"machine": machine}), node(1, facts={"machine": machine}))).split()
    )
    assert "open files 20000" in text
    assert "locked memory 8.0 MB; core files 0 bytes" in text


def test_a_value_that_should_be_alike_comes_before_those_that_differ_anyway() -> None:
    head = next(line for line in report(node(0), node(1, kernel="5.10.0")) if line.startswith("  node"))
    assert head.index("kernel") < head.index("load")


def test_a_difference_for_which_the_screen_is_too_narrow_is_told_below() -> None:
    long_root = "/mnt/" + "very/" * 20 + "deep"
    lines = report(node(0), node(1), node(2, root_dir=long_root))
    assert any(line.startswith("ROOT_DIR: /root/jobs on most; node-2") for line in lines)


def test_the_last_line_says_how_a_job_would_fare() -> None:
    assert report(node(0))[-1] == "ready for a job with --mode=v2 (exit 0)"
    assert report(*fifty())[-1] == "2 problems: a job with --mode=v2 would not start (exit 3)"


def test_what_a_node_says_cannot_act_on_the_terminal() -> None:
    bad = node(0, problems=[["disk", "\x1b]0;owned\x07full"]], root_dir="/\x1b[31mroot")
    assert all("\x1b" not in line for line in report(bad, node(1)))


def test_the_data_has_every_node_way_and_problem() -> None:
    found = json.loads(doctor_text.document(examined(*fifty()), 1.5))
    assert found["ok"] is False
    assert [one["name"] for one in found["nodes"]] == [f"node-{number}" for number in range(50)]
    assert found["nodes"][7] == {
        "node_id": 7,
        "name": "node-7",
        "ok": False,
        "error": "no answer to a connection within 10 s",
        "login_s": 0.0,
        "hostname": "",
    }
    assert {one["node"] for one in found["problems"]} == {"node-7", "node-11"}
    assert {
        "from": "node-3",
        "to": "node-4",
        "address": "10.0.0.5",
        "ok": True,
        "text": "",
        "seconds": 0.001,
    } in found["ways"]
