# SPDX-License-Identifier: Apache-2.0
"""The main phases of a job: starts pservers and trainers, and watches them until all trainers finish or the job fails.

Failures that arrive together are judged together, so that the report names the cause rather than a secondary failure.
"""

from __future__ import annotations

import bisect
import errno
import os
import time
from collections.abc import Callable, Sequence

from paddle_cluster.config.options import Mode
from paddle_cluster.job.causes import broken_line, left_early, place, waits, waits_for_peers
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.recovery import JobFailed, Recovery
from paddle_cluster.job.starter import Starter
from paddle_cluster.nodes.failure import Failure, FailureKind
from paddle_cluster.nodes.loop import ALARM_S, Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import ProcessRecord, ProcessState, Stage
from paddle_cluster.plan.environment import Endpoints
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.sizes import counted, some
from paddle_node.contract.classes import replace
from paddle_node.contract.probed import Route

PORTS_NAMED = 4
SETTLE_S = 0.3  # failures that arrive within this time are judged together
ECHO_S = 2.0  # if all of them look like secondary failures, the cause may still arrive within this time
STACKS_S = 3.0
ASKED_S = 2.0  # the same after a request to stop
QUIET_S = 20.0  # a job without output for this time after its start may be reading data, or hanging
SILENT_S = 300.0  # the same after its first output
BUSY_FACTOR = 5.0  # silent trainers that use no CPU are reported that much earlier
IDLE_PERCENT = 5.0
HANG_S = 2.0  # processes that hang because of one another are reported within this time
WENT_ON_S = 3.0  # a process that made a step this long after the first one stopped is not the one waited for
_OF_A_HANG = frozenset((FailureKind.FROZEN, FailureKind.STALLED, FailureKind.HUNG))


