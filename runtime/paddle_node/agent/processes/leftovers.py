# SPDX-License-Identifier: Apache-2.0
"""Finds the processes of a job that remain after its agent was killed or stopped, and the agent's own processes.

A process belongs to the job by its control group, environment or session, as a descendant of such a process, or as an
orphan in the job's directory whose environment is empty. An orphan in that directory with a login environment may
belong to the user: it is considered doubtful and never signalled. Neither is a process with a terminal.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, Set, Tuple

from paddle_node.agent.processes import control_group
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.job_file import Agent, JobFile
from paddle_node.contract.names import JOB_ID
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import FoundProcess

_LOGIN = (b"HOME", b"LOGNAME", b"SHELL", b"USER")  # a login's environment has at least one of these
_REAPER = 1

Identity = Tuple[int, int]


class Traces(NamedTuple):
    """The traces of a job on this node since boot, by which its remaining processes are found.

    Attributes:
        agents: the pid and start time of the agent proper, its guard and its watcher, as far as they are recorded.
        sessions: pid -> start time of each process that the agent started as a session leader.
        group: the directory of the job's control group, or empty.
        folder: a directory used only by the job, or empty.
        since: the start time of the agent proper; older processes do not belong to the job.
    """

    job_id: str
    agents: Tuple[Identity, ...]
    sessions: Dict[int, int]
    group: str
    folder: str
    since: int


NOTHING = Traces("", (), {}, "", "", 0)


def traces(record: JobFile, is_ours_alone: bool) -> Traces:
    """Return the traces that a job's record contains.

    Args:
        is_ours_alone: whether only this job uses the job's directory.
    """
    agent = record.agent
    is_known = agent.pid > 1 and agent.start > 1
    return Traces(
        record.job_id,
        (((agent.pid, agent.start),) if is_known else ()) + agent.outer,
        dict(record.sessions),
        record.group,
        os.path.realpath(record.job_dir) if is_ours_alone else "",
        agent.start if is_known else 0,
    )


def own_agent() -> Agent:
    """Return the record of this process as an agent, with its guard and its watcher."""
    own = process_tree.process_of(os.getpid())
    outer: List[Identity] = []
    one = process_tree.process_of(own.parent) if own is not None else None
    while one is not None and len(outer) < 2 and proc.command(one.pid) == proc.command(os.getpid()):
        outer.append((one.pid, one.start))  # a fork has the same command line
        one = process_tree.process_of(one.parent)
    return Agent(os.getpid(), own.start if own is not None else 0, tuple(outer), proc.boot_id())


def agents(of: Traces) -> List[FoundProcess]:
    """Return the running processes of the agent, innermost first, except ancestors of this process."""
    seen = process_tree.snapshot()
    ours = process_tree.lineage(seen, os.getpid())
    found = [(seen.get(pid), start) for pid, start in of.agents if pid not in ours]
    return [one for one, start in found if one is not None and one.start == start and one.is_alive]


def search(of: Traces) -> Tuple[List[FoundProcess], List[FoundProcess]]:
    """Return the job's live processes, and doubtful ones; processes that only carry the job's ID may be missing."""
    seen = process_tree.snapshot()
    excluded = process_tree.lineage(seen, os.getpid())
    candidates = {pid: one for pid, one in seen.items() if one.is_alive and one.start >= of.since > 0}
    for pid in excluded:
        candidates.pop(pid, None)
    held = {one.pid for one in control_group.members(of.group)} - excluded
    sure: Set[int] = {pid for pid, one in candidates.items() if _is_of_session(one, of, seen)}
    doubtful: List[FoundProcess] = []
    for one in candidates.values():
        if one.pid in sure or one.parent != _REAPER or not _works_in(one.pid, of.folder):
            continue
        if one.terminal or not proc.is_ours(one.pid):
            continue
        if any(entry.split(b"=")[0] in _LOGIN for entry in proc.environ(one.pid)):
            doubtful.append(one)
        else:
            sure.add(one.pid)
    sure |= process_tree.descendants(seen, sure) & candidates.keys()
    others = {pid for pid in sure if _is_anothers(pid, of.job_id)}
    found = [seen[pid] for pid in sorted((sure - others) | held) if pid in seen]
    return found, [one for one in doubtful if not _is_anothers(one.pid, of.job_id)]


def _is_of_session(one: FoundProcess, of: Traces, seen: Dict[int, FoundProcess]) -> bool:
    """Return whether a process is in a session that a process of the job led or leads."""
    if one.session not in of.sessions or one.terminal:
        return False
    leader = seen.get(one.session)
    return leader is None or leader.start == of.sessions[one.session]


def _is_anothers(pid: int, job_id: str) -> bool:
    marks = [entry for entry in proc.environ(pid) if entry.startswith(JOB_ID.encode() + b"=")]
    return bool(marks) and os.fsencode("%s=%s" % (JOB_ID, job_id)) not in marks


def _works_in(pid: int, folder: str) -> bool:
    """Return whether a process has its working directory in a directory, or has a file below it open."""
    return bool(folder) and any((path + "/").startswith(folder + "/") for path in _paths(pid))


def _paths(pid: int) -> Iterator[str]:
    place = "/proc/%d" % pid
    try:
        yield os.readlink(place + "/cwd")
        for name in os.listdir(place + "/fd"):
            yield os.readlink(place + "/fd/" + name)
    except OSError:  # exited, or of another user
        return
