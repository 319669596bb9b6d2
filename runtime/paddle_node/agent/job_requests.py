# SPDX-License-Identifier: Apache-2.0
"""Handles requests about jobs: records the agent's own job, lists the node's jobs, and ends jobs on request.

Requests come from short-lived visitors and from a job's launcher; a visitor itself is never recorded.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional

from paddle_node.agent import registry
from paddle_node.agent.files import disk, saved_files, shared_folders
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.link.outbox import Outbox
from paddle_node.agent.node.probe_child import ProbeChild
from paddle_node.agent.processes import leftovers
from paddle_node.agent.processes.stopper import Scope, Stop
from paddle_node.agent.registry import Cleanable, Known, Registry
from paddle_node.contract import to_agent
from paddle_node.contract.names import JOB_ID
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import FoundProcess

LISTING_S = 20.0  # a file system may hang
AGAIN_S = 4.0  # time for a stopped agent to stop its job, while its launcher waits
AGENT_S = 12.0  # time for an agent to stop its job and exit
LOOK_S = 0.1
UNSEEN = (
    "its agent was killed and the job had no control group: processes that cleared their environment and left the "
    "job's directory may still run and cannot be identified"
)
RESERVED = "another job, which reserved it for a pserver"
DOUBTFUL = "pid %d (%s) is in the job's directory; it may belong to the job or to you, so it was not stopped"


class JobRequests:
    """Handles requests about jobs, for one agent, beginning with `hello`.

    Attributes:
        saved: the directory in which the job's scripts save files, or None without a job.
        stays: whether the launcher wants an agent to wait on this node for its next job.
    """

    def __init__(self, loop: Loop, outbox: Outbox) -> None:
        self._loop = loop
        self._outbox = outbox
        self._root_dir: Optional[str] = None
        self._registry: Optional[Registry] = None
        self._keep: Optional[int] = None
        self._how = ""
        self._settled = False
        self._reserved: Optional[socket.socket] = None
        self.saved: Optional[saved_files.SavedFiles] = None
        self.stays = False

    def open(self, root_dir: str, marks: Dict[str, str], hello: to_agent.Hello) -> None:
        """Handle `hello`: record which job and launcher this agent serves."""
        self._root_dir = root_dir
        self.saved = saved_files.of(root_dir, marks[JOB_ID], hello.saved)
        saves_as = self.saved.name if self.saved is not None else ""
        self._registry = Registry(
            root_dir, marks, hello.submitter, hello.keeps_state, saves_as, self._outbox.notice
        )
        self._keep = hello.keep_jobs
        self.stays = hello.resident is not None
        if hello.resident is not None and hello.resident.port:
            self._outbox.send("resident", address=hello.resident.address, port=hello.resident.port)

    def reserve(self, asked: to_agent.Reserve) -> None:
        """Answer `reserve`: reserve a port that no process uses, in place of the one reserved before."""
        from paddle_node.agent.node import network  # only for jobs with Fluid pservers
        from paddle_node.linux import ports

        self._release()
        self._reserved = ports.reserve(asked.address, asked.port)
        owner = RESERVED
        if self._reserved is not None:
            owner = network.owner_if_busy(asked.address, asked.port)
        if owner:
            self._release()
        self._outbox.send("reserved", port=asked.port, owner=owner)

    def _release(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def begin(self, job_dir: str, group: str) -> None:
        """Record the job's directory, and the control group of its processes, or ""."""
        if self.saved is not None:
            self.saved.make()
        if self._registry is not None:
            self._registry.begin(job_dir, group)
            if self._keep is not None:
                self._loop.chore(disk.removing(self._registry.outlived(self._keep)))

    def with_saved(self, asked: to_agent.Start) -> to_agent.Start:
        """Return a `start` with the directory for saved files added to its environment."""
        return asked if self.saved is None else self.saved.added_to(asked)

    def started(self, asked: to_agent.Start, pid: int) -> None:
        """Record the process that a `start` has started."""
        if self._registry is not None:
            self._registry.add(asked.proc, asked.role, asked.rank, pid)

    def end_before_us(
        self, marks: Dict[str, str], grace_s: float, done: Callable[[List[FoundProcess], int, str], None]
    ) -> bool:
        """End the processes that an earlier agent of this job left; return False if no agent was cut off."""
        if self._root_dir is None:  # no valid `hello` was received
            return False
        left = any(one.agent or one.record.ended is None for one in registry.before_us(self._root_dir, marks))
        if left:
            End(self._loop, self._root_dir, marks, grace_s, lambda _, left, why: done(left, 0, why), AGAIN_S)
        return left

    def leaving(self, how: str) -> None:
        """Record the reason for which the agent exits; ignore later reasons."""
        self._how = self._how or how

    def settled(self) -> None:
        """Record that the launcher has received all collected files; the next job may use this one's port."""
        self._release()
        self._settled = True

    def close(self) -> None:
        """Complete the record when the agent exits and no process of the job remains on this node."""
        self._release()
        if self.saved is not None:
            self.saved.close()
        if self._registry is not None:
            self._registry.end(self._how or "its agent exited", self._settled)

    def jobs(self) -> None:
        """Answer `jobs`: list the jobs on this node."""
        self._outbox.send(
            "jobs_found", jobs=registry.describe(self._root()), residents=self._residents(False)
        )

    def end_job(self, asked: to_agent.EndJob) -> None:
        """Answer `end_job`: end a job on this node."""
        name = asked.job_id

        def done(reports: List[str], left: List[FoundProcess], unsure: str) -> None:
            named = [[one.pid, proc.command(one.pid)] for one in left]
            self._outbox.send("job_ended", job_id=name, told=reports, left=named, unsure=unsure)

        End(self._loop, self._root(), {JOB_ID: name}, asked.grace_s, done)

    def clean(self, asked: to_agent.Clean) -> None:
        """Answer `clean`: remove the files of ended jobs."""
        found = registry.cleanable(self._root(), asked.older_s)
        self._loop.work(self._cleaning(found, asked.older_s, asked.dry_run))

    def checkpoints(self, folder: str) -> None:
        """Answer `checkpoints`: list the checkpoints in a folder, in a child process."""
        from paddle_node.agent.node import checkpoints  # like the other late imports, for rare requests

        folder = os.path.expanduser(folder)
        folder = os.path.join(self._root(), folder) if folder else ""

        def listed(_name: str, found: Any, problem: str, _took_s: float) -> None:
            if problem:
                self._outbox.send("failed", request="checkpoints", reason="os", detail=problem)
            else:
                self._outbox.send("checkpoints_found", **found)

        listing = partial(checkpoints.list_all, folder, self._root())
        ProbeChild(self._loop, [("checkpoints", listing)], LISTING_S, listed)

    def verify(self, asked: to_agent.Verify) -> None:
        """Answer `verify`: verify parts of checkpoints, in a child process."""
        from paddle_node.agent.node.verification import Verification

        Verification(
            self._loop,
            os.path.join(self._root(), os.path.expanduser(asked.folder)),
            asked.parts,
            lambda read, total: self._outbox.send("verifying", bytes=read, total=total),
            lambda problems: self._outbox.send("verified", problems=sorted(problems.items())),
        )

    def _cleaning(self, found: Cleanable, older_s: float, dry_run: bool) -> Iterator[None]:
        sizes = []
        for name, path in found.gone:
            size = 0
            for part in disk.sizes(path):
                size += part
                yield
            if not dry_run:
                yield from disk.removing([path])
            sizes.append([size, name])
        if not dry_run:
            yield from disk.removing(found.saved)
        stayed = [name for name, path in found.gone if not dry_run and os.path.lexists(path)]
        environments = []
        unused, in_use = shared_folders.cleanable(self._root(), older_s)
        for name in unused:
            size = 0
            for part in disk.sizes(self._root() + shared_folders.ENVIRONMENTS + "/" + name):
                size += part
                yield
            if not dry_run and not (yield from shared_folders.remove(self._root(), name)):
                in_use.append((name, shared_folders.IN_USE))
                continue
            environments.append([size, name])
        kept = dict(found.kept + [("environment " + name, why) for name, why in in_use])
        self._outbox.send(
            "cleaned",
            jobs=sizes,
            environments=environments,
            kept=kept,
            stayed=stayed,
            residents=self._residents(not dry_run),
        )

    def _residents(self, end: bool) -> List[List[Any]]:
        """Return the resident agents of this root directory; with `end`, those that were asked to exit."""
        from paddle_node.agent.processes import residents

        found = [one for one in residents.find() if one.root_dir == self._root()]
        return [[one.process.pid, one.port, one.wait_s, one.has_job] for one in found if not end or one.end()]

    def _root(self) -> str:
        if self._root_dir is None:
            raise ValueError("expected a hello message first")
        return self._root_dir