class Watch:
    """The phases `pservers`, `trainers` and `run` of a job.

    Args:
        key: the job's secret.
        enter: called with the name of each phase.
    """

    def __init__(self, context: JobContext, loop: Loop, key: str, enter: Callable[[str], None]) -> None:
        self._plan = context.plan
        self._settings = context.settings
        self._roster = context.roster
        self._loop = loop
        self._starter = Starter(context, key)
        self._recovery = Recovery(context, loop, self._starter)
        self._enter = enter
        self._note = context.console.note
        self._paths = PathWatch(context)
        self._began = self._quiet_at = 0.0  # when a job without output is reported
        self._silent_s = SILENT_S
        self._is_reported = False

    def run(self) -> None:
        """Run the processes until all trainers are done.

        Raises:
            JobFailed: a part of the job failed, and the job cannot continue.
        """
        self._start_pservers()
        self._start_trainers()
        self._watch()

    def explain_silence(self, is_forced: Callable[[], bool]) -> None:
        """Print where each trainer is, if the user stops a job that was reported to be silent, and still is."""
        trainers = self._roster.trainers()
        if not self._is_reported or not silence(trainers, QUIET_S, time.monotonic(), self._began)[0]:
            return
        self._ask_for_stacks(ASKED_S, is_forced)
        found: dict[str, list[str]] = {}
        for record in trainers:
            where = place(record.stacks, self._plan.job_id)
            if record.state is ProcessState.EXITED:
                where = "has exited"
            found.setdefault(where or "unknown", []).append(record.process.name)
        lines = [f"  {some(names, PORTS_NAMED)}: {where}" for where, names in found.items()]
        self._note("\n".join(["where the trainers were:", *lines[:MOST_REPORTED]]))

    def _start_pservers(self) -> None:
        if not self._plan.pserver_nodes:
            return
        self._enter("pservers")
        timeout_s = self._settings.limits.ready_timeout_s
        if self._plan.mode is Mode.FLUID:  # other pservers choose their ports themselves
            from paddle_cluster.job.port_reservation import reserve

            self._starter.use_port(reserve(self._plan, self._roster, self._loop, timeout_s))
        records = self._starter.start(self._starter.pservers())
        self._loop.until(lambda: bool(self._roster.failures) or all(r.endpoints for r in records), timeout_s)
        if not self._roster.failures:
            for record in records:
                if record.endpoints is None:
                    what = f"did not answer on its ports within {timeout_s:g} s"
                    self._roster.fail_process(record, what, FailureKind.NOT_READY)
        if self._roster.failures:
            self._settle()
            raise JobFailed
        self._note(_ready([record.endpoints for record in records if record.endpoints is not None]))

    def _start_trainers(self) -> None:
        self._enter("trainers")
        records = self._starter.start(self._starter.trainers(self._plan))
        self._loop.until(
            lambda: bool(self._roster.failures) or all(r.state is not ProcessState.STARTING for r in records)
        )

    def _watch(self) -> None:
        self._enter("run")
        self._began = time.monotonic()
        self._quiet_at = self._began + QUIET_S
        while True:
            self._loop.until(lambda: self._check() or self._recovery.is_due() or self._is_done())
            if self._roster.failures:
                self._settle()
                self._recovery.absorb()
            elif self._recovery.is_due():
                self._recovery.start_due()
                self._quiet_at = time.monotonic() + QUIET_S
            else:
                return

    def _is_done(self) -> bool:
        return self._recovery.is_idle() and all(
            record.state is ProcessState.EXITED for record in self._roster.trainers()
        )

    def _check(self) -> bool:
        self._paths.check()
        if (now := time.monotonic()) >= self._quiet_at:
            trainers = self._roster.trainers()
            limit_s = self._silent_s / (BUSY_FACTOR if are_idle(trainers) else 1)
            said, since = silence(trainers, limit_s, now, self._began)
            if said:
                self._note(said)
                self._is_reported = True
                since, self._silent_s = now, 2 * self._silent_s
            self._quiet_at = max(since + self._silent_s / BUSY_FACTOR, now + AGAIN_S)
        return self._note_failures()

    def _note_failures(self) -> bool:
        """Mark processes that stay frozen as failed; return whether there are any."""
        now = time.monotonic()
        for record in self._roster.processes.values():
            stall = record.stall
            if stall is not None and now - stall.since >= self._settings.limits.lease_s:
                record.move(Stage.RUNNING)
                what = f"frozen: {stall.what}, and for {self._settings.limits.lease_s:g} s more"
                self._roster.fail_process(record, what, FailureKind.FROZEN, stacks=stall.stacks)
        return bool(self._roster.failures)

    def _settle(self) -> None:
        """Wait for failures that arrive together, so that the cause is reported and not a secondary failure.

        Every node is pinged; one that stays silent for ALARM_S is itself the likeliest cause. So is a process that was
        already frozen when others failed.
        """
        failures = self._roster.failures
        asked_at = time.monotonic()
        self._loop.ping()
        self._loop.until(lambda: False, SETTLE_S)
        if self._all_wait(failures):  # the others' timeouts expire within a moment too
            self._loop.until(lambda: not self._all_wait(failures), HANG_S)
        if not self._stalls():
            self._loop.until(lambda: any(not broken_line(failure) for failure in failures), ECHO_S)
        self._loop.until(lambda: all(r.contact.heard_at > asked_at for r in self._taking_part()), ALARM_S)
        for node in self._taking_part():
            if node.contact.heard_at <= asked_at:
                self._roster.fail_node(
                    node, f"no message for {time.monotonic() - node.contact.heard_at:.0f} s"
                )
        failures += self._stalls()
        failures += self._paths.failures()
        failures += left_early(failures, self._ended())
        if any(failure.kind in _OF_A_HANG for failure in failures):
            self._ask_for_stacks()
            self._find_awaited_process()

    def _ended(self) -> list[Failure]:
        """Return the ranks that exited with code 0 before the end of a collective job."""
        if self._settings.job.mode is not Mode.COLLECTIVE:
            return []
        what = "exited early with code 0 while other ranks were waiting for it"
        return [
            replace(
                self._roster.failure_of(record, what, FailureKind.LEFT, code=0, tail=record.last_lines),
                at=record.left_at,
            )
            for record in self._roster.trainers()
            if record.left_at
        ]

    def _find_awaited_process(self) -> None:
        """If all hanging trainers wait for peers, find the cause: a process without steps that waits for no peer."""
        failures = self._roster.failures
        if not self._all_wait(failures):
            return
        first = min(self._roster.processes[one.process].stepped_at for one in failures)
        reported = {one.process for one in failures}
        for record in self._roster.trainers():
            went_on = record.stepped_at > first + WENT_ON_S
            is_suspect = (
                record.state is ProcessState.RUNNING and record.process.name not in reported and not went_on
            )
            if is_suspect and not waits_for_peers(record.stacks):
                what = "hung: other trainers are waiting for it, but it is not waiting for any of them"
                self._roster.fail_process(record, what, FailureKind.HUNG, stacks=record.stacks)

    def _all_wait(self, failures: list[Failure]) -> bool:
        """Return whether all failed processes are trainers that wait for their peers."""
        return all(waits(one) and one.process in self._roster.processes for one in failures)

    def _taking_part(self) -> list[NodeRecord]:
        return [record for record in self._roster.live() if not record.traces.left_out]

    def _stalls(self) -> list[Failure]:
        return [
            self._roster.failure_of(
                record, f"frozen: {record.stall.what}", FailureKind.STALLED, stacks=record.stall.stacks
            )
            for record in self._roster.processes.values()
            if record.stall is not None
        ]

    def _ask_for_stacks(
        self, timeout_s: float = STACKS_S, is_forced: Callable[[], bool] = lambda: False
    ) -> None:
        """Request the stacks of every process and log them, to diagnose a deadlock."""
        asked: list[ProcessRecord] = []
        for record in self._roster.processes.values():
            if record.state is ProcessState.RUNNING and not record.stacks:
                self._roster.nodes[record.process.node_id].send("stacks", procs=[record.process.name])
                asked.append(record)
        self._loop.until(
            lambda: is_forced() or all(one.stacks or one.state is ProcessState.EXITED for one in asked),
            timeout_s,
        )


