# SPDX-License-Identifier: Apache-2.0
"""The pure parts of an examination: who tries whom, which addresses, how far a clock is off, how long a list gets."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from paddle_cluster.config import arguments
from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.options import Mode
from paddle_cluster.config.resolve import resolve
from paddle_cluster.nodes.examination import demanded, to_try
from paddle_cluster.plan import addresses, plan
from paddle_cluster.system.clock import NodeClock
from paddle_node.contract.probed import NodeAddress, Route
from paddle_node.contract.to_launcher import Probed, read_message
from tests.launcher.planning import answer_to_probe


def node(*placed: tuple[str, str, int], login: str = "") -> Probed:
    return Probed(
        networks=tuple(NodeAddress(*one) for one in placed),
        login_address=login,
        address=login or placed[0][1],
        listen_ports={address: 4000 for _, address, _ in placed},
    )


# -- who tries whom


def test_few_nodes_try_every_other_one() -> None:
    tries = to_try(range(16), [], [])
    assert all(sorted([one, *others]) == list(range(16)) for one, others in tries.items())


@pytest.mark.parametrize("count", [17, 50, 1000])
def test_many_nodes_try_a_logarithm_of_their_number(count: int) -> None:
    tries = to_try(range(count), [], [])
    assert max(len(others) for others in tries.values()) <= math.ceil(math.log2(count))


def test_the_ring_leads_from_every_node_to_every_other() -> None:
    tries = to_try(range(100), [], [])
    seen, waiting = {0}, deque([0])
    while waiting:
        for other in tries[waiting.popleft()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    assert seen == set(range(100))


def test_the_first_pservers_and_trainers_try_each_other_in_both_directions() -> None:
    tries = to_try(range(100), [0, 50], [77, 99])
    for server in (0, 50):
        for trainer in (77, 99):
            assert trainer in tries[server]
            assert server in tries[trainer]


def test_a_node_that_did_not_answer_is_tried_by_nobody() -> None:
    tries = to_try([n for n in range(40) if n != 7], [7], [7, 8])
    assert 7 not in tries
    assert all(7 not in others for others in tries.values())


# -- which addresses


def test_the_network_that_all_nodes_have_is_chosen_over_the_one_of_some() -> None:
    answers = {
        0: node(("eth1", "192.168.5.1", 24), ("eth0", "10.0.0.1", 24)),
        1: node(("ens3", "10.0.0.2", 24)),
        2: node(("ens3", "10.0.0.3", 24), ("eth1", "192.168.5.3", 24)),
    }
    choice = addresses.choose(answers, {})
    assert choice.addresses == {0: "10.0.0.1", 1: "10.0.0.2", 2: "10.0.0.3"}
    assert "10.0.0.0/24" in choice.why


def test_a_network_that_every_machine_has_for_itself_is_not_common() -> None:
    answers = {n: node(("docker0", "172.17.0.1", 16), ("eth0", f"10.0.0.{n + 1}", 24)) for n in range(3)}
    assert addresses.choose(answers, {}).addresses[2] == "10.0.0.3"
    assert [str(one.network) for one in addresses.common_networks(answers)] == ["10.0.0.0/24"]


def two_networks(login: str) -> dict[int, Probed]:
    return {
        n: node(("eth0", f"10.0.0.{n + 1}", 24), ("ib0", f"10.9.0.{n + 1}", 24), login=login.format(n + 1))
        for n in range(2)
    }


def test_of_two_networks_the_one_of_the_logins_is_chosen() -> None:
    assert addresses.choose(two_networks("10.9.0.{}"), {}).addresses == {0: "10.9.0.1", 1: "10.9.0.2"}


def test_a_network_whose_ways_are_cut_is_passed_over() -> None:
    found = {
        0: [Route(1, False, "no answer", "10.9.0.2", 2.0), Route(1, True, "", "10.0.0.2", 0.001)],
        1: [Route(0, False, "no answer", "10.9.0.1", 2.0), Route(0, True, "", "10.0.0.1", 0.001)],
    }
    choice = addresses.choose(two_networks("10.9.0.{}"), found)
    assert choice.addresses == {0: "10.0.0.1", 1: "10.0.0.2"}
    assert "2 of 2 routes work" in choice.why


def test_without_logins_the_faster_network_is_chosen() -> None:
    found = {0: [Route(1, True, "", "10.0.0.2", 0.02), Route(1, True, "", "10.9.0.2", 0.0001)]}
    assert addresses.choose(two_networks("203.0.113.{}"), found).addresses[1] == "10.9.0.2"


def test_ipv4_comes_before_ipv6_where_both_work_and_ipv6_alone_will_do() -> None:
    both = {n: node(("eth0", f"fd00::{n + 1}", 64), ("eth0", f"10.0.0.{n + 1}", 24)) for n in range(2)}
    six = {n: node(("eth0", f"fd00::{n + 1}", 64)) for n in range(2)}
    assert addresses.choose(both, {}).addresses == {0: "10.0.0.1", 1: "10.0.0.2"}
    assert addresses.choose(six, {}).addresses == {0: "fd00::1", 1: "fd00::2"}


def test_without_a_common_network_each_node_keeps_the_address_of_its_login() -> None:
    answers = {
        0: node(("eth0", "10.0.0.1", 24), login="10.0.0.1"),
        1: node(("eth0", "10.0.1.1", 24), login="10.0.1.1"),
    }
    choice = addresses.choose(answers, {})
    assert choice.addresses == {0: "10.0.0.1", 1: "10.0.1.1"}
    assert "no network" in choice.why
    assert addresses.places(answers) == {0: ("10.0.0.1",), 1: ("10.0.1.1",)}


def test_prefixes_that_differ_within_one_network_do_not_hide_it() -> None:
    answers = {0: node(("eth0", "10.0.0.1", 16)), 1: node(("eth0", "10.0.0.2", 24))}
    assert addresses.choose(answers, {}).addresses == {0: "10.0.0.1", 1: "10.0.0.2"}


# -- clocks


def test_the_fastest_of_several_pings_counts_and_half_of_it_is_the_uncertainty() -> None:
    clock = NodeClock()
    now, ahead = 1000.0, 3600.0
    for seq, (out, back) in enumerate(((0.001, 0.003), (0.5, 0.001))):
        clock.asked(seq, now)
        node_clock = now + out + ahead
        now += out + back
        clock.answered(seq, node_clock, now)
    assert clock.error_s == pytest.approx(0.002)
    assert abs(clock.offset_s - ahead) <= clock.error_s + 1e-9


def test_a_pong_that_was_not_asked_for_is_ignored() -> None:
    clock = NodeClock()
    clock.asked(6, 0.0)
    clock.answered(7, 0.0, 1.0)
    assert clock.error_s == math.inf


# -- long lists


def wide_plan(tmp_path: Path, count: int) -> plan.Plan:
    conf = tmp_path / "conf.py"
    conf.write_text("HOSTS = ['root@10.0.0.1']\n")
    given = arguments.Arguments({"conf": conf})
    resolved = resolve(given, {})
    hosts = tuple(parse_host(f"n{n}") for n in range(count))
    ids = tuple(range(count))
    cluster = replace(resolved.cluster, hosts=hosts, pservers=ids, trainers=ids, ports_num=2)
    return plan.build(replace(resolved, cluster=cluster), "JOB20261121000000-abcdef")


@pytest.mark.parametrize(("count", "fits"), [(3, True), (1000, True), (5000, False)])
def test_lists_of_endpoints_that_no_environment_holds_are_known_before(
    tmp_path: Path, count: int, fits: bool
) -> None:
    wide = wide_plan(tmp_path, count)
    names = plan.values_in_files(wide, {n: f"10.20.{n // 250}.{n % 250}" for n in range(count)})
    assert names == (() if fits else ("PADDLE_PSERVERS_IP_PORT_LIST",))


# -- what a node may say


@pytest.mark.parametrize(
    "fields",
    [
        {"networks": [["eth0", "not an address", 24]]},
        {"networks": [["eth0", "10.0.0.1", 99]]},
        {"listen_ports": {"10.0.0.1": "x"}},
        {"busy_ports": [[1, 2, 3]]},
        {"problems": ["text"]},
        {"facts": {"disks": [{}]}},
        {"modules": 7},
    ],
)
def test_nonsense_in_an_answer_is_an_error(fields: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        answer_to_probe(**fields)


def test_ways_are_read_with_their_addresses() -> None:
    assert read_message("reached", {"results": [[3, True, "", "fd00::1", 0.5]]}, "a node").results == (
        Route(3, True, "", "fd00::1", 0.5),
    )


# -- what is demanded


@pytest.mark.parametrize(
    ("mode", "workspace", "are_wanted"),
    [
        (Mode.V2, None, True),
        (Mode.FLUID, None, True),
        (Mode.COLLECTIVE, None, False),
        (Mode.V2, "/ws", True),  # only the workspace is there already
        (Mode.COLLECTIVE, "/ws", False),
    ],
)
def test_kernels_are_asked_for_unless_the_script_may_not_use_paddle(
    tmp_path: Path, mode: Mode, workspace: str | None, are_wanted: bool
) -> None:
    planned = wide_plan(tmp_path, 2)
    settings = replace(planned.settings, job=replace(planned.settings.job, mode=mode, workspace=workspace))
    found = demanded(replace(planned, settings=settings), {0: "10.0.0.1", 1: "10.0.0.2"})
    assert (found.kernels is not None) == are_wanted
