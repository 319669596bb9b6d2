# SPDX-License-Identifier: Apache-2.0
"""The findings of a check, and how equal findings of several nodes become one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import dataclass

NAMED = 4  # so many nodes are named; further ones are counted


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong (`serious`) or worth knowing.

    Attributes:
        node: which node it is about, or empty for the job as a whole.
        what: "port", "route", "python": the family of checks.
        text: what was expected, what was found, what to do next.
        shared: how it reads when several nodes have it; `text` where that is empty.
    """

    node: str
    what: str
    text: str
    serious: bool = True
    shared: str = ""


def told(findings: Iterable[Finding], nodes: int) -> tuple[str, ...]:
    """One line a finding; what several nodes have is one line with their names.

    Args:
        nodes: how many there are in all.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.what, finding.shared or finding.text), []).append(finding)
    return tuple(_line(group, text, nodes) for (_, text), group in groups.items())


def names(found: Sequence[str], nodes: int) -> str:
    """Nodes in a sentence: all of them by name, or as many as are readable."""
    if len(found) == nodes > NAMED:
        return f"all {nodes} nodes"
    return some(found, len(found) if len(found) == NAMED + 1 else NAMED)


def _line(group: Sequence[Finding], shared: str, nodes: int) -> str:
    first = group[0]
    text = first.text if len(group) == 1 else shared
    said = f"{first.what}: {text}" if first.what else text
    where = list(dict.fromkeys(finding.node for finding in group if finding.node))
    return f"{names(where, nodes)}: {said}" if where else said
