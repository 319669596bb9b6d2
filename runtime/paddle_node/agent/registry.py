# SPDX-License-Identifier: Apache-2.0
"""The records of a node's jobs: one small file per job and node ID, by which any machine can find and end a job.

A record is written when the job's directory exists, and marked when the agent exits. The pid, start time and boot
together identify a running agent. If the disk cannot be written, only the record is lost.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any, Callable, Container, Dict, Iterable, List, Optional, Tuple

from paddle_node.agent.files import disk, saved_files
from paddle_node.agent.processes import leftovers
from paddle_node.contract import checked_json
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.job_file import Agent, Ended, Entry, JobFile, Submitter
from paddle_node.contract.names import JOB_ID, NODE_ID
from paddle_node.contract.records import Fields, fields_of, fitting
from paddle_node.linux import proc, process_tree

FOLDER = "/.paddle/jobs"
RECORD_LIMIT = 1 << 16
LISTED = 200
SESSIONS = 500  # of the most recently started processes
KEPT_ENDED = 50
KEPT_S = 30 * 86400.0


class Registry:
    """The record of this agent's own job, as a file on the node.

    Args:
        marks: the job's marks, known after `hello`.
        keeps_state: whether the job's directory contains state that outlives it.
        saves_as: the name of the directory in which its scripts save, or empty.
        notice: sends a message to the launcher.
    """

    def __init__(
        self,
        root_dir: str,
        marks: Dict[str, str],
        submitter: Optional[Submitter],
        keeps_state: bool,
        saves_as: str,
        notice: Callable[[str], None],
    ) -> None:
        self._folder = root_dir + FOLDER
        name = "%s.%s.json" % (marks[JOB_ID], marks.get(NODE_ID, "x"))
        self._path = self._folder + "/" + name
        self._notice = notice
        self._has_warned = self._has_folder = False
        self._record = JobFile(
            job_id=marks[JOB_ID],
            agent=leftovers.own_agent(),
            node_id=int(marks.get(NODE_ID, 0)),
            submitter=submitter or Submitter(),
            keeps_state=keeps_state,
            saves_as=saves_as,
            root_dir=root_dir,
            hostname=socket.gethostname(),
            since=time.time(),
        )
        self._begun = False

    def begin(self, job_dir: str, group: str) -> None:
        """Write the record of the job, whose directory exists now, with its control group or ""."""
        self._record = self._record._replace(job_dir=job_dir, group=group)
        self._begun = True
        self._save()
        prune(self._folder)

    def outlived(self, keep: int) -> List[str]:
        """Return the job directories that can be removed when this job begins; see the function `outlived`."""
        return outlived(self._record, keep)

    def add(self, name: str, role: str, rank: int, pid: int) -> None:
        """Add a process that was started to the record."""
        known = self._record
        if not any(one.name == name for one in known.processes):
            entry = Entry(name[:200], role[:200], rank)
            self._record = known = known._replace(processes=(*known.processes, entry))
        found = process_tree.process_of(pid)
        if found is not None:
            self._record = known._replace(sessions=(*known.sessions[1 - SESSIONS :], (pid, found.start)))
        self._save()

    def end(self, how: str, settled: bool) -> None:
        """Record that this agent leaves and the job has ended on this node.

        Args:
            settled: whether the launcher has received everything that it collects.
        """
        self._record = self._record._replace(ended=Ended(time.time(), how, settled))
        self._save()

    def _save(self) -> None:
        if not self._begun:
            return
        try:
            if not self._has_folder or not os.path.isdir(self._folder):
                disk.own_folder(*os.path.split(self._folder))
                self._has_folder = True
            write(self._path, self._record)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._notice(
                    "cannot write %s (%s): other machines cannot find the job on this node"
                    % (self._path, error.strerror)
                )


class Known(NamedTuple):
    """A job's record on disk, with what is known about its agent.

    Attributes:
        agent: the job's agent if it is running.
        traces: where to search for processes that it left since this boot; empty in a listing.
    """

    record: JobFile
    agent: Optional[process_tree.FoundProcess]
    traces: leftovers.Traces = leftovers.NOTHING


def known(
    root_dir: str, among: Optional[Container[str]] = None, naming: Optional[Iterable[str]] = None
) -> List[Known]:
    """Return the records of jobs on this machine below a root directory; omit unreadable ones.

    Args:
        among: only files with the names of these jobs are read.
        naming: only files that contain one of these job IDs are decoded, which takes longer than reading them.
    """
    texts = None if naming is None else [json.dumps(name)[1:-1].encode() for name in naming]
    folder = root_dir + FOLDER
    found = []
    try:
        names = sorted(os.listdir(folder), reverse=True)
    except OSError:
        return []
    for name in names:
        if not name.endswith(".json") or name.startswith("."):
            continue
        if among is not None and name.rsplit(".", 2)[0] not in among:
            continue
        record = read(folder + "/" + name, texts)
        if record is not None and _is_here(record):
            found.append(Known(record, _living(record)))
    return found


def before_us(root_dir: str, marks: Dict[str, str]) -> List[Known]:
    """Return the records that earlier agents wrote for a job, or for one of its nodes."""
    node_id, found = marks.get(NODE_ID), known(root_dir, naming=[marks[JOB_ID]])
    own = "%s/%s" % (root_dir, os.path.basename(marks[JOB_ID]))
    users = [one for one in found if one.record.job_dir == own]
    return [
        one._replace(traces=leftovers.traces(one.record, users == [one]))
        if one.record.agent.boot_id == proc.boot_id()
        else one
        for one in found
        if one.record.job_id == marks[JOB_ID]
        and node_id in (None, str(one.record.node_id))
        and (one.agent is None or one.agent.pid != os.getpid())
    ]


def describe(root_dir: str) -> List[Fields]:
    """Return this node's jobs for `jobs_found`: records, and processes with a job's ID but without a record."""
    marked: Dict[str, List[List[Any]]] = {}
    for one in process_tree.snapshot().values():
        name = job_of(one.pid)
        if name and one.is_alive:
            marked.setdefault(name, []).append([one.pid, proc.command(one.pid)])
    found = [
        dict(fields_of(record), alive=agent is not None, running=marked.pop(record.job_id, [])[:LISTED])
        for record, agent, _ in known(root_dir)[:LISTED]
    ]
    return found + [
        {"job_id": name, "alive": False, "running": processes[:LISTED], "unrecorded": True}
        for name, processes in list(marked.items())[:LISTED]
    ]


def job_of(pid: int) -> str:
    """Return the job ID in the environment of a process of this user; "" if it has none, or cannot be read."""
    prefix = (JOB_ID + "=").encode()
    values = [entry[len(prefix) :] for entry in proc.environ(pid) if entry.startswith(prefix)]
    return values[0].decode("utf-8", "replace")[:200] if values else ""


def read(path: str, texts: Optional[List[bytes]] = None) -> Optional[JobFile]:
    """Return the record in a file, or None if there is none; invalid members count as missing.

    Args:
        texts: a file that contains none of these counts as none.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.read(fd, RECORD_LIMIT)  # without a buffered file: a node keeps many records
        finally:
            os.close(fd)
        if texts is not None and not any(text in data for text in texts):
            return None
        found = checked_json.as_object(data)
        agent = Agent(**fitting(Agent, found["agent"]))
        return JobFile(**dict(fitting(JobFile, found), agent=agent))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):  # it has no job ID, or no agent
        return None


