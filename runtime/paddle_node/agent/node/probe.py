# SPDX-License-Identifier: Apache-2.0
"""Examines a node for preflight, before a job changes anything on it.

Checks that can be slow or hang run in parallel outside the loop, each with a deadline; the answer is sent after the
last one. Only a listener on the job's address stays open until `close`, because other nodes probe the path to this node
while the job runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from paddle_node.agent.files import disk, storage
from paddle_node.agent.link.identity import login_address
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.node import known_python, limits, network
from paddle_node.agent.node.probe_child import Check, ProbeChild
from paddle_node.agent.node.reach import Listeners
from paddle_node.agent.processes import environment
from paddle_node.contract import to_agent
from paddle_node.contract.classes import regex
from paddle_node.linux import interfaces, ownership

if TYPE_CHECKING:
    from paddle_node.agent.node.ask_python import Told

CHECK_S = 6.0  # one check outside the loop
RECALLED = "python known"

Problems = List[List[str]]
Done = Callable[[Dict[str, Any]], None]


class Probe:
    """The preflight examination of this node; holds its listeners and its mark until `close`."""

    def __init__(self, loop: Loop, root_dir: str, python: str) -> None:
        self._loop = loop
        self._root_dir = root_dir
        self._python = python
        self._listeners = Listeners(loop)
        self._mark = ""
        self._python_answer: Optional[Tuple[str, List[str]]] = (
            None  # the job's Python: its identity and its files
        )

    def run(self, asked: to_agent.Probe, done: Done) -> None:
        """Start the checks that a `probe` requests; `done` later receives the fields of `probed`.

        Raises:
            ValueError: the address is not an IP address.
        """
        problems: Problems = []
        have = interfaces.placed()
        chosen = network.candidates(asked.address, asked.nic, login_address(), have)
        modules, entry = list(asked.modules), asked.entry
        workspace = _workspace(asked.workspace, self._root_dir)
        if chosen.problem:
            problems.append(["nic", chosen.problem])
        listen_ports = self._listeners.listen(chosen.addresses, problems)
        found = _known_at_once(asked.variables)
        found.update(
            root_dir=self._root_dir,
            networks=[list(one) for one in have if one.address in listen_ports],
            address=chosen.addresses[0],
            listen_port=listen_ports.get(chosen.addresses[0], 0),
            listen_ports=listen_ports,
        )
        run = _ProbeRun(self._loop, found, problems, done)
        answered = self._python_answered(run)

        def ask() -> None:
            from paddle_node.agent.node.ask_python import (
                ask_python,
            )  # like the other late imports, for few jobs

            ask_python(self._loop, self._python, modules, asked.limit_s, answered)

        if not modules:
            recall = partial(known_python.recall, self._root_dir, self._python, environment.base(os.environ))
            run.beside(RECALLED, recall, lambda _, known: answered(known, {}, "", []) if known else ask())
        other_disks = {"home": os.path.expanduser("~"), "/tmp": "/tmp"}  # noqa: S108 - only looked at
        marked = workspace or self._root_dir
        run.beside(
            "root_dir",
            partial(_root_dir, self._root_dir, marked, asked.token, asked.node_id),
            self._root_dir_seen(run, asked.need_bytes, asked.need_files),
        )
        for name, path in other_disks.items():
            run.beside(name, partial(storage.examine, path, write=False), run.disk)
        if workspace:
            from paddle_node.agent.node.workspace import code_of, workspace_problem

            run.beside(
                "workspace",
                partial(workspace_problem, workspace, entry, asked.module, self._root_dir),
                run.workspace,
            )
            if asked.code:
                run.beside("code", partial(code_of, workspace, entry), run.keep)
        if asked.write_to is not None:
            from paddle_node.agent.node.workspace import folder_problem

            run.beside("checkpoint_dir", partial(folder_problem, asked.write_to), run.trouble)
        if asked.resumed_from is not None:
            from paddle_node.agent.node.checkpoints import pserver_parts

            folder = os.path.expanduser(asked.resumed_from)
            run.beside("checkpoints", partial(pserver_parts, folder), run.keep)
        run.beside("machine", limits.kernel_limits, run.keep)
        run.beside("ports", partial(network.busy_ports, list(listen_ports), asked.ports), run.ports)
        run.beside("gpus", _ask_gpus if asked.gpus else _gpus_of_driver, run.gpus)
        run.begin()
        if modules:
            ask()

    def _python_answered(self, run: "_ProbeRun") -> Told:
        begun = time.monotonic()

        def answered(
            identity: Optional[str], versions: Dict[str, Any], problem: str, files: List[str]
        ) -> None:
            if problem:
                run.problems.append(["python", problem])
            if identity and files:
                self._python_answer = identity, files
            version, *kind = identity.split("|") if identity else [None]
            run.found.update(python_version=version, python_kind=kind, modules=versions)
            run.finish("python", time.monotonic() - begun)

        return answered

    def remember(self) -> None:
        """Cache the answer of the job's Python, now that a job runs here."""
        if self._python_answer is not None:
            with contextlib.suppress(OSError):  # then it is queried again
                known_python.remember(
                    self._root_dir, self._python, environment.base(os.environ), *self._python_answer
                )

    def neighbours(self) -> List[int]:
        """Return the IDs of the nodes with marks in the same folder, which has just responded or has no mark."""
        try:
            return storage.marks_of_others(self._mark) if self._mark else []
        except OSError:
            return []

    def leave_to_job(self, address: str = "") -> None:
        """Remove the mark and listen only on the job's address; called when all nodes have been checked."""
        if address:
            self._listeners.keep(address)
        self._unmark()

    def close(self) -> None:
        """Close the listeners and remove the mark."""
        self._listeners.close()
        self._unmark()

    def _unmark(self) -> None:
        if self._mark:
            storage.remove_mark(self._mark)
            self._mark = ""

    def _root_dir_seen(self, run: "_ProbeRun", need: float, need_files: float) -> Callable[[str, Any], None]:
        def seen(name: str, facts: Any) -> None:
            problem, unsafe = facts.pop("write_problem"), facts.pop("unsafe")
            self._mark = facts.pop("mark")
            free = facts["free_bytes"]
            if problem:
                text = "cannot write to %s: %s; set ROOT_DIR in conf.py to a different directory" % (
                    facts["parent"],
                    problem,
                )
                run.problems.append(["root_dir", text])
            elif unsafe:
                text = "other users could change a job in %s: %s (ROOT_DIR in conf.py)" % (
                    self._root_dir,
                    unsafe,
                )
                run.problems.append(["root_dir", text])
            has_room_problem = problem in (None, os.strerror(errno.ENOSPC))
            if free < need and has_room_problem:
                text = (
                    "%s has %s free, but %s are needed; free some space, or set a different ROOT_DIR in conf.py"
                    % (
                        self._root_dir,
                        disk.size_text(free),
                        disk.size_text(need),
                    )
                )
                run.problems.append(["disk", text])
            inodes = facts["free_inodes"]
            if inodes is not None and inodes < need_files and has_room_problem:
                text = "%s has %d free inodes, but %d are needed; remove files, or set a different ROOT_DIR"
                run.problems.append(["disk", text % (self._root_dir, inodes, need_files)])
            run.found.update(free_bytes=free, writable=problem is None)
            run.keep(name, facts)

        return seen


