# SPDX-License-Identifier: Apache-2.0
"""Continues a job after a failure: `decide`, a pure function, and Recovery, which restarts or removes trainers.

A trainer can be restarted, or removed while enough remain. A pserver is restarted in place, on the node that stores its
state; state lost with a node is only restored from a checkpoint. In collective mode trainers only start together: a
single restarted trainer would wait for peers that do not know it. A trainer that exited with code 0 has finished: it is
restarted only if the group must not become smaller.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from paddle_cluster.config.options import Mode
from paddle_cluster.job.causes import first_cause, judge, waits
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.starter import Starter
from paddle_cluster.nodes.failure import LEFT_OUT, RESTART, Failure, FailureKind, Incident
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.roster import ProcessRecord, Roster, Stage
from paddle_cluster.plan import checkpoints
from paddle_cluster.plan.plan import Plan, Process
from paddle_cluster.text.sizes import counted
from paddle_node.contract.classes import dataclass, replace

if TYPE_CHECKING:
    from random import Random

LONGEST_BACKOFF_S = 30.0
JITTER = 0.25

PSERVER = "the state of a pserver is lost: after a restart it would have no parameters"
PSERVER_SPENT = "a pserver has used up its restarts"
NOBODY_LEFT_OUT = "the job needs all its nodes unless --min_trainers allows fewer"
NOT_A_PROCESS = "a restart would not fix this"


@dataclass(frozen=True)
class Policy:
    """The recovery policy that the user's settings define.

    Attributes:
        together: whether restarting one trainer restarts all of them.
        max_restarts: per process, or for all together; 0 means none.
        min_trainers: number of trainers that must remain if some are removed; None means none is removed.
        pserver_restarts: per pserver; 0 means pservers do not store their state.
    """

    together: bool
    max_restarts: int
    min_trainers: int | None
    pserver_restarts: int = 0

    def is_stop(self, failures: Sequence[Failure]) -> bool:
        """Return whether the policy ends the job after these failures."""
        if self.pserver_restarts and all(failure.role == "pserver" for failure in failures):
            return False
        return self.max_restarts == 0 and self.min_trainers is None


@dataclass(frozen=True)
class Trainer:
    """A trainer that takes part in the job, as `decide` needs it.

    Attributes:
        restarts: the number of its restarts.
        has_finished: whether it has exited with code 0 since its last start.
    """

    name: str
    node_id: int
    restarts: int
    has_finished: bool = False


@dataclass(frozen=True)
class Decision:
    """The decision about one or several failures: whether and how the job continues.

    Attributes:
        refusal: why it ends, or empty if it continues.
        restart, leave_out: names of trainers to restart and to remove.
        revive: names of pservers to restart.
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
    """Decide how to react to one or more failures.

    Args:
        trainers: the participating trainers, including the failed ones.
        pserver_nodes: nodes that run a pserver.
        pserver_restarts: number of restarts of each pserver, by name.
    """
    conclusion = judge(failures)
    cause = conclusion.cause
    # a process that may recover, or continue when its peer does, has failed only as a consequence of others
    may_recover = cause.kind is not FailureKind.CUT_OFF  # a broken path cannot act by itself
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
        guilty = {failure.process for failure in (cause, *conclusion.same, *conclusion.others)} - {""}
        spent = any(trainer.restarts >= policy.max_restarts for trainer in trainers)
        again, out = (failed, gone) if not spent else (set[str](), gone | (guilty & failed))
    else:
        used = {trainer.name: trainer.restarts for trainer in trainers}
        again = {name for name in failed if used.get(name, 0) < policy.max_restarts}
        out = gone | (failed - again)
    remaining = {trainer.name for trainer in trainers} - out
    if out and policy.min_trainers is None:
        return Decision(
            f"--max_restarts={policy.max_restarts} was reached" if out - gone else NOBODY_LEFT_OUT
        )
    if out and len(remaining) < max(1, policy.min_trainers or 0):
        return Decision(
            f"{counted(len(remaining), 'trainer')} would remain, fewer than --min_trainers={policy.min_trainers}"
        )
    if policy.together:
        again = remaining
        if policy.min_trainers is not None:
            finished = {trainer.name for trainer in trainers if trainer.has_finished} - failed
            again = remaining - finished if failed | gone - finished else set()
    return Decision("", frozenset(again), frozenset(out), fallen)


