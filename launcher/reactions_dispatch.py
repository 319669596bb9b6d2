# SPDX-License-Identifier: Apache-2.0
"""What the job does when a node answers to the cargo it was offered."""

from __future__ import annotations

from launcher.dispatch import DispatchState
from launcher.link import MessageEvent
from launcher.roster import NodeRecord
from launcher.situation import Situation


class DispatchReactions:
    """The trees on their way to the nodes."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation

    def offer(self, record: NodeRecord) -> None:
        """Begin, or begin again, to bring the cargo to a node."""
        assert record.link is not None
        record.trees.clear()
        record.dispatches = self._situation.cargo.offer(record.node, record.link)
        self._situation.node_state(record, "dispatch")

    def answered(self, record: NodeRecord, event: MessageEvent) -> None:
        """A tree is lacking files, is there, or could not be built."""
        dispatch = record.dispatches[event.fields["tree"]]
        dispatch.handle(event)
        if dispatch.error is not None and not self._situation.stopping:
            raise dispatch.error
        if dispatch.state is DispatchState.DONE:
            record.trees[dispatch.tree] = dispatch.path
