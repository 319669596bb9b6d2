# SPDX-License-Identifier: Apache-2.0
"""What the job does when a process starts, is ready, gets on, ends, or cannot be started."""

from __future__ import annotations

from paddle_cluster.config.options import Mode
from paddle_cluster.connection.link import MessageEvent
from paddle_cluster.errors import ConnectError, DispatchError
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.handlers.dispatch import DispatchHandlers
from paddle_cluster.nodes.failure import FailureKind, describe_exit
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import ProcessRecord, ProcessState
from paddle_cluster.nodes.reports import (
    read_points,
    read_pushes,
    read_queue,
    read_ready,
    read_step,
    read_usage,
)
from paddle_cluster.plan.plan import Role
from paddle_cluster.text.fields import line, lines, whole_or_none
from paddle_cluster.text.output_events import Plotted, Used

_LAST_CODE = 255
_TAIL_LINES = 41  # as an agent sends: 40 whole ones and one that is open
_TOO_EARLY = (
    "ended with exit code 0 and never answered as a pserver; "
    "expected exe.run(t.get_pserver_program(...)) where TRAINING_ROLE is PSERVER"
)


class ProcessHandlers:
    """The life of the job's processes."""

    def __init__(self, context: JobContext, dispatch: DispatchHandlers) -> None:
        self._context = context
        self._roster = context.roster
        self._dispatch = dispatch

    def failed(self, record: NodeRecord, event: MessageEvent) -> None:
        """A request could not be carried out: of a tree, of a process, or of the node."""
        fields = event.fields
        if fields.get("tree"):
            self._dispatch.answered(record, event)
            return
        request, what = line(fields.get("request"), "request"), line(fields.get("detail"), "detail")
        if fields.get("proc") is not None:
            process = self._roster.process(record, fields["proc"])
            if process is not None:
                process.exit()
                self._roster.fail_process(process, f"could not be started: {what}", FailureKind.NOT_STARTED)
                return
        in_dispatch = self._context.clock.current == "dispatch"
        if record.said.answer is None:
            record.drop(ConnectError(record.name, f"refused {request}: {what}"))
        elif self._context.stopping or (in_dispatch and not request):  # it may be connected to once more
            self._context.console.note(f"{record.name}: {what}")
        elif in_dispatch:
            self._dispatch.give_up(record, DispatchError(record.name, f"refused {request}: {what}"))
        elif not request:  # it stops its part of the job; what follows from that is no cause
            self._roster.fail_node(record, what)
        else:
            self._roster.fail_node(record, f"refused {request}: {what}", FailureKind.REFUSED)

    def started(self, record: NodeRecord, event: MessageEvent) -> None:
        """The process is there."""
        process = self._roster.process(record, event.fields["proc"])
        if process is not None:  # else a messenger, or one that the job continues without
            process.start()
            self._context.node_state(record, "running")

    def ready(self, record: NodeRecord, event: MessageEvent) -> None:
        """A pserver answered on all its ports."""
        process = self._roster.process(record, event.fields["proc"])
        endpoints = read_ready(event.fields)
        if process is not None:  # else the job continues without it
            process.answer_at(endpoints)

    def progress(self, record: NodeRecord, event: MessageEvent) -> None:
        """A trainer made a step."""
        name = self._roster.known(record, event.fields["proc"])
        process = self._roster.process(record, name)
        step = read_step(event.fields)
        if process is not None:
            process.step(has_samples=step.samples_per_s != 0)
        self._context.clock.note_first_step()
        self._context.console.progress(record.node.node_id, *step, process=name)

    def points(self, record: NodeRecord, event: MessageEvent) -> None:
        """A script drew points of its curves."""
        name = self._roster.known(record, event.fields["proc"])
        for point in read_points(event.fields):
            self._context.console.show(Plotted(record.node.node_id, name, *point))

    def pushes(self, record: NodeRecord, event: MessageEvent) -> None:
        """A pserver in asynchronous training told what became of gradients; from others it means nothing."""
        process = self._roster.process(record, event.fields["proc"])
        pushes = read_pushes(event.fields, len(self._context.plan.trainer_nodes))
        if process is not None and process.process.role is Role.PSERVER:
            process.count_pushes(pushes)

    def queue(self, record: NodeRecord, event: MessageEvent) -> None:
        """A pserver told who waits for whom; from others it means nothing."""
        process = self._roster.process(record, event.fields["proc"])
        queue = read_queue(event.fields, len(self._context.plan.trainer_nodes))
        if process is not None and process.process.role is Role.PSERVER:
            process.note_queue(queue)

    def usage(self, record: NodeRecord, event: MessageEvent) -> None:
        """A node and its processes were seen to use something; what is not of this job is left out."""
        node, seen = read_usage(event.fields)
        record.use(node)
        here = {name: usage for name, usage in seen.items() if self._runs_there(record, name)}
        for name, usage in here.items():
            self._roster.processes[name].use(usage)
        processes = tuple((name, *usage) for name, usage in here.items())
        gpus = tuple(
            (-1.0 if gpu.percent is None else gpu.percent, gpu.memory_bytes, gpu.memory_total_bytes)
            for gpu in node.gpus
        )
        self._context.console.show(Used(record.node.node_id, *node[:-1], gpus, processes))

    def _runs_there(self, record: NodeRecord, name: str) -> bool:
        process = self._roster.processes.get(name)
        return (
            process is not None
            and process.process.node_id == record.node.node_id
            and process.state is ProcessState.RUNNING
        )

    def unsaved(self, record: NodeRecord, event: MessageEvent) -> None:
        """A pserver could not write its newest checkpoint, or has written it now; from others it means nothing."""
        process = self._roster.process(record, event.fields["proc"])
        what = line(event.fields.get("what"), "what")
        if process is not None and process.process.role is Role.PSERVER:
            process.note_unsaved(what)

    def exited(self, record: NodeRecord, event: MessageEvent) -> None:
        """The process is gone; only with 0 it may end by itself, a trainer or a Fluid script that served."""
        fields = event.fields
        process = self._roster.process(record, fields["proc"])
        code = whole_or_none(fields.get("code"), "code", most=_LAST_CODE)
        signal = whole_or_none(fields.get("signal"), "signal", most=_LAST_CODE)
        how = describe_exit(code, signal, line(fields.get("out_of_memory"), "out_of_memory", ""))
        errand = self._roster.messengers.pop(fields["proc"], None)
        if errand is not None:
            if code != 0 and not self._context.stopping:
                self._roster.fail_node(record, f"{errand}: {how}", FailureKind.REFUSED)
            return
        if process is None:  # the job continues without it
            return
        process.exit()
        is_trainer = process.process.role is Role.TRAINER
        if process.ending:
            return
        tail = lines(fields.get("tail"), "tail", _TAIL_LINES)
        if is_trainer and code == 0:
            process.leave(tail)
            # in collective mode all are started again together, if one is
            if self._context.settings.job.mode is not Mode.COLLECTIVE:
                process.finish()
            return
        if self._is_fluid_pserver(process) and code == 0:
            if process.endpoints is not None:  # it ends when all trainers have left it
                process.finish()
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
