# SPDX-License-Identifier: Apache-2.0
"""What preflight makes of the nodes' answers."""

from __future__ import annotations

from typing import Any

import pytest

from paddle_cluster.nodes.checks.reply import Demands, Need, Reply
from paddle_cluster.nodes.preflight import HEADERS, judge
from paddle_cluster.text.output_events import Tabled
from paddle_cluster.text.wrapping import event_lines
from paddle_node.contract.probed import Route
from tests.launcher.planning import answer_to_probe

DEMANDS = Demands(modules=("numpy", "zmq"), port_is_explicit=False, allow_mismatch=False)
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
    return Reply(name, answer=answer_to_probe(**{**GOOD, **changes}))


def machine(**changes: Any) -> dict[str, Any]:
    return {"facts": {"machine": {"cores": 8, "limits": {"nofile": 1024, "nproc": 4096}, **changes}}}


def demands(**changes: Any) -> Demands:
    return Demands(**{**{name: getattr(DEMANDS, name) for name in DEMANDS.__dataclass_fields__}, **changes})


def test_good_nodes_give_a_full_table_and_no_problem() -> None:
    result = judge([reply("node-a"), reply("node-b")], DEMANDS)
    assert result.problems == ()
    assert result.red == frozenset()
    assert [len(row) for row in result.rows] == [len(HEADERS)] * 2
    assert result.rows[1][1] == "ok"


def shown(*replies: Reply, width: int) -> list[str]:
    result = judge(replies, DEMANDS)
    return [line for line, _ in event_lines(Tabled(HEADERS, result.rows, tuple(result.red)), width)]


def test_the_table_fits_the_screen_and_says_once_what_all_nodes_have() -> None:
    nodes = [reply(f"root@10.1.18.{n}:2222", address=f"10.1.18.{n}", free_bytes=n << 30) for n in range(3)]
    lines = shown(*nodes, width=80)
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["root@10.1.18.1:2222", "ok", "10.1.18.1", "1.0", "GB"]
    below = " ".join(line.strip() for line in lines[4:])
    assert below.startswith(
        "same on all: login 0.0 ms; clock +0.0±0.0 ms; python 3.11.7; modules numpy 2.4.6, zmq"
    )
    assert "\n".join(lines).count("2.4.6") == 1


def test_what_the_screen_is_too_narrow_for_is_told_below_the_table() -> None:
    lines = shown(reply("a" * 34, address="10.0.0.1"), reply("b" * 34, address="10.0.0.2"), width=50)
    assert lines[-3:] == [f"address: {'a' * 34}", f"    10.0.0.1; {'b' * 34}", "    10.0.0.2"]
    assert max(map(len, lines)) <= 50


def test_what_is_wrong_is_no_part_of_the_table_and_told_once() -> None:
    unheard = Reply("node-c", error="refused")
    refused = Reply("node-d", error="refused", outcome="login refused")
    result = judge([reply("node-a"), reply("node-b", writable=False), unheard, refused], DEMANDS)
    assert [row[1] for row in result.rows] == ["ok", "FAIL", "no answer", "login refused"]
    assert all("writable" not in cell and cell != "refused" for row in result.rows for cell in row)
    assert len(result.problems) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"python_version": "3.9.2"}, ["python3 is 3.9.2", "3.11 or newer"]),
        ({"python_version": None, "modules": {}}, ["python3 is missing"]),
        ({"modules": {"numpy": None, "zmq": "27.3.0"}}, ["cannot import numpy", "PYTHON in conf.py"]),
        ({"modules": {"numpy": "2.4.6"}}, ["Install pyzmq"]),
        (
            {"modules": {"numpy": "1.25.9", "zmq": "27.3.0"}},
            ["numpy is 1.25.9, but the job needs 1.26 or newer"],
        ),
        ({"modules": {"numpy": "2.4.6", "zmq": "9.0"}}, ["pyzmq is 9.0, but the job needs 26 or newer"]),
        (
            {"modules": {"numpy": "2.4.6", "zmq": "27.0.0", "libzmq": "4.2.5"}},
            ["libzmq is 4.2.5", "4.3 or newer"],
        ),
        (
            {"problems": [["disk", "/root/jobs has 7 bytes free, 99 bytes needed"]]},
            ["disk: /root/jobs has 7 bytes"],
        ),
        ({"writable": False}, ["/root/jobs is not writable"]),
        ({"problems": [["nic", "no interface eth9, there are lo, eth0"]]}, ["no interface eth9"]),
        ({"facts": {"root_dir": {"path": "/root/jobs", "free_inodes": 0}}}, ["room for 0 more files"]),
    ],
)
def test_a_shortcoming_is_named_with_its_node(change: dict[str, Any], words: list[str]) -> None:
    result = judge([reply("node-a"), reply("node-b", **change)], DEMANDS)
    assert result.red == {1}
    text = "\n".join(result.problems)
    assert text.startswith("node-b: ")
    for word in words:
        assert word in text


