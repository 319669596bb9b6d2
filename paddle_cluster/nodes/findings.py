# SPDX-License-Identifier: Apache-2.0
"""The findings of checks; equal findings of several nodes are merged into one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import dataclass

NAMED = 4  # this many nodes are named; further ones are counted


@dataclass(frozen=True)
class Finding:
    """A result of a preflight check: a problem (if `serious`) or a warning.

    Attributes:
        node: the node with the problem, or empty for the job as a whole.
        what: the family of checks: "port", "route", "python".
        text: what was expected, what was found, what to do next.
        shared: the text if several nodes have the same finding; `text` if empty.
    """

    node: str
    what: str
    text: str
    serious: bool = True
    shared: str = ""


def finding_lines(findings: Iterable[Finding], nodes: int) -> tuple[str, ...]:
    """Return one line per finding; a finding that several nodes share becomes one line with their names.

    Args:
        nodes: the total number of nodes.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.what, finding.shared or finding.text), []).append(finding)
    return tuple(_line(group, text, nodes) for (_, text), group in groups.items())


def names(found: Sequence[str], nodes: int) -> str:
    """Format a list of nodes for a sentence: all names, or as many as are readable."""
    if len(found) == nodes > NAMED:
        return f"all {nodes} nodes"
    return some(found, len(found) if len(found) == NAMED + 1 else NAMED)


def _line(group: Sequence[Finding], shared: str, nodes: int) -> str:
    first = group[0]
    text = first.text if len(group) == 1 else shared
    said = f"{first.what}: {text}" if first.what else text
    where = list(dict.fromkeys(finding.node for finding in group if finding.node))
    return f"{names(where, nodes)}: {said}" if where else said