def _ready(endpoints: Sequence[Endpoints]) -> str:
    """Format a line such as "3 pservers ready at :7164", which lists each distinct first port once."""
    ports = sorted(
        {int(each.rpartition(":")[2]) for one in endpoints for each in (one.dense or one.sparse)[:1]}
    )
    named = ", ".join(f":{port}" for port in ports[:PORTS_NAMED])
    more = f" and {counted(len(ports) - PORTS_NAMED, 'other port')}" if len(ports) > PORTS_NAMED else ""
    return f"{counted(len(endpoints), 'pserver')} ready at {named}{more}"


def are_idle(trainers: Sequence[ProcessRecord]) -> bool:
    """Return whether all running trainers use hardly any CPU, as processes that wait for one another do."""
    usages = [each.facts.usage for each in trainers if each.state is ProcessState.RUNNING]
    return all(each is not None and each.cpu_percent < IDLE_PERCENT for each in usages)


def silence(trainers: Sequence[ProcessRecord], limit_s: float, now: float, began: float) -> tuple[str, float]:
    """Return a notice if no trainer has written a line or reported a step for this time, or ever, and the last time."""
    last = max((max(record.wrote_at, record.stepped_at) for record in trainers), default=0.0)
    if last and now - last < limit_s:
        return "", last
    return (
        f"no trainer has written a line or completed a step in {now - (last or began):.0f} s: they may be "
        f"reading data, waiting for one another, or hung. `{PROGRAM} dashboard` shows their stacks; Ctrl+C "
        "stops the job and prints where each one is"
    ), last


WAIT_S = 5.0  # without a step
AGAIN_S = 4.0
A_SECOND = 50.0  # nodes queried per second in a large job
MOST_PEERS = 32
MOST_REPORTED = 8
_REFUSED = os.strerror(errno.ECONNREFUSED)


