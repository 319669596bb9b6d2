# SPDX-License-Identifier: Apache-2.0
"""What the job does with what comes back: lines for the screen, chunks of files, remarks of a node."""

from __future__ import annotations

import time

from launcher.link import MessageEvent
from launcher.roster import NodeRecord
from launcher.situation import Situation


class FileReactions:
    """Logs and output."""

    def __init__(self, situation: Situation) -> None:
        self._collector = situation.collector
        self._console = situation.console

    def line(self, record: NodeRecord, event: MessageEvent) -> None:
        """Whole lines of a process, for the screen."""
        self._console.process_line(event.fields["proc"], record.name, event.body)

    def file(self, record: NodeRecord, event: MessageEvent) -> None:
        """The next bytes of a file under log/ or output/."""
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

    def notice(self, record: NodeRecord, event: MessageEvent) -> None:
        """A remark of the node."""
        self._console.note(f"{record.name}: {event.fields['text']}")
