# SPDX-License-Identifier: Apache-2.0
"""The record of a submitted job: its nodes, their logins, and the launcher's process.

It contains no secret: neither the job's key, nor passed-through arguments, nor --env. The record suffices to reach the
nodes without conf.py, which may have changed since.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from paddle_cluster.config.conf_file import DEFAULT
from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.options import BY_KEY, SshClient
from paddle_cluster.config.settings import Settings, SshSettings
from paddle_cluster.plan import checkpoints
from paddle_cluster.plan.plan import Plan
from paddle_cluster.system import process_id
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.text.wrapping import crop, visible
from paddle_node.contract.classes import NamedTuple, dataclass, replace
from paddle_node.contract.records import Fields, LocalPath, Moment, Seconds, Whole, read

VERSION = 1
WIDEST = 300  # characters of a value
NOT_STORED = "(not stored)"
_SECRET = frozenset(("env", "HOST_SETTINGS", "K8S_POD", "SLURM_OPTIONS"))
_DAY_S = 86400.0


@dataclass(frozen=True)
class NodeEntry:
    """A node of a job in job.json.

    Attributes:
        host: the host as written in conf.py.
        roles: the processes on the node, such as ("pserver 0", "trainer 0").
    """

    node_id: Whole
    name: str
    host: str
    root_dir: str
    job_dir: str
    python: str
    roles: tuple[str, ...] = ()


class LoginRecord(NamedTuple):
    """The SSH settings in job.json, without secrets. Logins that use them do not accept new host keys."""

    config: LocalPath
    known_hosts: LocalPath
    connect_timeout_s: Seconds
    identity_files: tuple[LocalPath, ...]
    jump: LocalPath
    host_keys: tuple[tuple[str, LocalPath], ...] = ()
    client: SshClient = SshClient.FABRIC

    @classmethod
    def of(cls, ssh: SshSettings) -> LoginRecord:
        """Return the record of these SSH settings."""
        return cls(
            str(ssh.config),
            str(ssh.known_hosts),
            ssh.connect_timeout_s,
            tuple(map(str, ssh.identity_files)),
            ssh.jump,
            tuple((host, str(path)) for host, path in ssh.host_keys),
            ssh.client,
        )

    def settings(self) -> SshSettings:
        """Return the recorded settings as `SshSettings`, for further logins to the job's nodes."""
        return SshSettings(
            config=Path(self.config),
            known_hosts=Path(self.known_hosts),
            identity_files=tuple(map(Path, self.identity_files)),
            host_keys=tuple((host, Path(path)) for host, path in self.host_keys),
            jump=self.jump,
            connect_timeout_s=min(self.connect_timeout_s, _DAY_S),
            client=self.client,
        )


@dataclass(frozen=True)
class JobRecord:
    """The record of a job, stored as job.json.

    Attributes:
        submitted_at: time of submission, in seconds since 1970.
        source: the workspace: an absolute path on this machine, or `--job_workspace` as given.
        collected: absolute path of the directory that receives log/ and output/; empty if unknown.
        socket: the socket on which the launcher listens, or empty.
        rebuilt: whether the record was reconstructed from the nodes' answers.
        checkpoint_dir: directory of pserver checkpoints, absolute or relative to ROOT_DIR; or empty.
        name: the name that the user gave the job, or empty.
        priority: priority in the queue of jobs that wait for nodes.
        options: (name, value, source) of each option and conf.py name that differs from its default; values that may be
            secret are omitted.
    """

    job_id: str
    submitted_at: Moment
    user: str
    launcher: ProcessId
    cwd: str
    conf: str
    source: str
    mode: str
    detached: bool
    collected: LocalPath
    lease_s: Seconds
    nodes: tuple[NodeEntry, ...]
    login: LoginRecord
    socket: LocalPath = ""
    rebuilt: bool = False
    checkpoint_dir: LocalPath = ""
    name: str = ""
    priority: Whole = 0
    options: tuple[tuple[str, str, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values, for job.json."""
        return {
            "version": VERSION,
            **{name: getattr(self, name) for name in self.__match_args__},
            "launcher": self.launcher.as_json(),
            "login": self.login._asdict(),
            "nodes": [dict(vars(node)) for node in self.nodes],
        }

    def node(self, word: str) -> NodeEntry | None:
        """Return the node with this ID, name or host, or None; a unique host name suffices, without user and port."""
        exact = next((n for n in self.nodes if word in (str(n.node_id), n.name, n.host)), None)
        named = [n for n in self.nodes if parse_host(n.host).name == word]
        return named[0] if exact is None and len(named) == 1 else exact


def of_plan(plan: Plan, collected: Path) -> JobRecord:
    """Return the record of the job that this launcher is about to run."""
    settings = plan.settings
    return JobRecord(
        job_id=plan.job_id,
        submitted_at=time.time(),
        user=user_name(),
        launcher=process_id.own(),
        cwd=os.getcwd(),
        conf=str(settings.conf or ""),
        source=str(settings.job.package.absolute() if settings.job.package else settings.job.workspace or ""),
        mode=str(settings.job.mode),
        detached=settings.detach,
        collected=str(collected.absolute()),
        lease_s=settings.limits.lease_s,
        nodes=entries(plan),
        login=LoginRecord.of(settings.ssh),
        checkpoint_dir=checkpoints.checkpoints_below_root(settings, plan.job_id),
        name=settings.job.name,
        priority=settings.job.priority,
        options=tuple(_given(settings)),
    )


def _given(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for key, where in settings.sources.names.items():
        if where != DEFAULT and BY_KEY[key].target:
            value = attrgetter(BY_KEY[key].target)(settings)
            yield key, NOT_STORED if key in _SECRET else crop(_written(value), WIDEST), where


def _written(value: Any) -> str:
    if isinstance(value, Host):
        return value.describe()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return ", ".join(map(_written, value))
    return visible(str(value))


def entries(plan: Plan) -> tuple[NodeEntry, ...]:
    """Return the nodes of a plan as entries for job.json."""
    roles: dict[int, list[str]] = {node.node_id: [] for node in plan.nodes}
    for word, ids in (("pserver", plan.pserver_nodes), ("trainer", plan.trainer_nodes)):
        for rank, node_id in enumerate(ids):
            roles[node_id].append(f"{word} {rank}")
    return tuple(
        NodeEntry(
            n.node_id, n.label, n.host.describe(), n.root_dir, n.job_dir, n.python, tuple(roles[n.node_id])
        )
        for n in plan.nodes
    )


def submitter(collected: Path) -> dict[str, Any]:
    """Return the data about the submitter that nodes store, to find a job without this machine's state."""
    return {"user": user_name(), "collected": str(collected.absolute()), **process_id.own().as_json()}


def login_of(settings: Settings) -> SshSettings:
    """Return a configuration's login settings; commands that only read never accept new host keys."""
    return replace(settings.ssh, accept_new_host_keys=False)


def user_name() -> str:
    """Return the name of this process's user, or its numeric ID if the user has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def from_json(fields: Fields) -> JobRecord:
    """Convert the JSON object of a job.json to a record, after checking it.

    Raises:
        ValueError: the fields are invalid or from a different version.
    """
    if fields.get("version") != VERSION:
        raise ValueError(f"expected version {VERSION}, got {fields.get('version')!r}")
    record = read(JobRecord, fields, "job", "job.json")
    for node in record.nodes:
        parse_host(node.host)  # rejects text that a shell or an option parser could interpret
    return record


def with_socket(record: JobRecord, path: Path | None) -> JobRecord:
    """Return a copy of the record with the path of the socket on which the launcher listens."""
    return replace(record, socket="" if path is None else str(path))