def backoff_s(base_s: float, restart: int, chance: float) -> float:
    """Return the delay before a restart in seconds: it doubles with each restart up to 30 s, and has jitter.

    Args:
        restart: 1 for the first one.
        chance: a uniform random number from 0 to 1.
    """
    wait_s = base_s * 2.0 ** min(restart - 1, 30)
    return float(min(LONGEST_BACKOFF_S, wait_s * (1 + JITTER * (2 * chance - 1))))


KILL_S = 8.0  # how long an agent may take beyond the grace period until killed processes have exited

LOG = "log/leave.log"


class JobFailed(Exception):
    """Raised when a part of the job failed; the roster contains the failures."""


class Recovery:
    """The executor of a recovery policy on the roster's processes."""

    def __init__(self, context: JobContext, loop: Loop, starter: Starter) -> None:
        settings = context.settings
        self._context = context
        self._settings = settings
        self._roster = context.roster
        self._loop = loop
        self._starter = starter
        self._plan = context.plan
        self._due: dict[str, float] = {}
        together = settings.job.mode is Mode.COLLECTIVE
        self._policy = Policy(
            together,
            settings.job.max_restarts,
            settings.job.min_trainers,
            checkpoints.pserver_restarts(settings),
        )
        self._seed = context.plan.job_id

    @functools.cached_property
    def _jitter(self) -> Random:
        from random import Random  # few jobs restart a process

        return Random(self._seed)  # noqa: S311 - it spreads retries, nothing secret

    def is_idle(self) -> bool:
        """Return whether no restart of a process is pending."""
        return not self._due

    def is_due(self) -> bool:
        """Return whether a pending restart is due."""
        return any(at <= time.monotonic() for at in self._due.values())

    def absorb(self) -> None:
        """Process the new failures in the roster: schedule restarts, drop trainers, or end the job.

        Raises:
            JobFailed: the job does not continue; the failures remain in the roster.
        """
        failures = self._roster.failures
        if self._policy.is_stop(failures):
            raise JobFailed
        trainers = [
            Trainer(record.process.name, record.process.node_id, record.restarts, record.left_at > 0)
            for record in self._roster.trainers()
        ]
        revived = {record.process.name: record.restarts for record in self._roster.pservers()}
        decision = decide(self._policy, trainers, self._plan.pserver_nodes, failures, revived)
        if decision.refusal:
            self._note(f"the job ends: {decision.refusal}")
            raise JobFailed
        cause = first_cause(failures)
        failed = list(failures)
        failures.clear()
        if decision.leave_out:
            self._leave_out(decision.leave_out, failed)
        self._part([*decision.revive, *decision.restart, *decision.leave_out])
        if decision.revive:
            self._revive(decision.revive, cause)
        if decision.restart:
            self._schedule(decision.restart, cause)
        if decision.leave_out:
            self._forget(decision.leave_out)
        if self._policy.together and decision.restart:
            self._seat(decision.restart)

    def start_due(self) -> None:
        """Start the processes whose restart is due."""
        now = time.monotonic()
        due = [name for name, at in self._due.items() if at <= now]
        for name in due:
            del self._due[name]
        if not self._policy.together:  # other jobs have no pservers
            for name in due:
                record = self._roster.processes[name]
                self._starter.again(record.process, record.restarts + 1)
            return
        restarts = max(self._roster.processes[name].restarts for name in due) + 1
        for record in self._roster.trainers():
            del self._roster.processes[record.process.name]
        for process in self._starter.trainers(self._plan):
            self._starter.again(process, restarts)

    def _schedule(self, names: Collection[str], cause: Failure) -> None:
        number = 1 + max(self._roster.processes[name].restarts for name in names)
        wait_s = backoff_s(self._settings.limits.restart_backoff_s, number, self._jitter.random())
        at = time.monotonic() + wait_s
        self._due.update(dict.fromkeys(names, at))
        who = _listed(names)
        if self._policy.together:
            finished = [
                one for one in self._roster.trainers() if one.left_at and one.process.name not in names
            ]
            kind = "unfinished trainer" if finished else "trainer"
            who = "all " * (len(names) > 1) + counted(len(names), kind)
        limit = f" of {self._policy.max_restarts}" if self._policy.max_restarts else ""
        text = f"{cause.headline()}; restarting {who} in {wait_s:.1f} s (restart {number}{limit})"
        self._roster.incidents.append(Incident(RESTART, text))
        self._note(text)

    def _revive(self, names: Collection[str], cause: Failure) -> None:
        """Restart pservers, the first time immediately, because trainers wait for them."""
        number = 1 + max(self._roster.processes[name].restarts for name in names)
        wait_s = 0.0
        if number > 1:
            wait_s = backoff_s(self._settings.limits.restart_backoff_s, number - 1, self._jitter.random())
        self._due.update(dict.fromkeys(names, time.monotonic() + wait_s))
        limit = self._policy.pserver_restarts
        text = (
            f"{cause.headline()}; restarting {_listed(names)} from saved state in {wait_s:.1f} s "
            f"(restart {number} of {limit})"
        )
        self._roster.incidents.append(Incident(RESTART, text))
        self._note(text)

    def _leave_out(self, names: Collection[str], failures: list[Failure]) -> None:
        remaining = len(self._roster.trainers()) - len(names)
        nodes = {failure.node_id: failure for failure in failures if not failure.process}
        by_process = {failure.process: failure for failure in failures}
        for name in sorted(names):
            process = self._roster.processes[name].process
            why = by_process.get(name) or nodes[process.node_id]
            who = f"{name.replace('-', ' ', 1)} on {self._roster.nodes[process.node_id].name}"
            text = f"{who} is dropped: {why.what}; the job continues with {counted(remaining, 'trainer')}"
            self._roster.incidents.append(Incident(LEFT_OUT, text))
            self._note(text)
        for node_id in nodes:
            self._roster.nodes[node_id].traces.leave_out()

    def _part(self, names: Collection[str]) -> None:
        """Stop processes and their remaining children, to free their names and ports."""
        by_node: dict[int, list[str]] = {}
        records: list[ProcessRecord] = []
        for name in names:
            record = self._roster.processes[name]
            self._due.pop(name, None)
            node = self._roster.nodes[record.process.node_id]
            if node.link is None:
                record.move(Stage.EXITED)
                continue
            record.move(Stage.ENDING)
            records.append(record)
            by_node.setdefault(record.process.node_id, []).append(name)
        for node_id, stopping in by_node.items():
            self._roster.nodes[node_id].traces.part()
            self._roster.nodes[node_id].send(
                "stop", procs=sorted(stopping), grace_s=self._settings.limits.stop_grace_s
            )
        parting = [node for node_id in by_node if not (node := self._roster.nodes[node_id]).traces.left_out]
        self._loop.until(
            lambda: all(node.traces.parting == 0 or node.link is None for node in parting),
            self._settings.limits.stop_grace_s + KILL_S,
        )
        for record in records:
            record.move(Stage.EXITED)

    def _forget(self, names: Collection[str]) -> None:
        """Remove trainers from the job for good, and inform the pservers."""
        for process in [self._roster.processes.pop(name).process for name in sorted(names)]:
            report_departure(process, self._plan, self._roster, self._starter)

    def _seat(self, names: Collection[str]) -> None:
        """Plan the next start for these trainers of a collective job; a trainer that waits for it has its old rank."""
        seated = tuple(
            record.process.node_id for record in self._roster.trainers() if record.process.name in names
        )
        nodes = tuple(node for node in self._plan.nodes if node.node_id in seated)
        self._plan = replace(self._plan, nodes=nodes, trainer_nodes=seated)

    def _note(self, text: str) -> None:
        self._context.console.note(text)


def _listed(names: Collection[str]) -> str:
    return ", ".join(name.replace("-", " ", 1) for name in sorted(names))


def report_departure(gone: Process, plan: Plan, roster: Roster, starter: Starter) -> None:
    """Inform the pservers that a trainer has left permanently, so that no trainer waits for it.

    A short-lived process on the first pserver's node, which has the job's key, connects in place of the lost trainer
    and leaves immediately. Its exit is reported like that of any process.
    """
    if plan.mode is Mode.COLLECTIVE:
        return
    node = plan.node(plan.pserver_nodes[0])
    name = f"leave-{gone.rank}"
    roster.messengers[name] = f"cannot inform the pservers that trainer {gone.rank} has left"
    argv = (node.python, "-P", "-m", "paddle", "pserver-leave")
    starter.send(replace(gone, name=name, node_id=node.node_id, argv=argv, log=LOG, ports=()), {})