class PathWatch:
    """The monitoring of the network paths between the nodes of a running job, to report broken ones.

    A node probes its peers' listeners while one of its trainers reports no step. A refused connection counts as an
    answer. A broken path is reported only after a later message from its other end, so that a lost node is not reported
    as a broken path.
    """

    def __init__(self, context: JobContext) -> None:
        self._plan = context.plan
        self._roster = context.roster
        self._console = context.console
        self._asked_at = time.monotonic()
        self._pending: dict[int, tuple[Route, ...] | None] = {}  # node -> its previous answer
        self._broken: dict[tuple[int, int], Route] = {}
        self._untold: dict[tuple[int, int], float] = {}  # -> time of the probe

    def check(self) -> None:
        """Process the answers that arrived, and probe again when due. Must be called regularly."""
        for node_id, before in list(self._pending.items()):
            routes = self._roster.nodes[node_id].reports.routes
            if routes is not None and routes is not before:
                del self._pending[node_id]
                self._judge(self._roster.nodes[node_id], routes)
        for between, tried_at in list(self._untold.items()):
            if self._roster.nodes[between[1]].contact.heard_at > tried_at:
                del self._untold[between]
                self._report(between)
        now = time.monotonic()
        if now - self._asked_at < max(AGAIN_S, len(self._roster.nodes) / A_SECOND):
            return
        waiting = {
            one.process.node_id
            for one in self._roster.trainers()
            if one.state is ProcessState.RUNNING and one.stepped_at <= now - WAIT_S
        } | {node_id for node_id, _ in self._broken}
        if not waiting:
            return
        self._asked_at = now
        servers = set(self._plan.pserver_nodes)
        for_trainers, for_servers, for_both = map(
            sorted, (servers or self._plan.trainer_nodes, waiting, servers | waiting)
        )
        # both directions: full-size packets may be lost in only one of them
        for node_id in waiting | servers:
            is_both = node_id in servers and node_id in waiting
            self._ask(node_id, for_both if is_both else for_servers if node_id in servers else for_trainers)

    def failures(self) -> list[Failure]:
        """Return a failure for each network path that is currently broken, between nodes that answer the launcher."""
        return [
            Failure(
                FailureKind.CUT_OFF,
                self._roster.nodes[node_id].name,
                "",
                f"it cannot reach {self._roster.nodes[peer].name} at {route.address}: {route.text}",
                node_id=node_id,
                at=time.time(),
                addresses=frozenset({route.address}),
            )
            for (node_id, peer), route in self._broken.items()
            if not self._roster.nodes[peer].contact.is_silent
        ]

    def _ask(self, node_id: int, ring: list[int]) -> None:
        """Have a node probe the next nodes in a ring."""
        record, at, asked = self._roster.nodes[node_id], bisect.bisect(ring, node_id), []
        for peer in (ring[at:] + ring[:at])[:MOST_PEERS]:
            answer = self._roster.nodes[peer].reports.answer
            port = answer.listen_ports.get(answer.address, 0) if answer is not None else 0
            if answer is not None and port and peer != node_id:
                asked.append([peer, answer.address, port])
        if asked:
            self._pending[node_id] = record.reports.routes
            record.send("reach", peers=asked)

    def _judge(self, record: NodeRecord, routes: tuple[Route, ...]) -> None:
        for route in routes:
            between = (record.node.node_id, route.peer)
            if route.peer not in self._roster.nodes:
                continue
            peer = self._roster.nodes[route.peer].name
            if route.ok or route.text == _REFUSED:
                untold = self._untold.pop(between, None)
                if self._broken.pop(between, None) is not None and untold is None:
                    self._console.note(f"{record.name} reaches {peer} again")
            elif between not in self._broken:
                self._broken[between] = route
                if len(self._broken) <= MOST_REPORTED:
                    self._untold[between] = self._asked_at

    def _report(self, between: tuple[int, int]) -> None:
        route, name = self._broken[between], self._roster.nodes[between[0]].name
        peer = self._roster.nodes[between[1]].name
        self._console.note(
            f"{name} cannot reach {peer} at {route.address}: {route.text}; trainers are waiting"
        )
