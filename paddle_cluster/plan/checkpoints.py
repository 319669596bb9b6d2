# SPDX-License-Identifier: Apache-2.0
"""Locates the state of pservers that outlives its process: state directories, and checkpoints on nodes.

This module determines which checkpoints are whole, and which one `--resume` uses; its functions are pure. If a node's
processes end, their state remains in the node's memory. If the node is lost, so is the state; only a checkpoint can
then restore the job. A checkpoint is whole if all its parts exist and every serving node has one of them, in a shared
folder or in its own, unless the model was too small for all servers. A part that a node cannot read does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle_cluster.config.options import Mode
from paddle_cluster.config.settings import Settings
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import dataclass
from paddle_node.contract.names import STATE_DIR
from paddle_node.contract.probed import Part

PATIENCE_S = 60  # how long trainers wait for a restarting pserver
RESTARTS = 3


def state_dir(settings: Settings) -> str:
    """Return the directory in which pservers store their state; empty if the user has disabled it."""
    return dict(settings.job.flags).get("state_dir", STATE_DIR)


def pserver_restarts(settings: Settings) -> int:
    """Return the maximum number of restarts of each pserver."""
    if settings.job.mode is Mode.COLLECTIVE or not state_dir(settings):
        return 0
    return max(RESTARTS, settings.job.max_restarts)


def checkpoint_dir(settings: Settings) -> str | None:
    """Return the absolute directory for pserver checkpoints; None if there is none or it is in the job directory."""
    flags = dict(settings.job.flags)
    folder = flags.get("checkpoint_dir", "")
    is_written = settings.job.mode.has_pserver_command and flags.get("checkpoint_period", "0") != "0"
    return folder if is_written and folder.startswith("/") else None


def resumed_from(settings: Settings, job_dir: str) -> str | None:
    """Return the folder in which a node's pserver searches for its checkpoint; None if it does not resume."""
    flags = dict(settings.job.flags)
    folder = flags.get("checkpoint_dir", "")
    if not settings.job.mode.has_pserver_command or not flags.get("resume") or not folder:
        return None
    return folder if folder.startswith("/") else f"{job_dir}/{folder}"


def checkpoints_below_root(settings: Settings, job_id: str) -> str:
    """Return the directory for pserver checkpoints, absolute or relative to ROOT_DIR; empty if there are none."""
    folder = dict(settings.job.flags).get("checkpoint_dir", "")
    if not settings.job.mode.has_pserver_command or not folder or folder.startswith("/"):
        return folder if settings.job.mode.has_pserver_command else ""
    return f"{settings.job.workspace or job_id}/{folder}"


def is_in_job_dir(settings: Settings) -> bool:
    """Return whether pservers write checkpoints into the job's directory, which must then outlive the job."""
    folder = dict(settings.job.flags).get("checkpoint_dir", "")
    return bool(folder) and not folder.startswith("/")


def saved(settings: Settings, job_id: str) -> dict[str, object]:
    """Return the fields of `hello` about the directory in which the job's scripts save checkpoints."""
    return {"name": settings.job.saving.name or job_id, "collect": list(settings.job.saving.collect)}


def resume_hint(settings: Settings, unnamed: str = "") -> list[str]:
    """Return advice on how to continue a job; empty without a checkpoint.

    Args:
        unnamed: the job's ID if its scripts saved files without --keep_as, or "".
    """
    flags, name = dict(settings.job.flags), settings.job.saving.name or unnamed
    if name and (unnamed or not settings.job.mode.has_pserver_command):
        return [
            (
                f"to continue: run the same command again, with --keep_as={name}. The nodes keep what "
                "the script saved in PADDLE_CHECKPOINT_DIR"
            )
        ]
    if not settings.job.mode.has_pserver_command or not flags.get("checkpoint_dir"):
        return []
    return [
        (
            "to continue from the last complete checkpoint: run the same command again, with "
            f"--resume=latest (checkpoints are in {flags['checkpoint_dir']}; `{PROGRAM} "
            "checkpoints` lists them)"
        )
    ]


