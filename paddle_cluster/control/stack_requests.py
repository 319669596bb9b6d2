# SPDX-License-Identifier: Apache-2.0
"""Where processes are, asked from another terminal: requests to their nodes, and the answers.

The job asks for stacks, too, when something hangs, and judges by them. So an answer that somebody else asked for does
not reach it: it would be taken for that of a later moment. Each process writes its stacks to its log besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from paddle_cluster.connection.link import MessageEvent
from paddle_cluster.nodes.loop import Handlers
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import ProcessState
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.text.fields import lines

ANSWER_S = 10.0  # an agent takes two seconds at most; what comes later is the job's again
LINES = 2000


class StackRequests:
    """Requests of those who look at one job; the loop's thread alone uses it.

    Args:
        tell: takes the name of a process and its stacks, or why there are none.
    """

    def __init__(self, roster: Roster, tell: Callable[[str, str], None]) -> None:
        self._roster = roster
        self._tell = tell
        self._asked: dict[str, float] = {}

    def ask(self, names: Sequence[str]) -> None:
        """Ask processes where they are; each is answered once, if its node answers."""
        for name in names:
            record = self._roster.processes.get(name)
            if record is None or record.state is not ProcessState.RUNNING:
                self._tell(name, f"(it is {record.state.value})" if record else "(there is no such process)")
                continue
            self._asked[name] = time.monotonic()
            self._roster.nodes[record.process.node_id].send("stacks", procs=[name])

    def before(self, handlers: Handlers) -> Handlers:
        """The same handlers; answers that were asked for here do not reach them."""
        handle = handlers.messages["stacks"]

        def take(record: NodeRecord, event: MessageEvent) -> None:
            name = self._roster.known(record, event.fields["proc"])
            if time.monotonic() - self._asked.pop(name, float("-inf")) > ANSWER_S:
                handle(record, event)
            else:
                self._tell(name, "\n".join(lines(event.fields.get("stacks"), "stacks", LINES)))

        return replace(handlers, messages={**handlers.messages, "stacks": take})
