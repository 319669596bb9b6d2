# SPDX-License-Identifier: Apache-2.0
"""Finds and ends jobs through their nodes, without the launcher and without its state directory.

The nodes' answers are records of `paddle_node.contract`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from paddle_cluster.config.settings import Settings, SshSettings
from paddle_cluster.control import job_record, state, store
from paddle_cluster.control.job_record import JobRecord, LoginRecord, NodeEntry
from paddle_cluster.control.one_question import NodeAnswer, visit
from paddle_cluster.control.state import Outcome
from paddle_cluster.errors import ExitCode
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.system.state_dir import (
    JOB_FILE,
    STATUS_FILE,
    StatePlaces,
    is_job_id,
    make_job_dir,
    write_json,
)
from paddle_node.contract.classes import NamedTuple, dataclass, replace
from paddle_node.contract.job_file import JobFound
from paddle_node.contract.to_launcher import Cleaned, JobEnded, JobsFound

END_S = 30.0
CLEAN_S = 600.0  # allows for slow disks and thousands of files
GRACE_S = 2.0
NOBODY = ProcessId("", 0, 0, "")


@dataclass(frozen=True)
class NodeJob:
    """A job on one node, as the node reports it.

    Attributes:
        alive: whether the job's agent is running.
        running: (pid, command) of processes that carry the job's ID.
        ended: how the job ended on the node, or empty.
        launcher: the job's launcher process, as far as the node knows.
    """

    job_id: str
    node: NodeEntry
    alive: bool
    running: tuple[tuple[int, str], ...]
    ended: str
    since: float
    user: str
    collected: str
    launcher: ProcessId

    @property
    def over(self) -> bool:
        """Return whether the job has ended on the node."""
        return not (self.alive or self.running)


@dataclass(frozen=True)
class NodeResident:
    """A resident agent on a node, which waits for jobs.

    Attributes:
        wait_s: time in seconds for which the agent waits for a job.
        has_job: whether the agent is currently serving a job.
    """

    node: NodeEntry
    pid: int
    port: int
    wait_s: float
    has_job: bool

    def describe(self) -> str:
        """Return a short description of the agent for a table."""
        does = "serves a job" if self.has_job else f"waits {self.wait_s:g} s for a job"
        return f"a resident agent (pid {self.pid}) at port {self.port}, which {does}"


def nodes_of(settings: Settings) -> tuple[NodeEntry, ...]:
    """Return the nodes of a configuration as entries, with which they can be visited."""
    from paddle_cluster.plan import plan

    built = plan.build(settings, "VISIT")
    return tuple(replace(node, job_dir="") for node in job_record.entries(built))


class Known(NamedTuple):
    """The jobs and resident agents that nodes report.

    Attributes:
        failed: the answers of nodes that could not be queried or answered incompletely.
    """

    jobs: list[NodeJob]
    residents: list[NodeResident]
    failed: list[NodeAnswer[JobsFound]]


def ask(nodes: Sequence[NodeEntry], login: SshSettings) -> Known:
    """Query nodes for their jobs and resident agents, and return these and the nodes that gave no valid answer."""
    answers = visit(nodes, login, "jobs", JobsFound, 10.0)
    return Known(
        [job for answer in answers for job in _jobs(answer)],
        [resident for answer in answers for resident in residents(answer)],
        [answer for answer in answers if answer.error],
    )


def end(
    job_id: str, nodes: Sequence[NodeEntry], login: SshSettings, grace_s: float = GRACE_S
) -> list[NodeAnswer[JobEnded]]:
    """End a job on its nodes, and return their answers; everything else on these nodes is left alone."""
    return visit(nodes, login, "end_job", JobEnded, END_S + grace_s, job_id=job_id, grace_s=grace_s)


def clean(
    nodes: Sequence[NodeEntry], login: SshSettings, older_s: float, dry_run: bool
) -> list[NodeAnswer[Cleaned]]:
    """Remove the directories of ended jobs from nodes, or only report which ones would be removed.

    Args:
        older_s: minimum time since the job's end, in seconds.
    """
    return visit(nodes, login, "clean", Cleaned, CLEAN_S, older_s=older_s, dry_run=dry_run)


def rebuild(where: StatePlaces, jobs: Sequence[NodeJob], login: SshSettings, conf: str) -> list[JobRecord]:
    """Write a job.json for every job that nodes have a record of; skip those that cannot be written.

    Args:
        jobs: the jobs of all nodes, in any order.
    """
    records = []
    for job_id in dict.fromkeys(job.job_id for job in jobs if job.since):
        mine = [job for job in jobs if job.job_id == job_id and job.since]
        record = _record(mine, login, conf)
        records.append(record)
        try:
            directory = make_job_dir(where, job_id)
            if store.move_unreadable_aside(directory):
                write_json(directory / JOB_FILE, record.as_json())
        except OSError:
            continue
    return records


def _record(mine: Sequence[NodeJob], login: SshSettings, conf: str) -> JobRecord:
    first = next((job for job in mine if job.launcher != NOBODY), mine[0])
    return JobRecord(
        job_id=first.job_id,
        submitted_at=min(job.since for job in mine),
        user=first.user or job_record.user_name(),
        launcher=first.launcher,
        cwd="",
        conf=conf,
        source="",
        mode="",
        detached=False,
        collected=first.collected,
        lease_s=30.0,
        nodes=tuple(job.node for job in mine),
        login=LoginRecord.of(login),
        rebuilt=True,
    )


def _jobs(answer: NodeAnswer[JobsFound]) -> list[NodeJob]:
    jobs = () if answer.record is None else answer.record.jobs
    return [_job(answer.node, job) for job in jobs if is_job_id(job.job_id)]


def residents(answer: NodeAnswer[JobsFound] | NodeAnswer[Cleaned]) -> list[NodeResident]:
    """Return the resident agents that a node's answer lists."""
    return (
        [] if answer.record is None else [NodeResident(answer.node, *one) for one in answer.record.residents]
    )


def _job(node: NodeEntry, job: JobFound) -> NodeJob:
    by = job.submitter
    roles = tuple(f"{one.role} {one.rank}" for one in job.processes)
    return NodeJob(
        job_id=job.job_id,
        node=replace(node, job_dir=job.job_dir, roles=roles),
        alive=job.alive,
        running=job.running,
        ended=job.ended.how if job.ended is not None else "",
        since=job.since,
        user=by.user,
        collected=by.collected,
        launcher=ProcessId(by.host, by.pid, by.start, by.boot_id),
    )


def record_end(where: StatePlaces, job_id: str) -> None:
    """Record that a job was stopped on its nodes, unless its launcher, which does so itself, may be running."""
    for job in filter(None, (store.read(place / job_id) for place in where.all())):
        if not job.ended and job.running is False:
            rows = {
                name: [{**row, "state": "exited"} for row in job.status.get(name, ())]
                for name in ("nodes", "processes")
            }
            outcome = Outcome(ExitCode.TERMINATED, (), (f"stopped on its nodes by `{PROGRAM} stop`",))
            with contextlib.suppress(OSError):
                write_json(job.directory / STATUS_FILE, state.ended({**job.status, **rows}, outcome))