_NEWEST_LISTED = 3


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, with its parts on all nodes.

    Attributes:
        parts: the parts that each node has, by node ID; parts visible to several nodes appear several times.
        nodes: IDs of the serving nodes.
    """

    parts: Mapping[int, tuple[Part, ...]]
    nodes: tuple[int, ...]

    @property
    def first(self) -> Part:
        """Return one part of the checkpoint; all parts have the same version, job and count."""
        return next(part for found in self.parts.values() for part in found)

    @property
    def readable(self) -> Mapping[int, frozenset[int]]:
        """Return, for each node ID, the numbers of the servers whose parts that node can read."""
        found = {
            node: frozenset(p.server for p in parts if not p.problem) for node, parts in self.parts.items()
        }
        return {node: servers for node, servers in found.items() if servers}

    @property
    def without(self) -> tuple[int, ...]:
        """Return the IDs of the serving nodes that can read no part of the checkpoint.

        None are returned if all parts exist and servers were idle: a small model leaves nodes without a part.
        """
        if not self.missing and any(part.idle for parts in self.parts.values() for part in parts):
            return ()
        readable = self.readable
        return tuple(node for node in self.nodes if node not in readable)

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the numbers of the servers whose part no node has."""
        have = frozenset[int]().union(*self.readable.values())
        return tuple(server for server in range(self.first.servers) if server not in have)

    @property
    def is_whole(self) -> bool:
        """Return whether a job can resume from the checkpoint."""
        return not (self.without or self.missing)

    @property
    def nbytes(self) -> int:
        """Return the total size of the checkpoint's files in bytes, counting each part once."""
        return sum({(p.server): p.nbytes for parts in self.parts.values() for p in parts}.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the problems of the checkpoint's parts, without duplicates."""
        return tuple(dict.fromkeys(p.problem for parts in self.parts.values() for p in parts if p.problem))

    def as_json(self) -> dict[str, Any]:
        """Return the checkpoint as JSON values."""
        first = self.first
        return {
            "batch": first.version,
            "job": first.job,
            "resume": first.name,
            "pass": first.pass_id,
            "bytes": self.nbytes,
            "written_at": max(p.written_at for parts in self.parts.values() for p in parts),
            "whole": self.is_whole,
            "servers": first.servers,
            "nodes": {str(node): sorted(servers) for node, servers in sorted(self.readable.items())},
            "nodes_without": list(self.without),
            "missing_parts": list(self.missing),
            "problems": list(self.problems),
        }


def together(found: Mapping[int, Sequence[Part]], nodes: Sequence[int]) -> tuple[Checkpoint, ...]:
    """Combine the parts of all nodes into checkpoints, newest first.

    Args:
        found: node id -> its parts.
        nodes: the serving nodes.
    """
    by_name: dict[tuple[int, str, int], dict[int, list[Part]]] = {}
    for node in nodes:
        for part in found.get(node, ()):
            by_name.setdefault((part.version, part.job, part.servers), {}).setdefault(node, []).append(part)
    made = [
        Checkpoint({node: tuple(parts) for node, parts in by_node.items()}, tuple(nodes))
        for by_node in by_name.values()
    ]

    def age(one: Checkpoint) -> tuple[int, float]:
        return one.first.version, max(p.written_at for parts in one.parts.values() for p in parts)

    return tuple(sorted(made, key=age, reverse=True))


@dataclass(frozen=True)
class ResumeChoice:
    """The checkpoint from which pservers resume.

    Attributes:
        resume: the value of `--resume` for the pservers; empty: the user's value.
        message: a message for the user, or empty.
    """

    resume: str = ""
    message: str = ""


def choose(
    resume: str, found: Mapping[int, Sequence[Part]], nodes: Sequence[int], names: Mapping[int, str]
) -> ResumeChoice:
    """Choose the checkpoint for `--resume` if the newest one that it selects is not whole on all nodes.

    Args:
        names: node names for messages.
    """
    all_there = together({node: selected(resume, parts) for node, parts in found.items()}, nodes)
    best = newest_whole(all_there)
    if not all_there or best is all_there[0]:
        return ResumeChoice()  # each server finds the same one
    newer = all_there[: all_there.index(best)] if best is not None else all_there
    lacking = "; ".join(_lacking(one, names) for one in newer[:_NEWEST_LISTED])
    if len(newer) > _NEWEST_LISTED:
        lacking += f"; and {len(newer) - _NEWEST_LISTED} more"
    if best is None:
        return ResumeChoice(message=f"--resume={resume}: no checkpoint is complete on all nodes: {lacking}")
    return ResumeChoice(
        best.first.name,
        f"--resume={resume}: {lacking}: the job continues from batch {best.first.version}, the "
        "newest one complete on all nodes",
    )


def selected(resume: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts that a value of `--resume` selects: all for latest and auto, none if it is empty."""
    if resume in ("latest", "auto"):
        return tuple(parts)
    version, _, job = resume.partition(".")
    return tuple(part for part in parts if str(part.version) == version.lstrip("0") and job in ("", part.job))


def newest_whole(made: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the newest checkpoint that is complete on all nodes, from a result of `together`."""
    return next((one for one in made if one.is_whole), None)


def shares(one: Checkpoint) -> Mapping[int, tuple[Part, ...]]:
    """Return the parts that each node verifies: each file once, spread evenly over the nodes that see it."""
    seen: dict[tuple[int, str], list[int]] = {}
    parts: dict[tuple[int, str], Part] = {}
    for node, found in sorted(one.parts.items()):
        for part in found:
            key = (part.server, part.identity or str(node))
            seen.setdefault(key, []).append(node)
            parts[key] = part
    work = dict.fromkeys(one.parts, 0)
    given: dict[int, list[Part]] = {}
    for key, part in sorted(parts.items(), key=lambda item: -item[1].nbytes):
        node = min(seen[key], key=lambda candidate: (work[candidate], candidate))
        work[node] += max(1, part.nbytes)
        given.setdefault(node, []).append(part)
    return {node: tuple(found) for node, found in given.items()}


def marked(
    found: Mapping[int, Sequence[Part]], damaged: Sequence[tuple[int, Part, str]]
) -> dict[int, tuple[Part, ...]]:
    """Return the parts of all nodes, with the problems of damaged files added on every node that has access to them.

    Args:
        damaged: (node, part, problem).
    """
    problems = {(part[:4], part.identity or str(node)): problem for node, part, problem in damaged}
    return {
        node: tuple(
            part._replace(problem=problems.get((part[:4], part.identity or str(node)), part.problem))
            for part in parts
        )
        for node, parts in found.items()
    }


def unreadable(found: Mapping[int, Sequence[Part]], nodes: Sequence[int]) -> tuple[int, ...]:
    """Return the nodes that cannot read any part although other nodes can; their servers would start from scratch."""
    if not any(found.get(node) for node in nodes):
        return ()
    return tuple(node for node in nodes if all(part.problem for part in found.get(node, ())))


def _lacking(one: Checkpoint, names: Mapping[int, str]) -> str:
    """Return why a checkpoint is incomplete."""
    batch = f"batch {one.first.version}"
    damaged = [node for node, parts in one.parts.items() if any(part.problem for part in parts)]
    if damaged:
        return f"{batch} is damaged on {_named(damaged, names)} ({one.problems[0]})"
    if one.without:
        return f"batch {one.first.version} is not on {_named(one.without, names)}"
    return f"{batch} is missing part {one.missing[0]} of {one.first.servers}"


def _named(nodes: Sequence[int], names: Mapping[int, str]) -> str:
    return some([names.get(node, f"node {node}") for node in nodes], _NEWEST_LISTED)
