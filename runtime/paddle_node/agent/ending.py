# SPDX-License-Identifier: Apache-2.0
"""Ends one job on this node instead of its agent: for another process than its launcher, or for a launcher that has
logged in again.

The job's own agent gets TERM and stops the job. Then the remaining processes that certainly belong to the job are
stopped. No other process is signalled.
"""

from __future__ import annotations

import signal
import time
from typing import Callable, Dict, List

from paddle_node.agent import registry
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.processes import leftovers
from paddle_node.agent.processes.stopper import Scope, Stop
from paddle_node.agent.registry import Known
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import Found

AGENT_S = 12.0  # for an agent to stop its job and exit
LOOK_S = 0.1
UNSEEN = (
    "its agent was killed and the job had no control group: processes that cleared their environment and left the "
    "job's directory may still run and cannot be identified"
)
DOUBTFUL = "pid %d (%s) is in the job's directory; it may belong to the job or to you, so it was not stopped"


class End:
    """Ends one job on this node.

    Args:
        marks: environment variables that mark the job's processes, such as the job's id.
        agent_s: time for the job's agent to exit, beyond the grace.
        done: called once with a sentence a record, with the processes that are left, and with a sentence on what may be
            left, or nothing.
    """

    def __init__(
        self,
        loop: Loop,
        root_dir: str,
        marks: Dict[str, str],
        grace_s: float,
        done: Callable[[List[str], List[Found], str], None],
        agent_s: float = AGENT_S,
    ) -> None:
        self._loop = loop
        self._marks = marks
        self._grace_s = grace_s
        self._done = done
        self._told: List[str] = []
        self._deadline = time.monotonic() + agent_s + grace_s
        records = registry.before_us(root_dir, marks)
        self._traces = [known.traces for known in records]
        self._unsure = any(
            known.agent is None and known.record.ended is None and not known.record.group for known in records
        )
        self._asked = [known for known in records if self._ask(known)]
        if not records:
            self._told.append("no record of the job on this node")
        self._wait()

    def _ask(self, known: Known) -> bool:
        """Ask the agent to stop the job; return False if no agent is running."""
        if known.agent is None:
            self._told.append("its agent has exited")
            return False
        try:
            process_tree.send(known.agent, signal.SIGTERM)
            for one in leftovers.agents(known.traces):
                process_tree.send(one, signal.SIGCONT)  # a stopped agent handles TERM once it goes on
        except PermissionError:
            self._told.append("its agent (pid %d) belongs to another user" % known.agent.pid)
            return False
        return True

    def _wait(self) -> None:
        alive = [one for known in self._asked for one in leftovers.agents(known.traces)]
        if alive and time.monotonic() < self._deadline:
            self._loop.after(LOOK_S, self._wait)
            return
        self._told += ["its agent (pid %d) did not exit" % one.pid for one in alive]
        if self._asked and not alive:
            self._told.append("its agent stopped it")
        Stop(self._loop, Scope(self._marks, set, more=self._find), self._grace_s, self._stopped)

    def _find(self) -> List[Found]:
        """Return unmarked processes: the agents' own, and processes that the agents left."""
        found = {
            one.pid: one for of in self._traces for one in leftovers.search(of)[0] + leftovers.agents(of)
        }
        return list(found.values())

    def _stopped(self, left: List[Found], killed: int) -> None:
        if killed:
            self._told.append("%d processes were killed" % killed)
        doubtful = {one.pid for of in self._traces for one in leftovers.search(of)[1]} - {
            one.pid for one in left
        }
        sentences = [DOUBTFUL % (pid, proc.command(pid)) for pid in sorted(doubtful)]
        self._done(self._told, left, "; ".join(sentences + [UNSEEN] * self._unsure))
