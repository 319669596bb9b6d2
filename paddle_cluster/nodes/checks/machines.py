# SPDX-License-Identifier: Apache-2.0
"""Checks that every node is a separate machine with a separate folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.findings import Finding


def check(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield findings for nodes without an answer, machines listed twice, and folders that several nodes write to."""
    for reply in replies:
        if reply.error:
            yield Finding(reply.name, "", reply.error)
    twins = dict(_twins(replies))
    for name, first in twins.items():
        yield Finding(name, "host", f"the same machine as {first}; list every machine only once")
    names = {reply.node_id: reply.name for reply in replies}
    for group in shared_folders(replies):
        members = [names[node_id] for node_id in group]
        if any(name in twins for name in members):
            continue
        if demands.deployed:
            yield Finding(
                "",
                "workspace",
                f"{', '.join(members)} use the same directory on a shared file system, so each would "
                "delete and overwrite the others' log/; give each its own directory below ROOT_DIR, "
                "or use --job_dispatch_package, which does so",
            )
        else:
            root_dir = next(reply.answer.root_dir for reply in replies if reply.node_id == group[0])
            yield Finding(
                "",
                "root_dir",
                f"{', '.join(members)} share {root_dir}; each gets a job directory of its own in "
                f"{root_dir}/node_<id>/",
                serious=False,
            )


def shared_folders(replies: Sequence[Reply]) -> list[tuple[int, ...]]:
    """Return the IDs of nodes that write to the same folder, one group per folder."""
    beside: dict[int, set[int]] = {reply.node_id: set() for reply in replies if not reply.is_local}
    for reply in replies:
        for other in reply.neighbours:
            if reply.node_id in beside and other in beside:
                beside[reply.node_id].add(other)
                beside[other].add(reply.node_id)  # one of two marks may have been written too late
    groups: list[tuple[int, ...]] = []
    left = set(beside)
    for node_id in beside:
        group, fresh = {node_id}, {node_id} if node_id in left else set()
        while fresh:
            fresh = set().union(*(beside[one] for one in fresh)) - group
            group |= fresh
        left -= group
        if len(group) > 1:
            groups.append(tuple(sorted(group)))
    return groups


def _twins(replies: Sequence[Reply]) -> Iterator[tuple[str, str]]:
    """Yield (name, earlier name) of nodes that are the same machine with the same ROOT_DIR under two names."""
    first: dict[tuple[str, ...], str] = {}
    for reply in replies:
        if reply.error:
            continue
        answer = reply.answer
        addresses = sorted({one.address for one in answer.networks}) or [answer.address]
        place = (reply.hostname, answer.root_dir, *addresses)
        if not all(place):
            continue
        name = first.setdefault(place, reply.name)
        if name != reply.name:
            yield reply.name, name
