# SPDX-License-Identifier: Apache-2.0
"""The record of a job on a node, as stored in a file and as reported in the answer to `jobs`."""

from __future__ import annotations

from typing import Optional, Tuple

from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import Moment, NodePath, Number, OneLine, Pid, Rank, Whole


class Submitter(NamedTuple):
    """The process that submitted a job; `start` and `boot_id` make its pid unique."""

    user: OneLine = ""
    host: OneLine = ""
    pid: Whole = 0
    start: Whole = 0
    boot_id: OneLine = ""
    collected: OneLine = ""


class Agent(NamedTuple):
    """The agent proper of a job: its process on the node.

    Attributes:
        outer: the pid and start time of its guard and its watcher.
    """

    pid: Whole = 0
    start: Whole = 0
    outer: Tuple[Tuple[Pid, Whole], ...] = ()
    boot_id: str = ""


class Ended(NamedTuple):
    """How and when a job ended on a node.

    Attributes:
        settled: whether the launcher has received everything that it collects.
    """

    at: Number = 0.0
    how: OneLine = ""
    settled: bool = False


class Entry(NamedTuple):
    """A process of a job, as recorded in the job's file on the node."""

    name: str = ""
    role: OneLine = ""
    rank: Rank = 0


class JobFile(NamedTuple):
    """The record of a job on a node, as stored in a file.

    Attributes:
        keeps_state: whether the job's directory contains state that outlives it, such as checkpoints.
        saves_as: the name of the directory in which its scripts save, or empty.
        group: the directory of its processes' control group, or empty.
        sessions: the pid and start time of each process that the agent started.
    """

    job_id: str
    agent: Agent
    node_id: Whole = 0
    submitter: Submitter = Submitter()
    keeps_state: bool = True
    saves_as: str = ""
    processes: Tuple[Entry, ...] = ()
    job_dir: NodePath = ""
    group: NodePath = ""
    root_dir: NodePath = ""
    sessions: Tuple[Tuple[Pid, Whole], ...] = ()
    hostname: str = ""
    since: Moment = 0.0
    ended: Optional[Ended] = None


class JobFound(NamedTuple):
    """A job known to a node, from its record or from the environment of its processes.

    Attributes:
        alive: whether its agent is running.
        running: (pid, command) of the processes that carry its ID.
        unrecorded: whether the node has no record of it.
    """

    job_id: OneLine
    alive: bool
    running: Tuple[Tuple[Pid, OneLine], ...]
    submitter: Submitter = Submitter()
    processes: Tuple[Entry, ...] = ()
    job_dir: OneLine = ""
    since: Moment = 0.0
    ended: Optional[Ended] = None
    unrecorded: bool = False
