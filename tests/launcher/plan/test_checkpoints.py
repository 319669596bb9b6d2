# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint a job goes on from, by what its nodes have."""

from __future__ import annotations

import pytest

from paddle_cluster.plan.checkpoints import ResumeChoice, choose, marked, shares, together, unreadable
from paddle_node.contract.probed import Part
from paddle_node.contract.records import RecordError
from paddle_node.contract.to_launcher import read_message

NAMES = {0: "node-a", 1: "node-b"}


def part(
    version: int, server: int, job: str = "A", *, servers: int = 2, problem: str = "", idle: int = 0
) -> Part:
    return Part(version, job, server, servers, 0, 10, float(version), problem, idle=idle)


def chosen(resume: str, a: list[Part], b: list[Part]) -> ResumeChoice:
    return choose(resume, {0: a, 1: b}, (0, 1), NAMES)


def test_the_newest_that_all_nodes_have_is_taken_and_told() -> None:
    choice = chosen("latest", [part(20, 0), part(10, 0)], [part(10, 1)])
    assert choice.resume == "10.A"
    assert "batch 20 is not on node-b: the job continues from batch 10" in choice.message
    assert chosen("auto", [part(20, 0), part(10, 0)], [part(10, 1)]).resume == "10.A"


def test_jobs_are_not_mixed_that_wrote_the_same_batch() -> None:
    choice = chosen("latest", [part(10, 0, "B"), part(10, 0, "A")], [part(10, 1, "A")])
    assert choice.resume == "10.A"


@pytest.mark.parametrize("resume", ["", "10", "010", "10.A", "10.B", "30", "0"])
def test_what_the_user_named_stays(resume: str) -> None:
    assert chosen(resume, [part(20, 0), part(10, 0)], [part(10, 1)]) == ResumeChoice()


def test_a_named_checkpoint_must_be_complete_and_is_that_of_one_job() -> None:
    choice = chosen("20", [part(20, 0), part(10, 0)], [part(10, 1)])
    assert choice.resume == ""
    assert "batch 20 is not on node-b" in choice.message
    assert "batch 10" not in choice.message
    assert chosen("10", [part(10, 0, "B"), part(10, 0, "A")], [part(10, 1, "A")]).resume == "10.A"
    assert chosen("10.B", [part(10, 0, "A"), part(10, 0, "B")], [part(10, 1, "A")]).resume == ""


def test_servers_look_for_themselves_where_all_see_the_same_or_the_newest_is_everywhere() -> None:
    shared = [part(10, 0), part(10, 1)]
    assert chosen("latest", shared, shared) == ResumeChoice()
    assert chosen("latest", [part(20, 0), *shared], [part(20, 0), *shared]).resume == "10.A"
    assert chosen("latest", [part(20, 0), part(10, 0)], [part(20, 1)]) == ResumeChoice()
    assert chosen("auto", [], []) == ResumeChoice()


def test_a_damaged_part_counts_as_none() -> None:
    choice = chosen("latest", [part(20, 0), part(10, 0)], [part(20, 1, problem="cut short"), part(10, 1)])
    assert choice.resume == "10.A"
    assert "batch 20 is damaged on node-b (cut short)" in choice.message


def test_nothing_in_common_is_told_and_left_to_the_servers() -> None:
    choice = chosen("latest", [part(20, 0)], [part(10, 1)])
    assert choice.resume == ""
    assert (
        "no checkpoint is complete on all nodes: batch 20 is not on node-b; batch 10 is not on"
        in choice.message
    )


def test_a_checkpoint_says_what_it_lacks() -> None:
    (found,) = together({0: [part(10, 0, servers=3)], 1: [part(10, 1, servers=3)]}, (0, 1))
    assert (found.is_whole, found.missing, found.without, found.nbytes) == (False, (2,), (), 20)


def test_nodes_whose_servers_were_idle_need_no_part() -> None:
    (found,) = together({0: [part(10, 0, servers=1, idle=1)], 1: []}, (0, 1))
    assert (found.is_whole, found.without) == (True, ())
    assert chosen("latest", [part(10, 0, servers=1, idle=1)], []) == ResumeChoice()
    (found,) = together({0: [part(10, 0, servers=2, idle=1)], 1: []}, (0, 1))
    assert (found.is_whole, found.missing, found.without) == (False, (1,), (1,))
    (found,) = together({0: [part(10, 0, servers=1)], 1: []}, (0, 1))
    assert (found.is_whole, found.without) == (False, (1,))


def test_a_node_that_talks_nonsense_is_an_error() -> None:
    with pytest.raises(RecordError):
        read_message("checkpoints_found", {"parts": [[1, "A", 0, 0, 0, 10, 1.0, ""]]}, "a node")


def test_each_part_of_a_shared_folder_is_verified_one_time_and_of_own_folders_by_its_node() -> None:
    shared = [part(10, server)._replace(identity=f"7.{server}") for server in range(2)]
    (one,) = together({0: shared, 1: shared}, (0, 1))
    assert sorted(p.server for parts in shares(one).values() for p in parts) == [0, 1]
    assert set(shares(one)) == {0, 1}
    copies = [[p._replace(identity=f"{node}.{p.server}") for p in shared] for node in range(2)]
    (one,) = together({0: copies[0], 1: copies[1]}, (0, 1))
    assert {node: len(parts) for node, parts in shares(one).items()} == {0: 2, 1: 2}


def test_damage_that_a_node_finds_counts_for_all_nodes_that_see_the_file() -> None:
    shared = [part(10, 0)._replace(identity="7.0")]
    own = [part(10, 0)._replace(identity="8.0")]
    found = marked({0: shared, 1: shared, 2: own}, [(0, shared[0], "damaged")])
    assert [parts[0].problem for parts in found.values()] == ["damaged", "damaged", ""]


def test_a_node_without_a_readable_part_is_found_where_others_have_one() -> None:
    assert unreadable({0: [part(10, 0)], 1: []}, (0, 1)) == (1,)
    assert unreadable({0: [part(10, 0)], 1: [part(10, 1, problem="x")]}, (0, 1)) == (1,)
    assert unreadable({0: [], 1: []}, (0, 1)) == ()
    assert unreadable({0: [part(20, 0)], 1: [part(10, 1)]}, (0, 1)) == ()
