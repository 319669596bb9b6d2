# SPDX-License-Identifier: Apache-2.0
"""Handles the start, readiness, progress, stalls and end of processes, and failures to start them."""

from __future__ import annotations

import time
from typing import Any

from paddle_cluster.config.options import Mode
from paddle_cluster.errors import ConnectError, DispatchError
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.handlers.files import DispatchHandlers
from paddle_cluster.job.remarks import Remarks
from paddle_cluster.nodes.failure import FailureKind, describe_exit
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import ProcessRecord, ProcessState, Stage
from paddle_cluster.plan.environment import Endpoints
from paddle_cluster.plan.plan import Role
from paddle_cluster.text.output_events import NO_PERCENT, Plotted, Progressed, Used
from paddle_cluster.text.wrapping import end_of, visible
from paddle_node.contract.classes import regex
from paddle_node.contract.facts import (
    MAX_TITLE,
    Life,
    NodeUsage,
    Points,
    ProcessUsage,
    Progress,
    Pushes,
    Queue,
    Ready,
)
from paddle_node.contract.records import RecordError
from paddle_node.contract.to_launcher import Exited, Failed, Recovered, Reported, Stacks, Stalled, Started

_ENDPOINT = regex(r"[A-Za-z0-9_.:%\[\]-]{1,300}:[0-9]{1,5}")
_TAIL_LINES = 121  # as sent by an agent: 120 complete ones and an incomplete one
_TOO_EARLY = (
    "exited with code 0 and never answered as a pserver; expected "
    "exe.run(t.get_pserver_program(...)) where TRAINING_ROLE is PSERVER"
)
_STACK_LINES = 5000
NO_STEP = "no step"


class ProcessHandlers:
    """Handles events in the lifecycle of the job's processes."""

    def __init__(self, context: JobContext, dispatch: DispatchHandlers) -> None:
        self._context = context
        self._roster = context.roster
        self._dispatch = dispatch

    def failed(self, record: NodeRecord, failed: Failed) -> None:
        """Handle a failed request for a tree, a process or the node."""
        if failed.tree:
            self._dispatch.answered(record, failed)
            return
        request, what = failed.request, failed.detail
        if failed.proc is not None:
            process = self._roster.process(record, failed.proc)
            if process is not None:
                process.move(Stage.EXITED)
                self._roster.fail_process(process, f"could not be started: {what}", FailureKind.NOT_STARTED)
                return
        in_dispatch = self._context.clock.current == "dispatch"
        if record.reports.answer is None:
            record.drop(ConnectError(record.name, f"refused {request}: {what}"))
        elif self._context.stopping or (in_dispatch and not request):  # a reconnection is possible
            self._context.console.note(f"{record.name}: {what}")
        elif in_dispatch:
            self._dispatch.give_up(record, DispatchError(record.name, f"refused {request}: {what}"))
        elif not request:  # it stops its part of the job; the consequences are not causes
            self._roster.fail_node(record, what)
        else:
            self._roster.fail_node(record, f"refused {request}: {what}", FailureKind.REFUSED)

    def started(self, record: NodeRecord, started: Started) -> None:
        """Record that a process has started."""
        process = self._roster.process(record, started.proc)
        if process is not None:  # otherwise a messenger, or a process without which the job continues
            process.move(Stage.RUNNING)
            process.learn(life=Life(started.pid, time.time()), unsaved=None)
            self._context.node_state(record, "running")

    def reported(self, record: NodeRecord, reported: Reported) -> None:
        """Record a fact that a process reported; ignore pserver facts from processes of other roles."""
        context = self._context
        name = self._roster.known(record, reported.proc)
        process = self._roster.process(record, name)
        report = self._known_trainers(reported.report)
        if isinstance(report, Points):
            points = [(visible(title)[:MAX_TITLE], step, value) for title, step, value in report.points]
            for title, step, value in points:
                context.console.show(Plotted(record.node.node_id, name, title, step, value))
            if process is not None:
                process.note_points({title: value for title, _, value in points})
            return
        if isinstance(report, Progress):
            context.clock.note_first_step()
            context.console.show(Progressed(record.node.node_id, name, report))
            if process is not None:
                process.step(report)
        elif isinstance(report, Ready):
            endpoints = Endpoints(*(tuple(map(_endpoint, some)) for some in report))
            if process is not None:  # otherwise the job continues without it
                process.answer_at(endpoints)
        elif process is not None and process.process.role is Role.PSERVER:
            process.learn(**{reported.kind: report})

    def _known_trainers(self, report: Any) -> Any:
        """Return a report without trainers that the job does not have."""
        limit = len(self._context.plan.trainer_nodes)
        if isinstance(report, Pushes):
            return Pushes(tuple(count for count in report.trainers if count[0] < limit))
        if isinstance(report, Queue):
            missing = tuple(trainer for trainer in report.missing if trainer < limit)
            return report._replace(missing=missing, lags=tuple(lag for lag in report.lags if lag[0] < limit))
        return report

    def usage(self, record: NodeRecord, node: NodeUsage) -> None:
        """Record the measurements of a node and its processes; processes of other jobs are ignored."""
        here = tuple(one for one in node.processes if self._runs_there(record, one[0]))
        usage = node._replace(
            gpus=tuple((NO_PERCENT if one[0] is None else one[0], *one[1:]) for one in node.gpus),
            processes=here,
        )
        record.use(usage)
        for name, percent, size in here:
            self._roster.processes[name].learn(usage=ProcessUsage(percent, size))
        self._context.console.show(Used(record.node.node_id, usage))

    def _runs_there(self, record: NodeRecord, name: str) -> bool:
        process = self._roster.processes.get(name)
        return (
            process is not None
            and process.process.node_id == record.node.node_id
            and process.state is ProcessState.RUNNING
        )

    def exited(self, record: NodeRecord, exited: Exited) -> None:
        """Handle the exit of a process: an expected one ends it, any other is a failure.

        Only trainers and Fluid servers are allowed to exit on their own, with code 0.
        """
        process = self._roster.process(record, exited.proc)
        code, signal = exited.code, exited.signal
        how = describe_exit(code, signal, exited.out_of_memory)
        errand = self._roster.messengers.pop(exited.proc, None)
        if errand is not None:
            if code != 0 and not self._context.stopping:
                self._roster.fail_node(record, f"{errand}: {how}", FailureKind.REFUSED)
            return
        if process is None:  # the job continues without it
            return
        is_wanted = process.stage is Stage.ENDING
        process.live(code=code, signal=signal)
        if not process.move(Stage.EXITED) or is_wanted:
            return
        is_trainer = process.process.role is Role.TRAINER
        tail = end_of(exited.tail, _TAIL_LINES)
        if is_trainer and code == 0:
            process.leave(tail)
            # in collective mode, if one is restarted, all are
            if self._context.settings.job.mode is not Mode.COLLECTIVE:
                process.move(Stage.DONE)
            return
        if self._is_fluid_pserver(process) and code == 0:
            if process.endpoints is not None:  # it ends after all trainers have disconnected
                process.move(Stage.DONE)
                return
            how = _TOO_EARLY
        self._roster.fail_process(
            process,
            how,
            FailureKind.EXIT,
            tail=tail,
            code=code,
            signal=signal,
            late=self._context.stopping,
        )

    def _is_fluid_pserver(self, record: ProcessRecord) -> bool:
        return self._context.settings.job.mode is Mode.FLUID and record.process.role is Role.PSERVER