class End:
    """The end of a job on this node, requested by a visitor or by a launcher that has logged in again.

    The job's own agent receives TERM and stops the job. Then, remaining processes that certainly belong to the job are
    stopped. No other process is signalled.

    Args:
        marks: the environment variables that mark the job's processes, such as the job's ID.
        agent_s: time in seconds for the job's agent to exit, beyond the grace period.
        done: function that is called once with a list of one sentence per record, the remaining processes, and a
            sentence about what may remain, or an empty string.
    """

    def __init__(
        self,
        loop: Loop,
        root_dir: str,
        marks: Dict[str, str],
        grace_s: float,
        done: Callable[[List[str], List[FoundProcess], str], None],
        agent_s: float = AGENT_S,
    ) -> None:
        self._loop = loop
        self._marks = marks
        self._grace_s = grace_s
        self._done = done
        self._report: List[str] = []
        self._deadline = time.monotonic() + agent_s + grace_s
        records = registry.before_us(root_dir, marks)
        self._traces = [known.traces for known in records]
        self._unsure = any(
            known.agent is None and known.record.ended is None and not known.record.group for known in records
        )
        self._stopping = [known for known in records if self._ask(known)]
        if not records:
            self._report.append("no record of the job on this node")
        self._wait()

    def _ask(self, known: Known) -> bool:
        """Ask the agent to stop the job; return False if no agent is running."""
        if known.agent is None:
            self._report.append("its agent has exited")
            return False
        try:
            process_tree.send(known.agent, signal.SIGTERM)
            for one in leftovers.agents(known.traces):
                process_tree.send(one, signal.SIGCONT)  # a stopped agent handles TERM once it is continued
        except PermissionError:
            self._report.append("its agent (pid %d) belongs to another user" % known.agent.pid)
            return False
        return True

    def _wait(self) -> None:
        alive = [one for known in self._stopping for one in leftovers.agents(known.traces)]
        if alive and time.monotonic() < self._deadline:
            self._loop.after(LOOK_S, self._wait)
            return
        self._report += ["its agent (pid %d) did not exit" % one.pid for one in alive]
        if self._stopping and not alive:
            self._report.append("its agent stopped it")
        Stop(self._loop, Scope(self._marks, set, more=self._find), self._grace_s, self._stopped)

    def _find(self) -> List[FoundProcess]:
        """Return the processes without marks: those of agents, and those that agents left running."""
        found = {
            one.pid: one for of in self._traces for one in leftovers.search(of)[0] + leftovers.agents(of)
        }
        return list(found.values())

    def _stopped(self, left: List[FoundProcess], killed: int) -> None:
        if killed:
            self._report.append("%d processes were killed" % killed)
        doubtful = {one.pid for of in self._traces for one in leftovers.search(of)[1]} - {
            one.pid for one in left
        }
        sentences = [DOUBTFUL % (pid, proc.command(pid)) for pid in sorted(doubtful)]
        self._done(self._report, left, "; ".join(sentences + [UNSEEN] * self._unsure))
