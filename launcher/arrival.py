# SPDX-License-Identifier: Apache-2.0
"""The first phases of a job: connect to every node, ask it about itself, judge the answers; no side effect yet."""

from __future__ import annotations

from collections.abc import Callable

from launcher import preflight
from launcher.errors import PreflightError
from launcher.loop import Loop
from launcher.reactions_nodes import NodeReactions
from launcher.roster import NodeRecord, Roster
from launcher.situation import Situation


class Arrival:
    """Connect and preflight.

    Args:
        enter: called with the name of each phase.
    """

    def __init__(
        self, situation: Situation, loop: Loop, nodes: NodeReactions, enter: Callable[[str], None]
    ) -> None:
        self._settings = situation.settings
        self._roster = situation.roster
        self._console = situation.console
        self._loop = loop
        self._nodes = nodes
        self._enter = enter

    def run(self) -> None:
        """Run both phases.

        Raises:
            PreflightError: a node cannot take part; nothing was copied or started.
        """
        settings = self._settings
        self._enter("connect")
        for record in self._roster.all():
            self._nodes.connect(record)
        self._loop.until(
            lambda: all(record.error or record.login_s for record in self._roster.all()),
            settings.connect_timeout_s + settings.preflight_timeout_s,
        )
        self._enter("preflight")
        self._loop.until(
            lambda: all(record.probed is not None for record in self._roster.live()),
            settings.preflight_timeout_s,
        )
        self._ask_for_routes()
        replies = [_reply(record, self._roster) for record in self._roster.all()]
        verdict = preflight.judge(replies, self._demands())
        self._console.table(preflight.HEADERS, verdict.rows, verdict.red)
        for remark in verdict.remarks:
            self._console.note(remark)
        if verdict.problems:
            raise PreflightError("preflight\n  " + "\n  ".join(verdict.problems))

    def _demands(self) -> preflight.Demands:
        settings = self._settings
        return preflight.Demands(
            modules=preflight.needed_modules(settings.mode),
            port_is_explicit=settings.port_is_explicit,
            allow_mismatch=settings.allow_mismatch,
            python=settings.python or "python3",
        )

    def _ask_for_routes(self) -> None:
        asked = [record for record in self._roster.live() if (record.probed or {}).get("listen_port")]
        peers = [
            (r.node.node_id, (r.probed or {})["address"], (r.probed or {})["listen_port"]) for r in asked
        ]
        for record in asked:
            record.send("reach", peers=[peer for peer in peers if peer[0] != record.node.node_id])
        self._loop.until(
            lambda: all(record.reached is not None or record.link is None for record in asked),
            self._settings.preflight_timeout_s,
        )


def _reply(record: NodeRecord, roster: Roster) -> preflight.Reply:
    """What preflight judges of a node."""
    error = ""
    if record.error is not None:
        error = str(record.error).removeprefix(f"{record.name}: ")
    elif record.probed is None:
        error = "it did not answer in time"
    unreachable = tuple(
        f"{roster.nodes[node_id].name}: {text}" for node_id, ok, text in record.reached or () if not ok
    )
    return preflight.Reply(
        record.name,
        error,
        record.probed or {},
        unreachable,
        record.clock_offset_s,
        record.login_s,
        record.hostname,
    )
