# SPDX-License-Identifier: Apache-2.0
"""Whether a job goes on after something failed, and with whom. Pure.

A trainer may be started again, or be left out while enough remain. A pserver is started again where it was, on the
node that keeps its state; what is lost with a node only a checkpoint brings back. In collective mode trainers only
start together: whoever was left alone waits for peers that do not know it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from paddle_cluster.job.causes import judge, waits
from paddle_cluster.nodes.failure import Failure, FailureKind
from paddle_cluster.text.sizes import counted

LONGEST_BACKOFF_S = 30.0
JITTER = 0.25

PSERVER = "a pserver's state is lost: started again, it would have lost its parameters"
PSERVER_SPENT = "a pserver was started again as often as it may be"
NOBODY_LEFT_OUT = "the job needs all its nodes, unless --min_trainers says otherwise"
NOT_A_PROCESS = "this is nothing that a restart could mend"


@dataclass(frozen=True)
class Policy:
    """What the user wants.

    Attributes:
        together: a restart of one trainer is one of all.
        max_restarts: of each process, or of all together; 0: none.
        min_trainers: how many must remain if some are left out; None: nobody is left out.
        pserver_restarts: of each pserver; 0: none keeps its state.
    """

    together: bool
    max_restarts: int
    min_trainers: int | None
    pserver_restarts: int = 0

    def is_stop(self, failures: Sequence[Failure]) -> bool:
        """Whether such failures end the job, as a trainer's do unless the user says otherwise."""
        if self.pserver_restarts and all(failure.role == "pserver" for failure in failures):
            return False
        return self.max_restarts == 0 and self.min_trainers is None


@dataclass(frozen=True)
class Trainer:
    """One trainer that takes part.

    Attributes:
        restarts: how often it was started again.
    """

    name: str
    node_id: int
    restarts: int


@dataclass(frozen=True)
class Decision:
    """What happens now.

    Attributes:
        refusal: why the job ends; empty: it goes on.
        restart, leave_out: names of trainers.
        revive: names of pservers that are started again.
    """

    refusal: str = ""
    restart: frozenset[str] = frozenset()
    leave_out: frozenset[str] = frozenset()
    revive: frozenset[str] = frozenset()


def decide(
    policy: Policy,
    trainers: Sequence[Trainer],
    pserver_nodes: Collection[int],
    failures: Sequence[Failure],
    pserver_restarts: Mapping[str, int] = MappingProxyType({}),
) -> Decision:
    """What to do about failures, at least one.

    Args:
        trainers: those that take part, the failed ones among them.
        pserver_nodes: nodes that run a pserver.
        pserver_restarts: how often each pserver was started again, by name.
    """
    verdict = judge(failures)
    cause = verdict.cause
    # one that might still recover, or goes on once its peer does, has failed only if others failed because of it
    may_recover = cause.kind is not FailureKind.CUT_OFF  # a broken path is nothing that could act itself
    acting = [
        f
        for f in failures
        if f.kind is not FailureKind.CUT_OFF
        and (f is cause or not (may_recover and (f.kind is FailureKind.STALLED or waits(f))))
    ]
    lost = {failure.node_id for failure in acting if failure.kind is FailureKind.NODE_LOST}
    fallen = frozenset(failure.process for failure in acting if failure.role == "pserver")
    if lost & set(pserver_nodes) or (fallen and not policy.pserver_restarts):
        return Decision(PSERVER)
    if any(pserver_restarts.get(name, 0) >= policy.pserver_restarts for name in fallen):
        return Decision(PSERVER_SPENT)
    acting = [failure for failure in acting if failure.role != "pserver"]
    if not acting:
        return Decision(revive=fallen)
    if any(failure.role != "trainer" and failure.kind is not FailureKind.NODE_LOST for failure in acting):
        return Decision(NOT_A_PROCESS)
    gone = {trainer.name for trainer in trainers if trainer.node_id in lost}
    failed = {failure.process for failure in acting} - gone - {""}
    if policy.together:
        guilty = {failure.process for failure in (cause, *verdict.same, *verdict.others)} - {""}
        spent = any(trainer.restarts >= policy.max_restarts for trainer in trainers)
        again, out = (failed, gone) if not spent else (set[str](), gone | (guilty & failed))
    else:
        used = {trainer.name: trainer.restarts for trainer in trainers}
        again = {name for name in failed if used.get(name, 0) < policy.max_restarts}
        out = gone | (failed - again)
    remaining = {trainer.name for trainer in trainers} - out
    if out and policy.min_trainers is None:
        return Decision(f"--max_restarts={policy.max_restarts} is used up" if out - gone else NOBODY_LEFT_OUT)
    if out and len(remaining) < max(1, policy.min_trainers or 0):
        return Decision(f"{counted(len(remaining), 'trainer')} left, --min_trainers={policy.min_trainers}")
    return Decision("", frozenset(remaining if policy.together else again), frozenset(out), fallen)


def backoff_s(base_s: float, restart: int, chance: float) -> float:
    """How long to wait before a restart: twice as long each time, 30 s at most, a little off from the others'.

    Args:
        restart: 1 for the first.
        chance: 0 to 1, evenly spread.
    """
    wait_s = base_s * 2.0 ** min(restart - 1, 30)
    return float(min(LONGEST_BACKOFF_S, wait_s * (1 + JITTER * (2 * chance - 1))))