class _ProbeRun:
    """One probe in progress: which results are still expected, which are known, and how long each took."""

    def __init__(self, loop: Loop, found: Dict[str, Any], problems: Problems, done: Done) -> None:
        self.found = found
        self.problems = problems
        self._loop = loop
        self._done = done
        self._open = ["python"]  # names for which `finish` has yet to be called
        self._checks: List[Check] = []
        self._uses: Dict[str, Callable[[str, Any], None]] = {}
        self._steps: Dict[str, float] = {}
        found.update(
            problems=problems, remarks=[], steps=self._steps, busy_ports=[], busy_at={}, facts={"disks": []}
        )
        found.update(free_bytes=0, writable=False)

    def finish(self, name: str, took_s: float) -> None:
        """Handle the completion of one check."""
        if name != RECALLED:  # a part of `python`
            self._steps[name] = round(took_s, 4)
        self._open.remove(name)
        if not self._open:
            self._done(self.found)

    def beside(self, name: str, work: Callable[[], Any], use: Callable[[str, Any], None]) -> None:
        """Schedule a check outside the loop; its failure is a warning, or a problem for ROOT_DIR."""
        self._open.append(name)
        self._checks.append((name, work))
        self._uses[name] = use

    def begin(self) -> None:
        """Start all scheduled checks."""
        ProbeChild(self._loop, self._checks, CHECK_S, self._answered)

    def _answered(self, name: str, answer: Any, problem: str, took_s: float) -> None:
        if problem and name == RECALLED:
            self._uses[name](name, None)
        elif problem:
            kind = "problems" if name in ("root_dir", "workspace") else "remarks"
            text = "%s: %s; set ROOT_DIR in conf.py to a different directory"
            is_root = name == "root_dir"
            self.found[kind].append([name, text % (self.found[name], problem) if is_root else problem])
        else:
            self._uses[name](name, answer)
        self.finish(name, took_s)

    def keep(self, name: str, facts: Any) -> None:
        """Store the result of a check under its name, without changes."""
        self.found["facts"][name] = facts

    def disk(self, _name: str, facts: Any) -> None:
        """Store the facts of a disk other than ROOT_DIR's."""
        self.found["facts"]["disks"].append(facts)

    def ports(self, _name: str, answer: Any) -> None:
        """Store {address: [[port, owner]]} and the ports that cannot be used at all."""
        busy_at, problems = answer
        self.found.update(busy_at=busy_at, busy_ports=busy_at.get(self.found["address"], []))
        self.problems += problems

    def gpus(self, _name: str, answer: Any) -> None:
        """Store the facts of the GPUs."""
        self.found["gpus"] = answer

    def trouble(self, name: str, problem: Any) -> None:
        """Record a problem, unless it is empty."""
        if problem:
            self.problems.append([name, problem])

    def workspace(self, name: str, answer: Any) -> None:
        """Record the problem with the workspace, or a warning if a job can still run there."""
        text, serious = answer
        if text:
            (self.problems if serious else self.found["remarks"]).append([name, text])