def test_a_node_that_could_not_be_reached_does_not_hide_the_others() -> None:
    result = judge([Reply("node-a", error="connection refused"), reply("node-b")], DEMANDS)
    assert result.problems == ("node-a: connection refused",)
    assert result.rows[1][1] == "ok"


def test_versions_that_differ_from_most_nodes_are_a_problem_unless_allowed() -> None:
    odd = reply("node-c", modules={"numpy": "1.26.4", "zmq": "27.3.0"})
    replies = [reply("node-a"), reply("node-b"), odd]
    assert judge(replies, DEMANDS).red == {2}
    assert "numpy is 1.26.4, but most nodes have 2.4.6" in judge(replies, DEMANDS).problems[0]
    assert judge(replies, demands(allow_mismatch=True)).problems == ()


def test_a_busy_port_is_a_remark_unless_the_port_was_asked_for() -> None:
    busy = reply(busy_ports=[[7164, "pid 12 (python3)"]])
    assert judge([busy], DEMANDS).problems == ()
    assert "port: 7164 is in use by pid 12 (python3);" in judge([busy], DEMANDS).remarks[0]
    assert judge([busy], demands(port_is_explicit=True)).problems == (
        "node-a: port: 7164 is in use by pid 12 (python3); end it, or give another --port",
    )


def test_many_busy_ports_on_many_nodes_are_one_line() -> None:
    replies = [
        reply(f"node-{n}", busy_ports=[[port, f"pid {n}: nginx"] for port in (7164, 7165, 7166)])
        for n in range(50)
    ]
    (line,) = judge(replies, demands(port_is_explicit=True)).problems
    assert line == "all 50 nodes: port: 7164-7166 are in use by nginx; end it, or give another --port"


def test_a_missing_route_names_the_peer_and_the_direction() -> None:
    replies = [
        Reply(
            "node-a",
            answer=answer_to_probe(**GOOD),
            node_id=0,
            routes=(Route(1, False, "timed out", "10.0.0.2", 2.0),),
        ),
        Reply(
            "node-b",
            answer=answer_to_probe(**{**GOOD, "address": "10.0.0.2"}),
            node_id=1,
            routes=(Route(0, True, "", "10.0.0.1", 0.001),),
        ),
    ]
    (problem,) = judge(replies, DEMANDS).problems
    assert problem.startswith(
        "node-a: route: cannot reach node-b at 10.0.0.2: timed out (the other direction works)"
    )


def test_a_node_that_nobody_reaches_is_one_line_and_not_one_a_peer() -> None:
    def node(node_id: int) -> Reply:
        routes = tuple(
            Route(
                peer, 2 not in (peer,), "no answer within 2 s" if peer == 2 else "", f"10.0.0.{peer + 1}", 0.1
            )
            for peer in range(4)
            if peer != node_id
        )
        return Reply(
            f"node-{node_id}",
            answer=answer_to_probe(**{**GOOD, "address": f"10.0.0.{node_id + 1}"}),
            node_id=node_id,
            routes=routes,
        )

    (problem,) = judge([node(n) for n in range(4)], DEMANDS).problems
    assert problem.startswith(
        "node-2: route: none of the 3 other nodes can reach it at 10.0.0.3: no answer within 2 s"
    )


def test_a_broken_switch_is_a_line_for_each_way_in_which_it_breaks_and_not_one_a_way() -> None:
    def node(node_id: int) -> Reply:
        """Nodes of one half reach their own half alone."""
        peers = [peer for peer in range(40) if peer != node_id]
        routes = [(peer, node_id == 7 or (peer < 20) == (node_id < 20)) for peer in peers]
        return Reply(
            f"node-{node_id}",
            answer=answer_to_probe(**{**GOOD, "address": f"10.0.0.{node_id + 1}"}),
            node_id=node_id,
            routes=tuple(
                Route(peer, ok, "" if ok else "no answer within 2 s", f"10.0.0.{peer + 1}", 0.1)
                for peer, ok in routes
            ),
        )

    result = judge([node(n) for n in range(40)], DEMANDS)
    (problem,) = result.problems
    assert problem.startswith(
        "node-0, node-1, node-2, node-3 and 35 more: route: cannot reach some other nodes (780 broken routes in all): "
        "no answer within 2 s; check the firewalls"
    )
    assert len(result.found) == 780  # each is there for who asks


