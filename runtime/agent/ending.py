# SPDX-License-Identifier: Apache-2.0
"""Ends one job on this node for somebody who is not its launcher.

The job's own agent is told to stop, and it stops its job by itself; then whatever still carries the job's id in its
environment is stopped. Nothing else is ever signalled.
"""

from __future__ import annotations

import signal
import time
from typing import Callable, List, Optional

from agent import registry
from agent.link.loop import Loop
from agent.processes import process_tree
from agent.processes.process_tree import Found
from agent.processes.stopper import Scope, Stop

AGENT_S = 12.0  # what an agent may take to stop its job and leave
LOOK_S = 0.1
UNSEEN = (
    "its agent was killed there, and no control group could be made for its processes: "
    "what cleared its environment may be left, and cannot be told from others"
)


class End:
    """One ending under way.

    Args:
        done: called once with a sentence a record, with the processes that are left, and with a sentence on what may be
            left unseen, or nothing.
    """

    def __init__(
        self,
        loop: Loop,
        root_dir: str,
        job_id: str,
        grace_s: float,
        done: Callable[[List[str], List[Found], str], None],
    ) -> None:
        self._loop = loop
        self._job_id = job_id
        self._grace_s = grace_s
        self._done = done
        self._told: List[str] = []
        self._agents: List[Found] = []
        self._deadline = time.monotonic() + AGENT_S + grace_s
        records = registry.known(root_dir, job_id)
        self._groups = [str(known.record.get("group") or "") for known in records]
        self._unsure = any(
            known.agent is None and known.record.get("ended") is None and not known.record.get("group")
            for known in records
        )
        for known in records:
            self._ask(known.agent)
        if not records:
            self._told.append("no record of the job here")
        self._wait()

    def _ask(self, agent: Optional[Found]) -> None:
        if agent is None:
            self._told.append("its agent is gone")
            return
        try:
            process_tree.send(agent, signal.SIGTERM)
            process_tree.send(agent, signal.SIGCONT)  # a stopped agent handles TERM once it goes on
        except PermissionError:
            self._told.append("its agent (pid %d) belongs to another user" % agent.pid)
            return
        self._agents.append(agent)

    def _wait(self) -> None:
        alive = [agent for agent in self._agents if _lives(agent)]
        if alive and time.monotonic() < self._deadline:
            self._loop.after(LOOK_S, self._wait)
            return
        self._told += ["its agent (pid %d) does not end" % agent.pid for agent in alive]
        gone = len(self._agents) - len(alive)
        if gone:
            self._told.append("its agent stopped it")
        scope = Scope({registry.JOB_MARK: self._job_id}, set, held=self._groups)
        Stop(self._loop, scope, self._grace_s, self._stopped)

    def _stopped(self, left: List[Found], killed: int) -> None:
        if killed:
            self._told.append("%d processes were killed" % killed)
        self._done(self._told, left, UNSEEN if self._unsure else "")


def _lives(agent: Found) -> bool:
    now = process_tree.look(agent.pid)
    return now is not None and now.start == agent.start and now.state not in ("Z", "X")
