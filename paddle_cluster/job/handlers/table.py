# SPDX-License-Identifier: Apache-2.0
"""The table of handlers for all events of a job.

Each family of events has its own module in this package: nodes, dispatch, processes, files, stop. A handler runs on
the loop's thread, is short and never waits. Failures that end a phase immediately are raised; those that must be judged
first are added to the roster's failures.
"""

from __future__ import annotations

from paddle_cluster.connection.link import LinkBroken, LinkLost
from paddle_cluster.files.collector_thread import Compared, FilesRefused, Stored
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.handlers.files import DispatchHandlers, FileHandlers
from paddle_cluster.job.handlers.nodes import NodeHandlers
from paddle_cluster.job.handlers.processes import ProcessHandlers, StallHandlers
from paddle_cluster.job.handlers.stop import StopHandlers
from paddle_cluster.nodes.connector import Connected, ConnectFailed, Reconnected, ReconnectFailed
from paddle_cluster.nodes.loop import Handlers
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.system.signals import SignalEvent, ThreadFailed
from paddle_node.contract.collected import COLLECTED
from paddle_node.contract.facts import REPORTS


def handlers(
    context: JobContext, nodes: NodeHandlers, dispatch: DispatchHandlers, processes: ProcessHandlers
) -> Handlers:
    """Return the table that assigns a method to each kind of event and message."""
    files = FileHandlers(context)
    stop = StopHandlers(context)
    stalls = StallHandlers(context)
    return Handlers(
        events={
            Connected: nodes.connected,
            ConnectFailed: nodes.connect_failed,
            LinkLost: nodes.link_lost,
            LinkBroken: nodes.reconnecting.link_broken,
            Reconnected: nodes.reconnecting.reconnected,
            ReconnectFailed: nodes.reconnecting.reconnect_failed,
            Stored: files.stored,
            Compared: files.compared,
            FilesRefused: files.refused,
            SignalEvent: stop.signal,
            ThreadFailed: stop.thread_failed,
        },
        messages={
            "hello": nodes.hello,
            "resident": nodes.resident,
            "probed": NodeRecord.probed,
            "reached": lambda record, reached: record.reports.reached(reached),
            "reserved": lambda record, reserved: record.reports.port_reserved(reserved),
            "verifying": lambda record, progress: record.reports.verifying(progress),
            "verified": lambda record, verified: record.reports.verified(verified),
            "pong": NodeRecord.pong,
            "lacking": dispatch.answered,
            "committed": dispatch.answered,
            "arrived": dispatch.arrived,
            "relaying": dispatch.relaying,
            "failed": processes.failed,
            "started": processes.started,
            **dict.fromkeys(REPORTS, processes.reported),
            "usage": processes.usage,
            "exited": processes.exited,
            "stalled": stalls.stalled,
            "recovered": stalls.recovered,
            "stacks": stalls.stacks,
            "notice": files.notice,
            "stopped": stop.stopped,
            "goodbye": stop.goodbye,
        },
        with_body={"line": files.line, **dict.fromkeys(COLLECTED, files.collected)},
        silence=nodes.silent,
        back=nodes.back,
        lease=nodes.lease_over,
        unread=lambda record, kind, error: (
            files.refuse(record, str(error)) if kind in COLLECTED else nodes.unread(record, kind, error)
        ),
        doubt=nodes.reconnecting.doubt,
    )