def _known_at_once(variables: Sequence[str]) -> Dict[str, Any]:
    """Return the facts that need no check."""
    return {
        "nics": interfaces.interfaces(),
        "variables": network.own_variables(variables),
        "has_rdma": network.has_rdma(),
        "login_address": login_address(),
        "cpus": len(os.sched_getaffinity(0)),
        "clock": time.time(),
    }


def _root_dir(root_dir: str, marked: str, token: Optional[str], node_id: int) -> Dict[str, Any]:
    found = storage.examine(root_dir, write=True)
    found["unsafe"] = ownership.problem(root_dir)
    found["mark"] = storage.leave_mark(marked, token, node_id) if token else ""
    return found


def _workspace(workspace: Optional[str], root_dir: str) -> str:
    return "" if workspace is None else os.path.join(root_dir, os.path.expanduser(workspace))


ASK_S = 5.0
_QUERY = ["--query-gpu=driver_version,name", "--format=csv,noheader"]
_DRIVER = "/proc/driver/nvidia"
_VERSION = regex(r"\b(\d{3}\.\d+(?:\.\d+)*)\b")


def _gpus_of_driver() -> Dict[str, Any]:
    """Return the number of GPUs and the driver version from the driver's files, which do not contain GPU names."""
    driver = ""
    try:
        with open(_DRIVER + "/version", encoding="utf-8", errors="replace") as file:
            found = _VERSION.search(file.read())
            driver = found.group(1) if found else ""
        count = len(os.listdir(_DRIVER + "/gpus"))
    except OSError:
        count = 0
    devices = sum(1 for name in os.listdir("/dev") if name[:6] == "nvidia" and name[6:].isdecimal())
    # a container has only the device files of the GPUs it may use, but the driver's list of all
    return {"count": devices or count, "driver": driver, "names": []}


def _ask_gpus() -> Dict[str, Any]:
    """Return the GPUs that nvidia-smi reports or, if it is not installed, those that the driver's files list.

    Raises:
        OSError: nvidia-smi cannot be run.
        ValueError: nvidia-smi failed or did not answer in time; the message says which.
    """
    import subprocess  # imported only for an explicit request: a job makes none

    env = environment.base(os.environ)
    program = environment.program("nvidia-smi", env)
    if program is None:
        return _gpus_of_driver()
    try:
        ended = subprocess.run(
            [program, *_QUERY],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ASK_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError("%s did not answer within %g s" % (program, ASK_S)) from error
    text = ended.stdout.decode("utf-8", "replace").strip()
    if ended.returncode != 0:
        raise ValueError("%s: %s" % (program, text[-200:] or "status %d" % ended.returncode))
    rows = [[part.strip() for part in line.split(",", 1)] for line in text.splitlines() if "," in line]
    return {
        "count": len(rows),
        "driver": rows[0][0] if rows else "",
        "names": sorted({row[1] for row in rows}),
    }
