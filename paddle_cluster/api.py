# SPDX-License-Identifier: Apache-2.0
"""The Python API of the launcher: starts, follows and stops jobs, for notebooks and other programs.

    from paddle_cluster import api

    with api.run(package="ws", conf="conf.py", mode="collective") as job:
        for event in job:
            if isinstance(event, api.Progressed):
                print(event.process, event.batch_id, event.cost)
        print(job.status().phase, job.wait().cause or "done")
    print(*job.logs("trainer-0"), sep="\\n")

A job is a separate process, `paddle.py --json`, so that the caller's process cannot disturb it. `stop` and the end of
`with` stop it; if the caller is killed, the job continues, and `paddle.py stop` ends it.
"""

from __future__ import annotations

import difflib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from paddle_cluster.config import arguments
from paddle_cluster.config.options import LONG
from paddle_cluster.config.resolve import resolve
from paddle_cluster.control import log_lines, store
from paddle_cluster.control.store import JobStatus, KnownJob
from paddle_cluster.errors import ExitCode
from paddle_cluster.system import installation, process_id
from paddle_cluster.system.state_dir import places
from paddle_cluster.text.output_events import (
    Ended,
    Event,
    Failed,
    NodesNamed,
    NodeState,
    Noted,
    PhaseEntered,
    Plotted,
    Printed,
    Progressed,
    Tabled,
    Timed,
    Transferred,
    Unsent,
    Used,
    from_fields,
)
from paddle_node.contract import checked_json
from paddle_node.contract.classes import replace

if TYPE_CHECKING:
    import fabric

__all__ = [
    "Ended",
    "Event",
    "ExitCode",
    "Failed",
    "JobStatus",
    "NodeState",
    "NodesNamed",
    "Noted",
    "Options",
    "PhaseEntered",
    "Plotted",
    "Printed",
    "Progressed",
    "Run",
    "Tabled",
    "Timed",
    "Transferred",
    "Unsent",
    "Used",
    "connect",
    "run",
]


class Run:
    """A job that `run` started. Iterate over it to receive its events as they happen, each only once.

    Only `stop`, `status` and `logs` may be called from other threads.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see __exit__
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        self._ended: Ended | None = None
        self._launcher = process_id.here(self._process.pid)
        self._directory: Path | None = None

    def __iter__(self) -> Iterator[Event]:
        """Yield events until the job ends; block while there are none."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = from_fields(checked_json.as_object(line))
            if isinstance(event, Ended):
                self._ended = event
            yield event

    def stop(self) -> None:
        """Ask the job to stop, as Ctrl+C does, without waiting; a second call kills it immediately.

        `wait` returns the outcome.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def status(self) -> JobStatus:
        """Return the current state of the job.

        Until the launcher has recorded a state, the phase is "starting" and the ID may be empty.

        If the launcher exited without recording the end, or its record was removed, the exit code is the one that
        `wait` returns.
        """
        code = self._process.poll()
        known = self._known()
        job_id = self._directory.name if self._directory is not None else ""
        found = JobStatus(job_id=job_id, name="", phase="starting") if known is None else known.snapshot()
        if code is None or found.exit_code is not None:
            return found
        return replace(found, phase="ended", exit_code=int(_exit_code(code)))

    def logs(self, process: str = "") -> Iterator[str]:
        """Return the job's log lines so far, oldest first, as in log/job.log.

        Args:
            process: a process or role, such as "trainer-2", "pserver" or "launcher", or empty for all.
        """
        known = self._known()
        return iter(()) if known is None else log_lines.lines_of(known, process)

    def _known(self) -> KnownJob | None:
        """Return the job from the state directory that belongs to this object's launcher process."""
        if self._directory is not None:
            return store.read(self._directory)
        for job in store.all_jobs(places(os.environ)):
            if job.record.launcher == self._launcher:
                self._directory = job.directory
                return job
        return None

    def wait(self) -> Ended:
        """Wait for the end of the job and return its outcome; discard unread events.

        Returns:
            The outcome. A job that never started, for example because of an invalid option or an unknown host, has no
                ID; `lines` gives the reason.
        """
        if self._ended is None:
            for _ in self:
                pass
        code = self._process.wait()
        if self._ended is None:
            self._errors.seek(0)
            lines = tuple(self._errors.read().splitlines())
            cause = lines[-1] if lines else f"the launcher ended with status {code}"
            self._ended = Ended("", _exit_code(code), cause, "", "", lines)
        return self._ended

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


