# SPDX-License-Identifier: Apache-2.0
"""What checkpoints nodes have, asked without a job: those of pservers, and the directories that scripts filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.control.one_question import NodeAnswer, visit
from paddle_cluster.plan import checkpoints
from paddle_cluster.plan.checkpoints import Checkpoint
from paddle_cluster.record import dataclass
from paddle_cluster.text.fields import FieldError, line, real, rows, whole
from paddle_cluster.text.wrapping import visible

LISTING_S = 25.0  # disks that sleep


class Filled(NamedTuple):
    """A directory that a script was given, on one node."""

    files: int
    nbytes: int
    changed_at: float


@dataclass(frozen=True)
class Found:
    """What the nodes told.

    Attributes:
        pservers: the newest first.
        scripts: name -> node id -> what is in the directory there; what changed last comes first.
        errors: node name -> why it could not be asked.
    """

    pservers: tuple[Checkpoint, ...]
    scripts: dict[str, dict[int, Filled]]
    errors: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "checkpoints": [one.as_json() for one in self.pservers],
            "directories": {
                name: {str(node): found._asdict() for node, found in by_node.items()}
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
    errors = {answer.node.name: visible(answer.error) for answer in answers if answer.fields is None}
    parts: dict[int, tuple[checkpoints.Part, ...]] = {}
    scripts: dict[str, dict[int, Filled]] = {}
    for answer in answers:
        try:
            parts[answer.node.node_id] = checkpoints.read_parts((answer.fields or {}).get("parts"))
            for name, filled in _scripts(answer):
                scripts.setdefault(name, {})[answer.node.node_id] = filled
        except FieldError as error:
            errors[answer.node.name] = str(error)
    serving = tuple(node.node_id for node in nodes if any(one.startswith("pserver") for one in node.roles))
    pservers = checkpoints.together(parts, serving or tuple(node.node_id for node in nodes))
    newest = sorted(scripts, key=lambda name: -max(one.changed_at for one in scripts[name].values()))
    return Found(pservers, {name: scripts[name] for name in newest}, errors)


def _scripts(answer: NodeAnswer) -> list[tuple[str, Filled]]:
    return [
        (
            line(name, "scripts"),
            Filled(whole(files, "files"), whole(nbytes, "bytes"), real(changed, "changed_at", least=0.0)),
        )
        for name, files, nbytes, changed in rows((answer.fields or {}).get("scripts") or [], "scripts", 4)
    ]
