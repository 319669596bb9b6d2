# SPDX-License-Identifier: Apache-2.0
"""Jobs as their nodes know them: found and ended without the launcher, and without its state directory.

What nodes say is untrusted text; it is read into plain values here and shown through `visible`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from paddle_cluster.config.settings import Settings, SshSettings
from paddle_cluster.control import job_record, store
from paddle_cluster.control.job_record import JobRecord, NodeEntry
from paddle_cluster.control.one_question import NodeAnswer, visit
from paddle_cluster.record import dataclass
from paddle_cluster.system import process_id
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.system.state_dir import JOB_FILE, StatePlaces, is_job_id, make_job_dir, write_json
from paddle_cluster.text.fields import FieldError, real, rows, whole
from paddle_cluster.text.wrapping import visible

END_S = 30.0
CLEAN_S = 600.0  # slow disks, and thousands of files
GRACE_S = 2.0
NOBODY = ProcessId("", 0, 0, "")


@dataclass(frozen=True)
class NodeJob:
    """A job on one node.

    Attributes:
        alive: its agent lives.
        running: (pid, command) of processes that carry its id.
        ended: how it ended there, or empty.
        launcher: who leads it, as far as the node was told.
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
        """Whether nothing of it is left there."""
        return not (self.alive or self.running)


@dataclass(frozen=True)
class Ending:
    """How ending a job went on one node.

    Attributes:
        told: what was done there, one sentence each.
        left: (pid, command) of what still runs.
        unsure: what may be left although nobody sees it, or empty.
        error: why the node could not be asked, or empty.
    """

    node: NodeEntry
    told: tuple[str, ...]
    left: tuple[tuple[int, str], ...]
    unsure: str
    error: str

    @property
    def clean(self) -> bool:
        """Whether nothing of the job is left there, as far as can be seen."""
        return not (self.left or self.error)


@dataclass(frozen=True)
class NodeResident:
    """A resident agent on a node.

    Attributes:
        wait_s: how long it waits for a job.
        has_job: whether it serves one now.
    """

    node: NodeEntry
    pid: int
    port: int
    wait_s: float
    has_job: bool

    def describe(self) -> str:
        """For people."""
        does = "serves a job" if self.has_job else f"waits {self.wait_s:g} s for a job"
        return f"a resident agent (pid {self.pid}) at port {self.port}, which {does}"


@dataclass(frozen=True)
class Cleaning:
    """What a node let go of ended jobs, or would.

    Attributes:
        jobs: (bytes, job id) of those that went.
        environments: (bytes, digest) of the environments that went.
        kept: (job id, why) of those that stay.
        stayed: job ids of those that could not be removed whole.
        residents: that were told to go.
        error: why the node could not be asked, or empty.
    """

    node: NodeEntry
    jobs: tuple[tuple[int, str], ...]
    environments: tuple[tuple[int, str], ...]
    kept: tuple[tuple[str, str], ...]
    stayed: tuple[str, ...]
    residents: tuple[NodeResident, ...]
    error: str


def nodes_of(settings: Settings) -> tuple[NodeEntry, ...]:
    """The nodes of a configuration, for visits."""
    from paddle_cluster.plan import plan

    built = plan.build(settings, "VISIT")
    return tuple(replace(node, job_dir="") for node in job_record.entries(built))


class Known(NamedTuple):
    """What nodes know of.

    Attributes:
        failed: the answers of those that could not be asked.
    """

    jobs: list[NodeJob]
    residents: list[NodeResident]
    failed: list[NodeAnswer]


def ask(nodes: Sequence[NodeEntry], login: SshSettings) -> Known:
    """The jobs and resident agents that nodes know of."""
    answers = visit(nodes, login, "jobs", "jobs_found", 10.0)
    return Known(
        [job for answer in answers for job in _jobs(answer)],
        [resident for answer in answers for resident in _residents(answer)],
        [answer for answer in answers if answer.fields is None],
    )


def end(
    job_id: str, nodes: Sequence[NodeEntry], login: SshSettings, grace_s: float = GRACE_S
) -> list[Ending]:
    """End a job on its nodes; nothing else there is touched."""
    answers = visit(nodes, login, "end_job", "job_ended", END_S + grace_s, job_id=job_id, grace_s=grace_s)
    return [_ending(answer) for answer in answers]