def test_nodes_that_reach_nobody_are_one_line() -> None:
    def node(node_id: int) -> Reply:
        routes = tuple(
            Route(peer, False, "no answer within 2 s", f"10.0.0.{peer + 1}", 0.1)
            for peer in range(9)
            if peer != node_id
        )
        answer = answer_to_probe(**{**GOOD, "address": f"10.0.0.{node_id + 1}"})
        return Reply(f"node-{node_id}", answer=answer, node_id=node_id, routes=routes)

    deaf, mute = judge([node(n) for n in range(9)], DEMANDS).problems
    assert deaf.startswith("all 9 nodes: route: no other node can reach it: no answer within 2 s; check")
    assert mute.startswith("all 9 nodes: route: cannot reach any other node: no answer within 2 s; check")


def test_a_try_at_an_address_that_the_job_does_not_take_counts_for_nothing() -> None:
    routes = (Route(1, False, "timed out", "192.168.0.2", 2.0),)
    replies = [
        Reply("node-a", answer=answer_to_probe(**GOOD), routes=routes),
        Reply("node-b", answer=answer_to_probe(**{**GOOD, "address": "10.0.0.2"}), node_id=1),
    ]
    assert judge(replies, DEMANDS).problems == ()


def test_a_job_without_the_runtime_needs_no_modules() -> None:
    bare = reply(modules={}, python_version="3.8.10")
    assert judge([bare], demands(modules=())).problems == ()


def test_a_clock_that_is_off_is_a_remark() -> None:
    late = Reply("node-a", answer=answer_to_probe(**GOOD), clock_offset_s=-3600.0, clock_error_s=0.001)
    assert judge([late], DEMANDS).problems == ()
    assert "-3600 s" in judge([late], DEMANDS).remarks[0]


def test_a_clock_that_may_be_right_is_no_remark() -> None:
    far = Reply("node-a", answer=answer_to_probe(**GOOD), clock_offset_s=7.0, clock_error_s=4.0)
    assert judge([far], DEMANDS).remarks == ()


def test_a_machine_that_is_listed_under_two_names_is_refused_with_both() -> None:
    def named(name: str, hostname: str, **changes: Any) -> Reply:
        return Reply(name, answer=answer_to_probe(**{**GOOD, **changes}), hostname=hostname)

    result = judge([named("node-a", "a"), named("10.0.0.1", "a"), named("node-b", "b")], DEMANDS)
    assert result.red == {1}
    (problem,) = result.problems
    assert problem.startswith("10.0.0.1: host: the same machine as node-a")
    assert not judge([named("x@node-a", "a"), named("y@node-a", "a", root_dir="/home/y")], DEMANDS).red


def sharing(*groups: tuple[int, ...]) -> list[Reply]:
    return [
        Reply(f"node-{n}", answer=answer_to_probe(**GOOD), node_id=n, hostname=f"h{n}", neighbours=group)
        for n, group in enumerate(groups)
    ]


def test_a_root_dir_that_nodes_share_is_a_remark_since_each_gets_a_directory_in_it() -> None:
    result = judge(sharing((1,), (), ()), DEMANDS)
    assert result.problems == ()
    assert result.remarks == (
        "root_dir: node-0, node-1 share /root/jobs; each gets a job directory of its own in /root/jobs/node_<id>/",
    )


