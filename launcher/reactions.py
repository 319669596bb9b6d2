# SPDX-License-Identifier: Apache-2.0
"""What the job does when something happens: one method an event, each small, none of them waits.

Runs on the loop's thread. What ends a phase at once is raised; what has to be weighed first goes to the roster's
failures.
"""

from __future__ import annotations

import queue
import time
from typing import Any

from launcher import preflight
from launcher.cargo import Cargo
from launcher.collect import Collector
from launcher.console import Console
from launcher.dispatch import DispatchState
from launcher.engines.ssh import Connected, ConnectFailed, SshEngine
from launcher.errors import ConnectError, DispatchError
from launcher.failure import describe_exit
from launcher.link import Link, LinkLost, MessageEvent
from launcher.loop import ALARM_S, Handlers
from launcher.phases import PhaseClock
from launcher.plan import Endpoints, Plan, Role
from launcher.roster import NodeRecord, ProcessState, Roster
from launcher.signals import SignalEvent


class Stopped(Exception):
    """The user asked the job to stop."""

    def __init__(self, event: SignalEvent) -> None:
        super().__init__(event.name)
        self.event = event


class Reactions:
    """Handlers of one job's events.

    Attributes:
        stopping: the job is being stopped: processes end because we end them.
        asked_again: a request to stop that came while everything is being stopped, or None.
    """

    def __init__(
        self,
        plan: Plan,
        cargo: Cargo,
        roster: Roster,
        engine: SshEngine,
        events: queue.SimpleQueue[Any],
        collector: Collector,
        console: Console,
        clock: PhaseClock,
    ) -> None:
        self.stopping = False
        self.asked_again: SignalEvent | None = None
        self._plan = plan
        self._settings = plan.settings
        self._cargo = cargo
        self._roster = roster
        self._engine = engine
        self._events = events
        self._collector = collector
        self._console = console
        self._clock = clock

    @property
    def forced(self) -> bool:
        """Whether the user no longer wants to wait."""
        return self.asked_again is not None

    def handlers(self) -> Handlers:
        """Which method handles what."""
        return Handlers(
            events={
                Connected: self._on_connected,
                ConnectFailed: self._on_connect_failed,
                LinkLost: self._on_link_lost,
                SignalEvent: self._on_signal,
            },
            messages={
                "hello": self._on_hello,
                "probed": self._on_probed,
                "reached": self._on_reached,
                "lacking": self._on_dispatch,
                "committed": self._on_dispatch,
                "failed": self._on_failed,
                "started": self._on_started,
                "ready": self._on_ready,
                "progress": self._on_progress,
                "line": self._on_line,
                "exited": self._on_exited,
                "file": self._on_file,
                "stopped": self._on_stopped,
                "notice": self._on_notice,
                "goodbye": self._on_goodbye,
            },
            silence=self._on_silence,
            back=self._on_return,
            lease=self._on_lease,
        )

    def connect(self, record: NodeRecord) -> None:
        """Begin to connect to a node."""
        record.error = None
        record.attempts += 1
        record.connecting_since = time.monotonic()
        self._engine.connect(record.node)
        self._console.node_state(record.node.node_id, "connecting")

    def offer(self, record: NodeRecord) -> None:
        """Begin, or begin again, to bring the cargo to a node."""
        assert record.link is not None
        record.trees.clear()
        record.dispatches = self._cargo.offer(record.node, record.link)
        self._console.node_state(record.node.node_id, "dispatch")

    def _on_signal(self, event: SignalEvent) -> None:
        if not self.stopping:
            raise Stopped(event)
        self.asked_again = self.asked_again or event
        for record in self._roster.live():
            record.send("stop", procs=None, grace_s=0.0)

    def _on_connected(self, event: Connected) -> None:
        record = self._roster.nodes[event.node_id]
        record.link = Link(event.node_id, record.name, event.stream, self._events)
        record.heard_at = time.monotonic()
        record.send(
            "hello",
            job_id=self._plan.job_id,
            node_id=record.node.node_id,
            lease_s=self._settings.lease_s,
            root_dir=record.node.root_dir,
            python=record.node.python,
        )
        if self.stopping:
            record.send("stop", procs=None, grace_s=0.0 if self.forced else self._settings.stop_grace_s)
        elif record.probed is None:
            record.send("probe", **self._probe_of(record))

    def _probe_of(self, record: NodeRecord) -> dict[str, Any]:
        is_pserver = record.node.node_id in self._plan.pserver_nodes
        return {
            "nic": self._settings.nic or None,
            "address": record.node.local_address,
            "ports": list(self._plan.pserver_ports()) if is_pserver else [],
            "modules": list(preflight.needed_modules(self._plan.mode)),
            "need_bytes": self._cargo.bytes_for(record.node),
            "workspace": record.node.job_dir if self._settings.workspace is not None else None,
        }

    def _on_connect_failed(self, event: ConnectFailed) -> None:
        record = self._roster.nodes[event.node_id]
        record.error = event.error
        self._console.node_state(event.node_id, "failed")
        if self._clock.current == "dispatch":
            raise DispatchError(record.name, f"the connection broke, and a second one failed: {event.error}")

    def _on_link_lost(self, event: LinkLost) -> None:
        record = self._roster.nodes[event.node_id]
        if record.link is None:
            return
        record.drop(ConnectError(record.name, event.reason))
        if self.stopping:
            return
        self._console.node_state(event.node_id, "lost")
        if self._clock.current == "dispatch" and record.attempts == 1:
            self._console.note(f"{record.name}: the connection broke ({event.reason}); connecting once more")
            self.connect(record)
        elif self._clock.current == "dispatch":
            raise DispatchError(record.name, f"the connection broke twice: {event.reason}")
        elif record.trees:
            self._roster.fail_node(record, f"lost: {event.reason}")

    def _on_hello(self, record: NodeRecord, event: MessageEvent) -> None:
        record.login_s = time.monotonic() - record.connecting_since
        record.hostname = str(event.fields.get("hostname") or "")
        record.clock_offset_s = float(event.fields.get("clock") or time.time()) - time.time()
        if not self.stopping and record.probed is not None:
            self.offer(record)

    def _on_probed(self, record: NodeRecord, event: MessageEvent) -> None:
        record.probed = event.fields

    def _on_reached(self, record: NodeRecord, event: MessageEvent) -> None:
        record.reached = tuple(
            (int(node_id), bool(ok), str(text)) for node_id, ok, text in event.fields["results"]
        )

    def _on_dispatch(self, record: NodeRecord, event: MessageEvent) -> None:
        dispatch = record.dispatches[event.fields["tree"]]
        dispatch.handle(event)
        if dispatch.error is not None and not self.stopping:
            raise dispatch.error
        if dispatch.state is DispatchState.DONE:
            record.trees[dispatch.tree] = dispatch.path

    def _on_failed(self, record: NodeRecord, event: MessageEvent) -> None:
        fields = event.fields
        if fields.get("tree"):
            self._on_dispatch(record, event)
            return
        process = self._roster.processes.get(str(fields.get("proc")))
        if process is not None:
            process.state = ProcessState.EXITED
            self._roster.fail_process(process, f"could not be started: {fields['detail']}")
        elif record.probed is None:
            record.drop(ConnectError(record.name, f"refused {fields['request']}: {fields['detail']}"))
        else:
            self._roster.fail_node(record, f"refused {fields['request']}: {fields['detail']}")

    def _on_started(self, record: NodeRecord, event: MessageEvent) -> None:
        self._roster.processes[event.fields["proc"]].state = ProcessState.RUNNING
        self._console.node_state(record.node.node_id, "running")

    def _on_ready(self, record: NodeRecord, event: MessageEvent) -> None:
        process = self._roster.processes[event.fields["proc"]]
        process.endpoints = Endpoints(
            tuple(event.fields["endpoints"]), tuple(event.fields["sparse_endpoints"])
        )

    def _on_progress(self, record: NodeRecord, event: MessageEvent) -> None:
        fields = event.fields
        self._clock.note_first_step()
        self._console.progress(
            record.node.node_id,
            fields["pass_id"],
            fields["batch_id"],
            fields["cost"],
            fields["samples_per_s"],
        )

    def _on_line(self, record: NodeRecord, event: MessageEvent) -> None:
        self._console.process_line(event.fields["proc"], record.name, event.body)

    def _on_exited(self, record: NodeRecord, event: MessageEvent) -> None:
        fields = event.fields
        process = self._roster.processes[fields["proc"]]
        process.state = ProcessState.EXITED
        is_trainer = process.process.role is Role.TRAINER
        if self.stopping or (is_trainer and fields["code"] == 0):
            return
        self._roster.fail_process(
            process, describe_exit(fields["code"], fields["signal"]), tuple(fields["tail"].splitlines())
        )

    def _on_file(self, record: NodeRecord, event: MessageEvent) -> None:
        fields = event.fields
        problem = self._collector.store(
            record.node.node_id,
            fields["path"],
            fields["offset"],
            fields["reset"],
            event.body,
            fields.get("eof", True),
        )
        if problem:
            self._console.note(problem)
        record.filed_at = time.monotonic()
        record.send("ack", bytes=len(event.body))

    def _on_stopped(self, record: NodeRecord, event: MessageEvent) -> None:
        record.stopped = True
        record.left = tuple((int(pid), str(command)) for pid, command in event.fields["left"])
        self._console.node_state(record.node.node_id, "stopped")

    def _on_notice(self, record: NodeRecord, event: MessageEvent) -> None:
        self._console.note(f"{record.name}: {event.fields['text']}")

    def _on_goodbye(self, record: NodeRecord, event: MessageEvent) -> None:
        record.complete = not event.fields.get("rest") and not record.cut_off
        record.drop(None)

    def _on_silence(self, record: NodeRecord) -> None:
        self._console.note(
            f"{record.name}: no word for {ALARM_S:.0f} s; lost after {self._settings.lease_s:g} s"
        )
        self._console.node_state(record.node.node_id, "silent")

    def _on_return(self, record: NodeRecord) -> None:
        self._console.note(f"{record.name}: is back")
        self._console.node_state(record.node.node_id, "running")

    def _on_lease(self, record: NodeRecord) -> None:
        reason = f"no word for {self._settings.lease_s:g} s"
        if not record.login_s:
            reason += (
                " after the login: no node agent started; see what ~/.bashrc does there without a terminal"
            )
        record.drop(ConnectError(record.name, reason))
        if self._clock.current == "dispatch":
            raise DispatchError(record.name, reason)
        if not self.stopping:
            self._roster.fail_node(record, reason)
