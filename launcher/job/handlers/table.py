# SPDX-License-Identifier: Apache-2.0
"""What the job does when something happens: the one table of handlers.

Each family of events has a module of its own beside this one: nodes, dispatch, processes, files, stop. A handler runs
on the loop's thread, is small and never waits. What ends a phase at once is raised; what has to be weighed first goes
to the roster's failures.
"""

from __future__ import annotations

from launcher.connection.link import LinkLost
from launcher.files.collector_thread import Stored
from launcher.job.context import Situation
from launcher.job.handlers.dispatch import DispatchReactions
from launcher.job.handlers.files import FileReactions
from launcher.job.handlers.nodes import NodeReactions
from launcher.job.handlers.processes import ProcessReactions
from launcher.job.handlers.stalls import StallReactions
from launcher.job.handlers.stop import StopReactions
from launcher.nodes.loop import Handlers
from launcher.ssh.connector import Connected, ConnectFailed
from launcher.system.signals import SignalEvent


def handlers(
    situation: Situation, nodes: NodeReactions, dispatch: DispatchReactions, processes: ProcessReactions
) -> Handlers:
    """Which method handles what."""
    files = FileReactions(situation)
    stop = StopReactions(situation)
    stalls = StallReactions(situation)
    return Handlers(
        events={
            Connected: nodes.connected,
            ConnectFailed: nodes.connect_failed,
            LinkLost: nodes.link_lost,
            Stored: files.stored,
            SignalEvent: stop.signal,
        },
        messages={
            "hello": nodes.hello,
            "probed": nodes.probed,
            "reached": nodes.reached,
            "pong": files.pong,
            "lacking": dispatch.answered,
            "committed": dispatch.answered,
            "relaying": dispatch.relaying,
            "failed": processes.failed,
            "started": processes.started,
            "ready": processes.ready,
            "progress": processes.progress,
            "pushes": processes.pushes,
            "exited": processes.exited,
            "stalled": stalls.stalled,
            "recovered": stalls.recovered,
            "stacks": stalls.stacks,
            "line": files.line,
            "file": files.file,
            "moved": files.moved,
            "notice": files.notice,
            "stopped": stop.stopped,
            "goodbye": stop.goodbye,
        },
        silence=nodes.silent,
        back=nodes.back,
        lease=nodes.lease_over,
    )
