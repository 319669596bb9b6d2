# SPDX-License-Identifier: Apache-2.0
"""Lists the jobs in this machine's state directory, finds them by name or partial ID, and prunes them.

The files that it reads may come from any process; unreadable files are skipped or reported.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.config.values import nearest
from paddle_cluster.control import job_record
from paddle_cluster.control.curves import MOST, OTHER_POINTS, PASSES, POINTS
from paddle_cluster.control.job_record import JobRecord
from paddle_cluster.control.state import ROWS, VERSION
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import JOB_FILE, STATUS_FILE, StatePlaces, is_job_id, read_json
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import NamedTuple, dataclass
from paddle_node.contract.facts import NodeFacts, ProcessFacts, fitting_row
from paddle_node.contract.records import Number, Whole, fitting

KEPT_JOBS = 50
KEPT_S = 30 * 86400.0
STOPPED = (ExitCode.INTERRUPTED, ExitCode.TERMINATED, ExitCode.HANGUP, ExitCode.QUIT)


class _Status(NamedTuple):
    version: Whole
    job_id: str
    phase: str
    exit_code: Whole | None
    updated_at: Number
    ended_at: Number


class _FailureRow(NamedTuple):
    node: str
    process: str
    what: str
    log: str


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The state of a job, as it last wrote it, about once a second.

    Attributes:
        name: the job's name given by --name, or empty.
        phase: for example "starting", "run" or "ended".
        exit_code: None until the job has ended.
        updated_at: time of writing, in seconds since 1970; 0 means not yet written.
        nodes, processes: facts by name, such as "state", "pid", "step", "cost" and "memory_bytes".
        failures: "node", "process", "what" and "log" of each failure.
        left: what could not be cleaned or collected.
        why: the first failure.
    """

    job_id: str
    name: str
    phase: str
    exit_code: int | None = None
    updated_at: float = 0.0
    nodes: tuple[Mapping[str, Any], ...] = ()
    processes: tuple[Mapping[str, Any], ...] = ()
    failures: tuple[Mapping[str, str], ...] = ()
    left: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownJob:
    """A job in the state directory: its record, and its last recorded state.

    Attributes:
        status: the content of status.json, or empty if there is none.
        running: whether the job's launcher is running; None means unknown, because it runs on a different machine.
    """

    record: JobRecord
    directory: Path
    status: dict[str, Any]
    running: bool | None

    @property
    def job_id(self) -> str:
        """The ID of the job, such as JOB20261121090807-a1b2c3."""
        return self.record.job_id

    @property
    def title(self) -> str:
        """The job's name in messages: the name that the user gave it, or its ID."""
        return visible(self.record.name) or self.job_id

    @property
    def exit_code(self) -> int | None:
        """The job's exit code, or None if none was recorded."""
        code = self.status.get("exit_code")
        return code if isinstance(code, int) else None

    @property
    def ended(self) -> bool:
        """Return whether the launcher recorded the end of the job."""
        return self.exit_code is not None

    @property
    def is_live(self) -> bool:
        """Return whether a launcher on this machine is running the job now."""
        return bool(self.running) and not self.ended

    @property
    def is_done(self) -> bool:
        """Return whether the job ended successfully."""
        return self.exit_code == ExitCode.DONE

    @property
    def is_stopped(self) -> bool:
        """Return whether a user stopped the job."""
        return self.exit_code in STOPPED

    def snapshot(self) -> JobStatus:
        """Return the state of the job as a `JobStatus`, the form for programs."""
        found = {name: self.status[name] for name in JobStatus.__annotations__ if name in self.status}
        rows = {name: tuple(value) for name, value in found.items() if isinstance(value, list)}
        known = {"job_id": self.job_id, "name": self.record.name}
        return JobStatus(**{"phase": "starting", **found, **rows, **known})

    def describe(self) -> str:
        """Return the job's phase or outcome in one or two words, such as "run" or "done"."""
        if self.ended:
            return _outcome(self.exit_code)
        phase = str(self.status.get("phase") or "starting")
        if self.running is None:
            return f"{phase}, run from {self.record.launcher.host or 'an unknown machine'}"
        if self.running:
            return phase
        return "launcher exited"


