# SPDX-License-Identifier: Apache-2.0
"""What checkpoints nodes have, asked without a job: those of pservers, and the directories that scripts filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.control.one_question import visit
from paddle_cluster.plan import checkpoints
from paddle_cluster.plan.checkpoints import Checkpoint
from paddle_cluster.record import dataclass
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.probed import Saves

LISTING_S = 25.0  # disks that sleep


@dataclass(frozen=True)
class Found:
    """What the nodes told.

    Attributes:
        pservers: the newest first.
        scripts: name -> node id -> what is in the directory there; what changed last comes first.
        errors: node name -> why it could not be asked.
    """

    pservers: tuple[Checkpoint, ...]
    scripts: dict[str, dict[int, Saves]]
    errors: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "checkpoints": [one.as_json() for one in self.pservers],
            "directories": {
                name: {
                    str(node): {"files": one.files, "nbytes": one.nbytes, "changed_at": one.changed_at}
                    for node, one in by_node.items()
                }
                for name, by_node in self.scripts.items()
            },
            "not_asked": self.errors,
        }


def ask(nodes: Sequence[NodeEntry], login: SshSettings, folder: str) -> Found:
    """List the checkpoints of nodes; blocks until all have answered or let their time pass.

    Args:
        folder: of pservers' checkpoints, relative to ROOT_DIR or absolute; empty: none.
    """
    answers = visit(nodes, login, "checkpoints", "checkpoints_found", LISTING_S, folder=folder)
    errors = {answer.node.name: visible(answer.error) for answer in answers if answer.said is None}
    parts = {answer.node.node_id: answer.said.parts for answer in answers if answer.said is not None}
    scripts: dict[str, dict[int, Saves]] = {}
    for answer in answers:
        for saved in () if answer.said is None else answer.said.scripts:
            scripts.setdefault(saved.name, {})[answer.node.node_id] = saved
    serving = tuple(node.node_id for node in nodes if any(one.startswith("pserver") for one in node.roles))
    pservers = checkpoints.together(parts, serving or tuple(node.node_id for node in nodes))
    newest = sorted(scripts, key=lambda name: -max(one.changed_at for one in scripts[name].values()))
    return Found(pservers, {name: scripts[name] for name in newest}, errors)