def _exit_code(code: int) -> ExitCode:
    """Return the exit code for the status of a launcher's process; LOST if a signal ended it."""
    return ExitCode(code) if code in ExitCode.__members__.values() else ExitCode.LOST


class Options(TypedDict, total=False):
    """The options of a job as keyword arguments, named as on the command line; `package` is --job_dispatch_package."""

    package: str | Path
    job_workspace: str
    name: str
    queue: bool
    queue_priority: int
    conf: str | Path
    hosts: str | Sequence[str]
    hostfile: str | Path
    include: str | Sequence[str]
    exclude: str | Sequence[str]
    nnodes: int
    engine: str
    entry: str
    mode: str
    nproc_per_node: int
    env: Sequence[str] | Mapping[str, str]
    env_file: str | Path | Sequence[str | Path]
    max_restarts: int
    min_trainers: int
    shard_dirs: str | Sequence[str]
    keep_as: str
    collect: str | Sequence[str]
    keep_links: bool
    wire: str
    bootstrap: bool
    accept_new_host_keys: bool
    allow_mismatch: bool


def run(*options: str, script: Sequence[str] = (), **named: Unpack[Options]) -> Run:
    """Start a job and return it: `run(package="ws", hosts=["a", "b"], mode="collective", script=["--lr=0.1"])`.

    Args:
        options: command-line options, such as "-p", "ws", "--conf=conf.py"; arguments of the script follow them.
        script: the arguments of the script.
        named: options by name: True for a switch, a list for several values, a dictionary for `env`.

    Raises:
        TypeError: an option is unknown, or has a value of the wrong type.
    """
    if isinstance(script, str):
        raise TypeError(f"run(): script is a list of arguments, such as {shlex.split(script)}, not a string")
    arguments = ["--", *map(str, script)] if script else []
    return Run([*installation.argv(), "--json", *tokens(named), *options, *arguments])


def connect(host: str, conf: str | Path = "conf.py") -> fabric.Connection:
    """Return an open Fabric connection to a host, with the keys, known hosts and jump hosts of a job.

        with api.connect("root@node-0") as node:
            print(node.run("nvidia-smi", hide=True).stdout)

    Raises:
        LauncherError: `conf` is invalid, or the host cannot be reached.
    """
    from paddle_cluster.ssh.login import FabricLogins  # imports paramiko

    given = arguments.parse([f"--conf={conf}", f"--hosts={host}", "--job_workspace=."])
    settings = resolve(given, os.environ)
    return FabricLogins(settings.ssh).connection(settings.cluster.hosts[0])


def tokens(named: Mapping[str, Any]) -> list[str]:
    """Convert options by name to command-line arguments.

    Raises:
        TypeError: an option is unknown, or has a value of the wrong type.
    """
    found = []
    for name, value in named.items():
        if name not in Options.__annotations__:
            known = ["script", *Options.__annotations__]
            near = [one for one in known if name in one] or difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"its options are {', '.join(known)}"
            raise TypeError(f"run() has no option named {name!r}: {hint}")
        option = LONG["job_dispatch_package" if name == "package" else name]
        if not option.metavar and not isinstance(value, bool | None):
            raise TypeError(f"run(): {name} is True or False, got {value!r}")
        if not option.metavar:
            found += [f"--{option.name}"] if value else []
        elif value is not None:
            several = [f"{key}={one}" for key, one in value.items()] if isinstance(value, Mapping) else value
            several = [several] if isinstance(several, str | int | Path) else list(several)
            values = several if option.repeats else [",".join(map(str, several))]
            found += [f"--{option.name}={one}" for one in values]
    return found