def _outcome(code: int | None) -> str:
    words = {ExitCode.DONE: "done", ExitCode.NOT_CLEAN: "not clean"}
    known = {int(one): word for one, word in words.items()} | {int(one): "stopped" for one in STOPPED}
    return f"{known.get(code or 0, 'failed')} ({code})"


def all_jobs(where: StatePlaces, read_job: Callable[[Path], KnownJob | None] | None = None) -> list[KnownJob]:
    """Return all jobs, newest first.

    Args:
        read_job: function that reads the job in a directory; `read` by default.
    """
    read_job = read_job or read
    found: dict[str, KnownJob] = {}
    for place in where.all():
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                job = read_job(place / name) if is_job_id(name) else None
                if job is not None:
                    found.setdefault(name, job)
    return sorted(found.values(), key=lambda job: (job.record.submitted_at, job.job_id), reverse=True)


def read(directory: Path) -> KnownJob | None:
    """Read the job in a directory; return None if there is none."""
    fields = read_json(directory / JOB_FILE)
    if fields is None:
        return None
    try:
        record = job_record.from_json(fields)
    except ValueError:
        return None
    if record.job_id != directory.name:
        return None
    fields = read_json(directory / STATUS_FILE)
    status = read_status(fields)
    if fields is None and (directory / STATUS_FILE).exists():
        status = {"phase": f"unknown ({STATUS_FILE} cannot be read)"}
    return KnownJob(record, directory, status, record.launcher.is_alive())


def read_status(fields: dict[str, Any] | None) -> dict[str, Any]:
    """Return the valid members of a status.json; empty if the file is missing."""
    if fields is None:
        return {}
    if fields.get("version", VERSION) != VERSION:
        return {"phase": f"unknown (a different version of {PROGRAM} wrote its status)"}
    found = fitting(_Status, fields)
    for name, facts in (("nodes", NodeFacts), ("processes", ProcessFacts)):
        if isinstance(fields.get(name), list):
            found[name] = [fitting_row(facts, one) for one in fields[name] if isinstance(one, dict)]
    if isinstance(fields.get("failures"), list):
        found["failures"] = [fitting(_FailureRow, one) for one in fields["failures"] if isinstance(one, dict)]
    for name in ("left", "why"):
        if isinstance(fields.get(name), list):
            found[name] = [line for line in fields[name] if isinstance(line, str)]
    if isinstance(fields.get("preflight"), dict):
        found["preflight"] = _table(fields["preflight"])
    if "curve" in fields:
        found["curve"] = read_curve(fields["curve"])
    if isinstance(fields.get("curves"), list):
        found["curves"] = [_other_curve(one) for one in fields["curves"][:MOST] if isinstance(one, dict)]
    return found


