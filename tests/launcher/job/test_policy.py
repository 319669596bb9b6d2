# SPDX-License-Identifier: Apache-2.0
"""Whether a job goes on: failures and policy in, a decision out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddle_cluster.job.recovery import (
    NOBODY_LEFT_OUT,
    PSERVER,
    PSERVER_SPENT,
    Decision,
    Policy,
    Trainer,
    backoff_s,
    decide,
)
from paddle_cluster.nodes.failure import Failure, FailureKind

PSERVER_NODES = (9,)


def exit_of(name: str, *tail: str) -> Failure:
    return Failure(FailureKind.EXIT, "n", name, "exit code 1", tail, node_id=0, code=1)


def lost(node_id: int) -> Failure:
    return Failure(FailureKind.NODE_LOST, f"n{node_id}", "", "no word", node_id=node_id)


def crew(*restarts: int) -> list[Trainer]:
    return [Trainer(f"trainer-{rank}", rank, count) for rank, count in enumerate(restarts)]


def names(*ranks: int) -> frozenset[str]:
    return frozenset(f"trainer-{rank}" for rank in ranks)


ALONE = Policy(together=False, max_restarts=2, min_trainers=None)
ALONE_ELASTIC = Policy(together=False, max_restarts=1, min_trainers=2)
TOGETHER = Policy(together=True, max_restarts=2, min_trainers=None)
ELASTIC = Policy(together=True, max_restarts=0, min_trainers=2)
RESET = "ConnectionResetError: Connection reset by peer"

# policy, restarts so far by rank, failures; refused (part of the text), restarted, left out
CASES = {
    "alone, first": (ALONE, (0, 0, 0), [exit_of("trainer-1")], "", names(1), names()),
    "alone, two": (ALONE, (0, 0, 0), [exit_of("trainer-1"), exit_of("trainer-2")], "", names(1, 2), names()),
    "alone, was reached": (ALONE, (0, 2, 0), [exit_of("trainer-1")], "was reached", names(), names()),
    "alone, one of two was reached": (
        ALONE,
        (0, 2, 0),
        [exit_of("trainer-0"), exit_of("trainer-1")],
        "was reached",
        names(),
        names(),
    ),
    "a node without permission": (ALONE, (0, 0, 0), [lost(1)], NOBODY_LEFT_OUT, names(), names()),
    "left out when was reached": (ALONE_ELASTIC, (0, 1, 0), [exit_of("trainer-1")], "", names(), names(1)),
    "a node is left out": (ALONE_ELASTIC, (0, 0, 0), [lost(2)], "", names(), names(2)),
    "a node, and an echo": (
        ALONE_ELASTIC,
        (0, 0, 0),
        [exit_of("trainer-0", RESET), lost(2)],
        "",
        names(0),
        names(2),
    ),
    "too few remain": (ALONE_ELASTIC, (0, 0), [lost(1)], "1 trainer would remain", names(), names()),
    "a pserver": (ALONE, (0, 0), [exit_of("pserver-0")], PSERVER, names(), names()),
    "a pserver's node": (ALONE_ELASTIC, (0, 0, 0), [lost(9)], PSERVER, names(), names()),
    "all start again": (TOGETHER, (0, 0, 0), [exit_of("trainer-1")], "", names(0, 1, 2), names()),
    "all, was reached": (TOGETHER, (2, 2, 2), [exit_of("trainer-1")], "was reached", names(), names()),
    "fewer start again": (ELASTIC, (0, 0, 0), [lost(1)], "", names(0, 2), names(1)),
    "only the guilty is left out": (
        ELASTIC,
        (0, 0, 0),
        [exit_of("trainer-0", RESET), exit_of("trainer-1")],
        "",
        names(0, 2),
        names(1),
    ),
    "one that ended with 0 while others waited": (
        ELASTIC,
        (0, 0, 0),
        [exit_of("trainer-0", RESET), replace(exit_of("trainer-1"), kind=FailureKind.LEFT, code=0)],
        "",
        names(0, 2),
        names(1),
    ),
    "all start again after one that ended with 0": (
        TOGETHER,
        (0, 0, 0),
        [exit_of("trainer-0", RESET), replace(exit_of("trainer-1"), kind=FailureKind.LEFT, code=0)],
        "",
        names(0, 1, 2),
        names(),
    ),
    "all are guilty": (
        ELASTIC,
        (0, 0, 0),
        [exit_of(f"trainer-{rank}", "Traceback (most recent call last):", "E: x") for rank in range(3)],
        "0 trainers would remain",
        names(),
        names(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_decision(case: str) -> None:
    policy, restarts, failures, refusal, restart, leave_out = CASES[case]
    decision = decide(policy, crew(*restarts), PSERVER_NODES, failures)
    assert refusal in decision.refusal
    assert bool(refusal) == bool(decision.refusal)
    assert (decision.restart, decision.leave_out) == (restart, leave_out)


LEFT = replace(exit_of("trainer-1"), kind=FailureKind.LEFT, code=0)
# policy, ranks that have exited with 0, failures; restarted, left out
FINISHED = {
    "all others have finished": (ELASTIC, (0, 2), [lost(1)], names(), names(1)),
    "one other has finished": (ELASTIC, (0,), [lost(1)], names(2), names(1)),
    "the lost one had finished": (ELASTIC, (1,), [lost(1)], names(), names(1)),
    "it ended while others waited": (
        ELASTIC,
        (1,),
        [exit_of("trainer-0", RESET), LEFT],
        names(0, 2),
        names(1),
    ),
    "the group stays as large": (TOGETHER, (0,), [exit_of("trainer-1")], names(0, 1, 2), names()),
    "the group may be smaller": (
        Policy(together=True, max_restarts=1, min_trainers=1),
        (0,),
        [exit_of("trainer-1")],
        names(1, 2),
        names(),
    ),
}


@pytest.mark.parametrize("case", FINISHED)
def test_what_has_finished_is_not_done_again_unless_the_group_needs_it(case: str) -> None:
    policy, finished, failures, restart, leave_out = FINISHED[case]
    trainers = [replace(one, has_finished=one.node_id in finished) for one in crew(0, 0, 0)]
    assert decide(policy, trainers, (), failures) == Decision("", restart, leave_out)


KEPT = Policy(together=False, max_restarts=0, min_trainers=None, pserver_restarts=3)


def test_a_pserver_that_keeps_its_state_is_started_again_until_it_was_too_often() -> None:
    fallen = [exit_of("pserver-0")]
    assert not KEPT.is_stop(fallen)
    assert decide(KEPT, crew(0, 0), (9,), fallen, {"pserver-0": 2}) == Decision(
        revive=frozenset(["pserver-0"])
    )
    assert decide(KEPT, crew(0, 0), (9,), fallen, {"pserver-0": 3}).refusal == PSERVER_SPENT


def test_a_pserver_that_is_lost_with_its_node_ends_the_job_although_it_kept_its_state() -> None:
    assert decide(KEPT, crew(0, 0), (9,), [exit_of("pserver-0"), lost(9)]).refusal == PSERVER


def test_a_trainer_that_fails_beside_a_pserver_ends_the_job_unless_it_may_be_started_again() -> None:
    both = [exit_of("pserver-0"), exit_of("trainer-1")]
    assert KEPT.is_stop(both)
    patient = Policy(together=False, max_restarts=1, min_trainers=None, pserver_restarts=3)
    assert not patient.is_stop(both)
    assert decide(patient, crew(0, 0), (9,), both, {}) == Decision(
        restart=names(1), revive=frozenset(["pserver-0"])
    )


def test_one_that_might_recover_counts_only_when_others_died_of_it() -> None:
    stalled = Failure(FailureKind.STALLED, "n", "trainer-0", "frozen", node_id=0)
    assert decide(ALONE, crew(0, 0), (), [exit_of("trainer-1"), stalled]).restart == names(1)
    assert decide(ALONE, crew(0, 0), (), [exit_of("trainer-1", RESET), stalled]).restart == names(0, 1)


def test_the_wait_doubles_and_is_bounded() -> None:
    assert [backoff_s(1.0, restart, 0.5) for restart in (1, 2, 3, 6, 7, 10**6)] == [1, 2, 4, 30, 30, 30]
    assert backoff_s(8.0, 1, 0.0) == 6.0
    assert backoff_s(8.0, 1, 1.0) == 10.0
    assert backoff_s(0.0, 5, 1.0) == 0.0
