# SPDX-License-Identifier: Apache-2.0
"""What is known of a job from its submission: where it runs, how to get there, which process leads it.

It holds no secret: neither the job's key, nor passed-through arguments, nor --env. Enough is kept to reach the nodes
without conf.py, which may have changed since.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import Settings, SshSettings
from paddle_cluster.plan import pserver_state
from paddle_cluster.plan.plan import Plan
from paddle_cluster.record import dataclass
from paddle_cluster.system import process_id
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.text.fields import PATH_LIMIT, real, whole

VERSION = 1
_DAY_S = 86400.0
_NAME_LIMIT = 255  # bytes, as the kernel's


@dataclass(frozen=True)
class NodeEntry:
    """One node of a job.

    Attributes:
        host: as conf.py has it.
        roles: such as ("pserver 0", "trainer 0").
    """

    node_id: int
    name: str
    host: str
    root_dir: str
    job_dir: str
    python: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobRecord:
    """job.json.

    Attributes:
        submitted_at: seconds since 1970.
        source: the workspace as given on the command line.
        collected: absolute path of the directory that gets log/ and output/; empty when it is not known.
        login: how to log in to the nodes; new host keys are not accepted for it.
        socket: where the launcher listens; empty when it does not.
        rebuilt: put together from what the nodes told.
        checkpoint_dir: where pservers write checkpoints, absolute or relative to ROOT_DIR; or empty.
    """

    job_id: str
    submitted_at: float
    user: str
    launcher: ProcessId
    cwd: str
    conf: str
    source: str
    mode: str
    detached: bool
    collected: str
    lease_s: float
    nodes: tuple[NodeEntry, ...]
    login: SshSettings
    socket: str = ""
    rebuilt: bool = False
    checkpoint_dir: str = ""

    def as_json(self) -> dict[str, Any]:
        """For job.json."""
        login = asdict(self.login)
        del login["accept_new_host_keys"]
        login |= {name: str(login[name]) for name in ("config", "known_hosts")}
        login["identity_files"] = [str(path) for path in self.login.identity_files]
        login["host_keys"] = [[host, str(path)] for host, path in self.login.host_keys]
        return {"version": VERSION, **asdict(self), "login": login}

    def node(self, word: str) -> NodeEntry | None:
        """The node with this id, name or host; a host's name alone will do where no other node has it."""
        exact = next((n for n in self.nodes if word in (str(n.node_id), n.name, n.host)), None)
        named = [n for n in self.nodes if parse_host(n.host).name == word]
        return named[0] if exact is None and len(named) == 1 else exact


def of_plan(plan: Plan, collected: Path) -> JobRecord:
    """What this launcher is about to run."""
    settings = plan.settings
    return JobRecord(
        job_id=plan.job_id,
        submitted_at=time.time(),
        user=user_name(),
        launcher=process_id.own(),
        cwd=os.getcwd(),
        conf=str(settings.conf or ""),
        source=str(settings.job.package or settings.job.workspace or ""),
        mode=str(settings.job.mode),
        detached=settings.detach,
        collected=str(collected.absolute()),
        lease_s=settings.limits.lease_s,
        nodes=entries(plan),
        login=login_of(settings),
        checkpoint_dir=pserver_state.checkpoints_below_root(settings, plan.job_id),
    )


def entries(plan: Plan) -> tuple[NodeEntry, ...]:
    """The nodes of a plan."""
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
    """What nodes remember of who submitted a job, so that it can be found without this machine's state."""
    return {"user": user_name(), "collected": str(collected.absolute()), **process_id.own().as_json()}


def login_of(settings: Settings) -> SshSettings:
    """Return the login settings of a configuration; read-only commands never accept new host keys."""
    return replace(settings.ssh, accept_new_host_keys=False)


def user_name() -> str:
    """The name of this process's user, as far as it has one."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def from_json(fields: Mapping[str, Any]) -> JobRecord:
    """Reads what `as_json` gave.

    Raises:
        ValueError: it is something else, or of another version.
    """
    if fields.get("version") != VERSION:
        raise ValueError(f"expected version {VERSION}, got {fields.get('version')!r}")
    try:
        login = fields["login"]
        return JobRecord(
            **{name: str(fields[name]) for name in ("job_id", "user", "cwd", "conf", "source", "mode")},
            submitted_at=real(fields["submitted_at"], "submitted_at"),
            launcher=process_id.from_json(fields["launcher"]),
            detached=bool(fields["detached"]),
            collected=_place(fields["collected"]),
            lease_s=real(fields["lease_s"], "lease_s", least=0.0),
            nodes=tuple(map(_node, fields["nodes"])),
            login=SshSettings(
                config=Path(_place(login["config"])),
                known_hosts=Path(_place(login["known_hosts"])),
                identity_files=tuple(Path(_place(path)) for path in login["identity_files"]),
                host_keys=tuple((str(host), Path(_place(path))) for host, path in login.get("host_keys", [])),
                jump=_place(login["jump"]),
                connect_timeout_s=real(
                    login["connect_timeout_s"], "connect_timeout_s", least=0.0, most=_DAY_S
                ),
                client=SshClient(login.get("client", SshClient.FABRIC)),
            ),
            socket=_place(fields.get("socket") or ""),
            rebuilt=bool(fields.get("rebuilt")),
            checkpoint_dir=_place(fields.get("checkpoint_dir") or ""),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or of another type: {error!r}") from error


def _place(value: object) -> str:
    """A path that can be opened, whether anything is there or not."""
    if not isinstance(value, str):
        raise ValueError(f"expected a path, got {value!r:.80}")
    encoded = os.fsencode(value)
    if b"\0" in encoded or len(encoded) > PATH_LIMIT or max(map(len, encoded.split(b"/"))) > _NAME_LIMIT:
        raise ValueError(f"{value!r:.80} is not a path that can be opened")
    return value


def _node(fields: Mapping[str, Any]) -> NodeEntry:
    texts = {name: str(fields[name]) for name in ("name", "host", "root_dir", "job_dir", "python")}
    parse_host(texts["host"])  # refuses what a shell or an option parser could act on
    return NodeEntry(
        node_id=whole(fields["node_id"], "node_id"), roles=tuple(map(str, fields["roles"])), **texts
    )


def with_socket(record: JobRecord, path: Path | None) -> JobRecord:
    """The same job, listening there."""
    return replace(record, socket="" if path is None else str(path))
