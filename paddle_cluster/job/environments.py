# SPDX-License-Identifier: Apache-2.0
"""The phase in which a job with --bootstrap fetches the wheels for its nodes' platforms. Changes no node."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_cluster.config import requirements
from paddle_cluster.files import wheels
from paddle_cluster.files.wheels import Environment, EnvironmentRequest, Fetch, NoWheelsError
from paddle_cluster.nodes.findings import Finding, finding_lines
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan import wheel_platform
from paddle_cluster.plan.plan import Plan
from paddle_cluster.plan.wheel_platform import WheelPlatform
from paddle_cluster.screen.console import Console
from paddle_cluster.text.sizes import counted, size_text
from paddle_node.contract.classes import dataclass, replace


@dataclass(frozen=True)
class Prepared:
    """The result of preparing the nodes' environments.

    Attributes:
        environments: the environments by node ID.
        problems: why the job cannot continue, one line each.
    """

    environments: dict[int, Environment]
    problems: tuple[str, ...]


def prepare(plan: Plan, roster: Roster, loop: Loop, console: Console) -> Prepared:
    """Fetch the wheels of every platform in turn, while the loop keeps the nodes' leases alive.

    Raises:
        WorkspaceError: the workspace's requirements.txt cannot be read.
    """
    states = plan.settings.state.jobs
    asked = requirements.of_workspace(plan.settings.job.package)
    found: dict[int, Environment] = {}
    problems: list[Finding] = []
    for platform, records in _platforms(roster.all()).items():
        wanted = EnvironmentRequest(platform, asked)
        try:
            environment = wheels.kept(wanted, states) or _fetch(wanted, plan, loop, roster)
        except NoWheelsError as error:
            problems += [Finding(record.name, "bootstrap", str(error)) for record in records]
            continue
        if environment is None:
            break
        found.update((record.node.node_id, environment) for record in records)
        package = environment.package
        console.note(
            f"{counted(len(package.files), 'package')} for {platform.describe()}, {size_text(package.total_bytes)}: "
            + ("reused from an earlier job" if environment.was_kept else "fetched")
        )
    for record in roster.all():
        if record.link is None:
            problems.append(
                Finding(record.name, "", f"lost: {record.contact.error or 'the connection ended'}")
            )
    return Prepared(found, finding_lines(problems, len(roster.all())))


def _fetch(wanted: EnvironmentRequest, plan: Plan, loop: Loop, roster: Roster) -> Environment | None:
    """Have pip fetch the wheels; return None if a node was lost meanwhile."""
    fetch = Fetch(wanted, plan.settings.state.jobs)
    try:
        loop.until(lambda: fetch.is_over() or len(roster.live()) < len(roster.all()))
        return fetch.result() if fetch.is_over() else None
    finally:
        fetch.close()


def _platforms(records: Sequence[NodeRecord]) -> dict[WheelPlatform, list[NodeRecord]]:
    """Return nodes by platform; Pythons that differ only in their patch versions count as the oldest of them."""
    groups: dict[WheelPlatform, list[NodeRecord]] = {}
    for record in records:
        if (platform := _platform(record)) is not None:
            release = ".".join(platform.version.split(".")[:2])
            groups.setdefault(replace(platform, version=release), []).append(record)
    return {
        replace(platform, version=min((_version(record) for record in group), key=_order)): group
        for platform, group in groups.items()
    }


def _platform(record: NodeRecord) -> WheelPlatform | None:
    answer = record.reports.answer
    return None if answer is None else wheel_platform.read(answer.python_version, answer.python_kind)


def _version(record: NodeRecord) -> str:
    platform = _platform(record)
    return "" if platform is None else platform.version


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