def test_a_deployed_directory_that_nodes_share_is_refused() -> None:
    (problem,) = judge(sharing((1, 2), (2,), ()), demands(deployed=True)).problems
    assert problem.startswith("workspace: node-0, node-1, node-2 use the same directory")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            machine(limits={"nofile": 256}),
            "256 open files are allowed, but a process of this job needs about 500",
        ),
        (machine(limits={"nproc": 40}, threads_of_user=20), "is allowed 40 threads and has 20"),
        (
            machine(cgroup={"pids": 50, "pids_used": 30}),
            "the control group allows 50 threads and already has 30",
        ),
    ],
)
def test_limits_that_the_plan_would_break_are_problems(facts: dict[str, Any], words: str) -> None:
    tight = Reply(
        "node-a", answer=answer_to_probe(**{**GOOD, **facts}), need=Need(processes=2, files=500, threads=32)
    )
    (problem,) = judge([tight], DEMANDS).problems
    assert words in problem


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (machine(memory_free_bytes=100 << 20), "only 100.0 MB are free, but 2 processes may take 512.0 MB"),
        (machine(cgroup={"cores": 1.5}), "allows 1.5 of 8 cores"),
        ({"facts": {"root_dir": {"path": "/jobs", "noexec": True}}}, "/jobs is mounted noexec"),
        (
            {"facts": {"disks": [{"path": "/root", "free_bytes": 1000}]}},
            "home: /root has room for only 1000 bytes",
        ),
        ({"remarks": [["gpus", "nvidia-smi gave no answer within 5 s"]]}, "no answer within 5 s"),
    ],
)
def test_what_only_may_hurt_is_a_remark(facts: dict[str, Any], words: str) -> None:
    tight = Reply(
        "node-a", answer=answer_to_probe(**{**GOOD, **facts}), need=Need(processes=2, memory_bytes=512 << 20)
    )
    result = judge([tight], DEMANDS)
    assert result.problems == ()
    assert words in result.remarks[0]


def test_root_is_not_bound_by_the_limit_of_threads() -> None:
    free = machine(limits={"nproc": 40}, threads_of_user=39, may_pass_nproc=True)
    assert (
        judge(
            [Reply("a", answer=answer_to_probe(**{**GOOD, **free}), need=Need(threads=32))], DEMANDS
        ).problems
        == ()
    )


def test_a_value_that_no_environment_can_hold_is_told_with_the_file_that_has_it() -> None:
    result = judge([reply()], demands(values_in_files=("PADDLE_PSERVERS_IP_PORT_LIST",)))
    (remark,) = result.remarks
    assert result.problems == ()
    assert "PADDLE_PSERVERS_IP_PORT_LIST is too long for a Linux environment variable" in remark
    assert "PADDLE_PSERVERS_IP_PORT_LIST_FILE" in remark


def test_a_job_without_a_gpu_where_it_wants_one_is_a_remark() -> None:
    result = judge([reply(gpus={"count": 0, "driver": "", "names": []})], demands(use_gpu=True))
    assert "no NVIDIA GPU" in result.remarks[0]


def test_of_many_nodes_the_table_lists_those_that_are_wrong() -> None:
    replies = [reply(f"node-{n}", hostname=None) for n in range(49)] + [reply("node-49", writable=False)]
    result = judge(replies, DEMANDS)
    assert [row[0] for row in result.rows] == ["node-49"]
    assert result.red == {0}


def test_versions_without_numbers_are_not_too_old() -> None:
    modules = {"numpy": "unknown", "zmq": "27.dev0", "libzmq": "4.3.5"}
    assert judge([reply(modules=modules)], DEMANDS).problems == ()


def with_code(name: str, **files: str) -> Reply:
    return reply(name, facts={"code": {f"{path}.py": digest for path, digest in files.items()}})


def test_nodes_whose_workspaces_hold_other_code_are_named_with_the_files() -> None:
    same = {"train": "aa", "net": "bb"}
    others = [
        with_code("b", train="cc", net="bb"),
        with_code("c", train="aa"),
        with_code("d", **same, more="x"),
    ]
    replies = [with_code("a", **same), with_code("e", **same), with_code("f", **same), *others]
    judged = judge(replies, DEMANDS)
    said = {finding.node: finding.text for finding in judged.found}
    assert said.keys() == {"b", "c", "d"}
    for name, how in (
        ("b", "train.py differs"),
        ("c", "net.py is missing"),
        ("d", "more.py exists only here"),
    ):
        assert f"most nodes: {how}; copy" in said[name]
    assert len(judged.problems) == 3
    allowed = judge(replies, demands(allow_mismatch=True))
    assert (len(allowed.problems), len(allowed.remarks)) == (0, 3)


def test_of_many_files_that_differ_some_are_named() -> None:
    one, other = ({f"f{number:02}": word for number in range(20)} for word in ("aa", "bb"))
    (problem,) = judge([with_code("a", **one), with_code("b", **other)], DEMANDS).problems
    assert "f04.py differs and 15 more" in problem
    assert "f05" not in problem


def test_nodes_that_run_none_of_the_code_are_not_compared() -> None:
    assert judge([with_code("a", train="aa"), reply("b"), with_code("c", train="aa")], DEMANDS).problems == ()