def write(path: str, record: JobFile) -> None:
    """Write a record to a file, atomically: readers see the old one or the new one."""
    temporary = "%s/.%s.%d" % (os.path.dirname(path), os.path.basename(path), os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(temporary, flags, 0o600)
        try:
            disk.write_at(fd, json.dumps(fields_of(record)).encode(), 0)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except OSError:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def prune(folder: str) -> None:
    """Remove the records of jobs that ended long ago, and all but the newest of the remaining records."""
    try:
        names = sorted((name for name in os.listdir(folder) if name.endswith(".json")), reverse=True)
    except OSError:
        return  # it could not be created, as already reported
    for index, name in enumerate(names):
        path = folder + "/" + name
        try:  # only a file that may be removed is read
            if index >= KEPT_ENDED or os.stat(path).st_mtime < time.time() - KEPT_S:
                record = read(path)
                if record is None or (_is_here(record) and _living(record) is None):
                    os.unlink(path)
        except OSError:
            continue


def outlived(latest: JobFile, keep: int) -> List[str]:
    """Return the directories of a workspace's earlier jobs that are no longer needed.

    Still needed are those of the last `keep` jobs that have a directory, including the latest job, and those of every
    job that is running, was not collected completely, has saved checkpoints there, or ran in a directory of the user.
    """
    root_dir, workspace = latest.root_dir, _workspace(latest)
    if not workspace:
        return []
    try:
        there = set(os.listdir(root_dir))
    except OSError:
        return []
    found = [one for one in known(root_dir, among=there) if _workspace(one.record) == workspace]
    found.sort(key=lambda one: one.record.since, reverse=True)
    over = [one for one in found[keep:] if _is_there(one, root_dir) and not _needed(one)]
    return [one.record.job_dir for one in over] + _saved_by(over, root_dir) if over else []


def _saved_by(over: List[Known], root_dir: str) -> List[str]:
    """Return the checkpoint directories of jobs' scripts, except named ones and those that another job uses."""
    names = {one.record.job_id for one in over}
    used = {one.record.saves_as for one in known(root_dir, naming=names) if one.record.job_id not in names}
    return ["%s/%s/%s" % (root_dir, saved_files.FOLDER, name) for name in sorted(names - used)]


class Cleanable(NamedTuple):
    """The job directories of a node that can be removed, and the reasons to keep the remaining ones.

    Attributes:
        gone: (job ID, path) of the removable jobs.
        kept: (job ID, reason) of the others.
        saved: the unnamed directories that scripts of the removable jobs saved to.
    """

    gone: List[Tuple[str, str]]
    kept: List[Tuple[str, str]]
    saved: List[str]


def cleanable(root_dir: str, older_s: float) -> Cleanable:
    """Return which job directories below a root directory can be removed, in all workspaces.

    Args:
        older_s: only those of jobs that ended at least this many seconds ago.
    """
    found = Cleanable([], [], [])
    for one in known(root_dir):
        if not _is_there(one, root_dir):
            continue
        name, ended = one.record.job_id, one.record.ended or Ended()
        why = _needed(one)
        if not why and time.time() - ended.at < older_s:
            why = "it ended too recently"
        if why:
            found.kept.append((name, why))
        else:
            found.gone.append((name, one.record.job_dir))
            found.saved.extend(_saved_by([one], root_dir))
    return found


def _is_there(job: Known, root_dir: str) -> bool:
    """Return whether a job has its own directory below this root directory."""
    own = "%s/%s" % (root_dir, os.path.basename(job.record.job_id))
    return job.record.job_dir == own and os.path.isdir(own) and not os.path.islink(own)


def _needed(job: Known) -> str:
    """Return why a job's directory may still be needed, or an empty string."""
    ended = job.record.ended
    if job.agent is not None:
        return "it runs"
    if ended is None or not ended.settled:
        return "its files were not collected completely"
    return "it may contain checkpoints" if job.record.keeps_state else ""


def _workspace(record: JobFile) -> Optional[Tuple[str, ...]]:
    """Return the user, host and collection folder that identify a job's workspace; None if one is unknown."""
    names = record.submitter.user, record.submitter.host, record.submitter.collected
    return names if all(names) else None


def _is_here(record: JobFile) -> bool:
    """Return whether a record is of this machine: several machines may share a root directory."""
    return record.hostname == socket.gethostname()


def _living(record: JobFile) -> Optional[process_tree.FoundProcess]:
    agent = record.agent
    if agent.pid <= 1 or agent.boot_id != proc.boot_id():
        return None
    return process_tree.living(agent.pid, agent.start)