def _table(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of texts from its JSON form; its first rows are failures."""
    headers, rows = _texts(fields.get("headers")), fields.get("rows")
    texts = [_texts(row) for row in rows[:ROWS]] if isinstance(rows, list) else []
    wrong = fields.get("wrong")
    return {
        "headers": headers,
        "rows": [row for row in texts if len(row) == len(headers)],
        "wrong": wrong if type(wrong) is int else 0,
    }


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def read_curve(value: object) -> dict[str, Any]:
    """Return the curve of costs in a status.json, without invalid points."""
    if not isinstance(value, Mapping):
        return {}
    return {
        "process": str(value.get("process")) if isinstance(value.get("process"), str) else "",
        "points": _pairs(value.get("points"), POINTS),
        "speeds": _pairs(value.get("speeds"), POINTS),
        "passes": _pairs(value.get("passes"), PASSES),
    }


def _other_curve(fields: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: fields[name] if isinstance(fields.get(name), str) else "" for name in ("process", "title")}
    return {**texts, "points": _pairs(fields.get("points"), OTHER_POINTS)}


def _pairs(value: object, most: int) -> list[list[float]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [
        list(one)
        for one in value[:most]
        if isinstance(one, list) and len(one) == 2 and all(map(_is_number, one))
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def unreadable(where: StatePlaces) -> list[str]:
    """Return a message for each job directory whose job.json exists but cannot be read."""
    return [
        (
            f"{file.parent.name}: cannot read {file}, which is ignored; `{PROGRAM} status --nodes "
            f"{file.parent.name}` restores it from the nodes of conf.py"
        )
        for file in _unreadable_files(where)
    ]


def _unreadable_files(where: StatePlaces) -> list[Path]:
    found = []
    for place in where.all():
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(place)):
                job_file = place / name / JOB_FILE
                if is_job_id(name) and job_file.exists() and read(place / name) is None:
                    found.append(job_file)
    return found


def move_unreadable_aside(directory: Path) -> bool:
    """Make room for a new job.json: rename an unreadable one; return whether a job.json can be written."""
    job_file = directory / JOB_FILE
    if not job_file.exists():
        return True
    if read(directory) is not None:
        return False
    os.replace(job_file, job_file.with_suffix(".unreadable"))
    return True


def find_or_none(where: StatePlaces, word: str) -> KnownJob | None:
    """Return the job with this ID or name, as `find` does; None if no job, or several, match."""
    with contextlib.suppress(UsageError):
        return find(where, word)
    return None


def find(where: StatePlaces, word: str) -> KnownJob:
    """Return the job with this ID or name, or whose ID begins or ends with this text.

    Raises:
        UsageError: no job matches, or several IDs do.
    """
    jobs = all_jobs(where)
    named = sorted((job for job in jobs if word and job.record.name == word), key=lambda job: not job.is_live)
    found = (
        [job for job in jobs if job.job_id == word]
        or named[:1]
        or [
            job
            for job in jobs
            if len(word) > 2 and word in (job.job_id[: len(word)], job.job_id[-len(word) :])
        ]
    )
    if not found:
        for problem in unreadable(where):
            if word and word in problem.partition(":")[0]:
                raise UsageError(problem)
        place = os.path.abspath(word)
        of_place = [job.job_id for job in jobs if place in (job.record.source, job.record.collected)]
        of_launcher = [job.title for job in jobs if word == str(job.record.launcher.pid)]
        near = (
            max(of_place, default="")
            or "".join(of_launcher[:1])
            or nearest(word, [job.record.name for job in jobs if job.record.name])
        )
        hint = f"did you mean {near}? " if near else ""
        hint += "no job of this directory is known on this machine. " * (os.path.isdir(word) and not of_place)
        raise UsageError(
            f"unknown job {word!r}; {hint}`{PROGRAM} status` lists the known jobs, and `{PROGRAM} "
            "status --nodes` queries the nodes in conf.py"
        )
    if len(found) > 1:
        names = ", ".join(job.job_id for job in found[:5])
        raise UsageError(f"{word!r} matches several jobs: {names}; give more characters of the id")
    return found[0]


def newest(where: StatePlaces) -> KnownJob:
    """Return the newest running job, or else the newest job.

    Raises:
        UsageError: there are no jobs.
    """
    jobs = all_jobs(where)
    if not jobs:
        raise UsageError(
            f"no job is known in {where.jobs}; `{PROGRAM} status --nodes` queries the nodes of conf.py"
        )
    return next((job for job in jobs if job.is_live), jobs[0])


def prune(where: StatePlaces) -> None:
    """Remove directories of jobs that ended long ago or exceed the limit, and of old unreadable jobs.

    Only the records of jobs whose files are old, or exceed the limit, are read.
    """
    known = []
    for place in where.all():
        with contextlib.suppress(OSError):
            known += [place / name for name in os.listdir(place) if is_job_id(name)]
    files = JOB_FILE, STATUS_FILE  # status.json records the end of a job, which may have begun long before
    changed = sorted(((max(_changed(f"{one}/{name}") for name in files), one) for one in known), reverse=True)
    oldest = time.time() - KEPT_S
    for index, (at, directory) in enumerate(changed):
        if 0 < at < oldest or index >= KEPT_JOBS:
            job = read(directory)
            if job is not None:
                is_over = job.ended or job.running is False
            else:  # its end is unknown: it may be running
                is_over = 0 < at < oldest and _newest(directory) < oldest
            if is_over:
                import shutil  # imports compression; few launches find such a job

                shutil.rmtree(directory, ignore_errors=True)


def _newest(directory: Path) -> float:
    """Return the time of the last write to a file in a directory; 0 if the directory has been removed meanwhile."""
    try:
        return max(map(_changed, directory.iterdir()), default=0.0)
    except OSError:
        return 0.0


def _changed(path: str | Path) -> float:
    """Return the modification time of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
