# SPDX-License-Identifier: Apache-2.0
"""The first phases of a job: examine every node, show what came of it, and go no further where something is wrong."""

from __future__ import annotations

from collections.abc import Callable

from launcher.errors import PreflightError
from launcher.job.context import Situation
from launcher.job.handlers.nodes import NodeReactions
from launcher.nodes import preflight
from launcher.nodes.examination import Examination
from launcher.nodes.loop import Loop


class Arrival:
    """Connect and preflight.

    Args:
        enter: called with the name of each phase.
    """

    def __init__(
        self, situation: Situation, loop: Loop, nodes: NodeReactions, enter: Callable[[str], None]
    ) -> None:
        self._console = situation.console
        self._examination = Examination(situation.plan, situation.roster, loop, nodes.connect, enter)

    def run(self) -> None:
        """Run both phases.

        Raises:
            PreflightError: a node cannot take part; nothing was copied or started.
        """
        examined = self._examination.run()
        verdict = examined.verdict
        self._console.table(preflight.HEADERS, verdict.rows, verdict.red)
        if len(examined.replies) > len(verdict.rows):
            others = len(examined.replies) - len(verdict.red)
            self._console.note(
                f"({others} of {len(examined.replies)} nodes are ok; `paddle.py doctor` shows all)"
            )
        for remark in verdict.remarks:
            self._console.note(remark)
        if verdict.problems:
            raise PreflightError("preflight\n  " + "\n  ".join(verdict.problems))