def clean(nodes: Sequence[NodeEntry], login: SshSettings, older_s: float, dry_run: bool) -> list[Cleaning]:
    """Remove the directories of ended jobs from nodes, or only find out which would go.

    Args:
        older_s: of jobs that ended so long ago.
    """
    answers = visit(nodes, login, "clean", "cleaned", CLEAN_S, older_s=older_s, dry_run=dry_run)
    return [_cleaning(answer) for answer in answers]


def rebuild(where: StatePlaces, jobs: Sequence[NodeJob], login: SshSettings, conf: str) -> list[JobRecord]:
    """Write a job.json for every job that nodes have a record of; what cannot be written is not.

    Args:
        jobs: of all nodes, mixed.
    """
    records = []
    for job_id in dict.fromkeys(job.job_id for job in jobs if job.since):
        mine = [job for job in jobs if job.job_id == job_id and job.since]
        record = _record(mine, login, conf)
        records.append(record)
        try:
            directory = make_job_dir(where, job_id)
            if store.make_way(directory):
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
        login=login,
        rebuilt=True,
    )


def _jobs(answer: NodeAnswer) -> list[NodeJob]:
    found = (answer.fields or {}).get("jobs")
    if not isinstance(found, list):
        return []
    return [job for job in (_job(answer.node, fields) for fields in found) if job is not None]


def _residents(answer: NodeAnswer) -> tuple[NodeResident, ...]:
    found = (answer.fields or {}).get("residents")
    try:
        return tuple(
            NodeResident(
                answer.node, whole(pid, "pid"), whole(port, "port"), real(wait_s, "wait_s"), has_job is True
            )
            for pid, port, wait_s, has_job in rows(found or [], "residents", 4)
        )
    except FieldError:
        return ()


def _job(node: NodeEntry, fields: Any) -> NodeJob | None:
    if not isinstance(fields, dict) or not is_job_id(str(fields.get("job_id"))):
        return None
    submitter = fields.get("submitter")
    submitter = submitter if isinstance(submitter, dict) else {}
    try:
        launcher = process_id.from_json(submitter)
    except (KeyError, ValueError):
        launcher = NOBODY
    processes = fields.get("processes")
    roles = tuple(
        visible(f"{one.get('role')} {one.get('rank')}")
        for one in (processes if isinstance(processes, list) else [])
        if isinstance(one, dict)
    )
    since = fields.get("since")
    ended = fields.get("ended")
    return NodeJob(
        job_id=str(fields["job_id"]),
        node=replace(node, job_dir=visible(str(fields.get("job_dir") or "")), roles=roles),
        alive=fields.get("alive") is True,
        running=_pairs(fields.get("running")),
        ended=visible(str(ended.get("how"))) if isinstance(ended, dict) else "",
        since=_moment(since),
        user=visible(str(submitter.get("user") or "")),
        collected=visible(str(submitter.get("collected") or "")),
        launcher=launcher,
    )


def _moment(value: object) -> float:
    try:
        return real(value, "since", least=0.0)
    except FieldError:
        return 0.0


def _ending(answer: NodeAnswer) -> Ending:
    fields: Mapping[str, Any] = answer.fields or {}
    told = fields.get("told")
    sentences = tuple(visible(str(one)) for one in told) if isinstance(told, list) else ()
    unsure = visible(str(fields.get("unsure") or ""))
    return Ending(answer.node, sentences, _pairs(fields.get("left")), unsure, visible(answer.error))


def _cleaning(answer: NodeAnswer) -> Cleaning:
    fields: Mapping[str, Any] = answer.fields or {}
    kept, stayed = fields.get("kept"), fields.get("stayed")
    whys = kept.items() if isinstance(kept, dict) else ()
    return Cleaning(
        answer.node,
        tuple((max(0, size), name) for size, name in _pairs(fields.get("jobs"))),
        tuple((max(0, size), name) for size, name in _pairs(fields.get("environments"))),
        tuple((visible(str(name)), visible(str(why))) for name, why in whys),
        tuple(visible(str(one)) for one in (stayed if isinstance(stayed, list) else [])),
        _residents(answer),
        visible(answer.error),
    )


def _pairs(found: Any) -> tuple[tuple[int, str], ...]:
    pairs = [
        one for one in (found if isinstance(found, list) else []) if isinstance(one, list) and len(one) == 2
    ]
    return tuple((one[0], visible(str(one[1]))) for one in pairs if isinstance(one[0], int))