def _endpoint(text: str) -> str:
    if _ENDPOINT.fullmatch(text) is None:
        raise RecordError(f"ready.endpoints: expected address:port, got {text!r:.80}")
    return text


class StallHandlers:
    """Handles events about frozen and hung processes."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._roster = context.roster
        self._remarks = Remarks(context.console, context.settings.limits.lease_s)

    def stalled(self, record: NodeRecord, stalled: Stalled) -> None:
        """Report a stall: a trainer that makes no steps has failed; a frozen process fails unless it recovers."""
        process = self._roster.process(record, stalled.proc)
        what, stacks = stalled.what, _limited(stalled.stacks)
        if process is None or process.stage is Stage.ENDING or self._context.stopping:
            return
        process.note_stacks(stacks)
        name = self._roster.failure_of(process, what, FailureKind.STALLED).name()
        if stalled.cause == NO_STEP:
            self._roster.fail_process(process, f"hung: {what}", FailureKind.HUNG, stacks=stacks)
            return
        process.freeze(what)
        lease_s = self._context.settings.limits.lease_s
        self._remarks.show(record, f"{name} is frozen: {what}; it will be considered failed in {lease_s:g} s")
        self._context.node_state(record, "frozen")

    def recovered(self, record: NodeRecord, recovered: Recovered) -> None:
        """Report that a frozen process makes progress again."""
        process = self._roster.process(record, recovered.proc)
        if process is None or process.stall is None:
            return
        process.move(Stage.RUNNING)
        name = self._roster.failure_of(process, "", FailureKind.STALLED).name()
        self._remarks.show(record, f"{name} continues")
        self._context.node_state(record, "running")

    def stacks(self, record: NodeRecord, answer: Stacks) -> None:
        """Record the stack traces of a process, which were requested; its log contains them too."""
        process = self._roster.process(record, answer.proc)
        if process is not None:
            process.note_stacks(_limited(answer.stacks))


def _limited(stacks: str) -> str:
    return "\n".join(end_of(stacks, _STACK_LINES))
