# SPDX-License-Identifier: Apache-2.0
"""Settings of one job: conf.py < environment < command line, resolved once, checked together, frozen.

Below this module nobody reads conf.py, os.environ or argv. No connection is made and no file is written here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from launcher.config import host_settings, kubernetes, values
from launcher.config.arguments import Arguments, Flag
from launcher.config.conf_file import CONF_NAMES, REQUIRED, ConfFile, ConfName, read_conf
from launcher.config.conf_place import conf_path
from launcher.config.entry import Entry
from launcher.config.entry import read as read_entry
from launcher.config.host_settings import HostSettings
from launcher.config.host_sources import hosts_elsewhere
from launcher.config.hosts import Host
from launcher.config.kubernetes import KubernetesSettings
from launcher.config.options import EngineKind, Mode, Saving, Wire
from launcher.config.roles import check_cluster, select_nodes
from launcher.config.spelling import nearest
from launcher.config.variables import Variables
from launcher.config.variables import files as variable_files
from launcher.config.variables import read as read_variables
from launcher.errors import ConfError
from launcher.system.state_dir import StatePlaces, places

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The nodes, and what holds on all of them.

    Attributes:
        engine: what starts agents on hosts other than this machine.
        pservers, trainers: node ids in ascending order; a rank is an index into these. No pservers in
            collective mode.
        root_dir: parent of the job directories on a node, absolute or beginning with ~.
        job_umask: of all that a job makes on a node.
        nic: network interface for the job's traffic, or empty: by route.
        port_is_explicit: --port was given: a busy port is an error then, not a reason to take the next.
        python: as configured; empty for the default of the node's kind.
        own: node id -> what is said of that host alone.
    """

    engine: EngineKind
    hosts: tuple[Host, ...]
    pservers: tuple[int, ...]
    trainers: tuple[int, ...]
    root_dir: str
    job_umask: int
    nic: str
    port: int
    port_is_explicit: bool
    ports_num: int
    ports_num_for_sparse: int
    use_gpu: bool
    ld_library_path: str
    python: str
    own: Mapping[int, HostSettings]
    wire: Wire


@dataclass(frozen=True, kw_only=True)
class SshSettings:
    """How to log in to nodes.

    Attributes:
        config: the user's ssh_config; may be missing.
        known_hosts: new keys go there; may be missing.
        identity_files: private keys to try before those of the ssh config.
        host_keys: (host, private key) of hosts that have one of their own, which comes first.
        jump: `[user@]host[:port][,...]` for every node, or empty: what the ssh config says.
        connect_timeout_s: for each step of a login.
        accept_new_host_keys: remember keys of unknown hosts instead of refusing them.
    """

    config: Path
    known_hosts: Path
    identity_files: tuple[Path, ...] = ()
    host_keys: tuple[tuple[str, Path], ...] = ()
    jump: str = ""
    connect_timeout_s: float = 10.0
    accept_new_host_keys: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What may take how long, and how large a log may get: each is a name of conf.py in lower case.

    Attributes:
        lease_s: a node that hears nothing for so long stops its part of the job.
        heartbeat_timeout_s: a process of ours that is silent for so long is taken for frozen.
        step_timeout_s: a trainer that told of steps and then of none for so long hangs; 0: never.
        restart_backoff_s: the wait before the first restart; each one after it doubles it.
        keep_jobs: so many job directories of a workspace stay on a node.
        log_limit_mb: a log that grows beyond it is rotated.
        collect_limit_gb: bytes of one node that are collected; collect_limit_files: files.
    """

    preflight_timeout_s: float
    ready_timeout_s: float
    stop_grace_s: float
    collect_timeout_s: float
    lease_s: float
    heartbeat_timeout_s: float
    step_timeout_s: float
    restart_backoff_s: float
    keep_jobs: int
    log_limit_mb: int
    collect_limit_gb: int
    collect_limit_files: int


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What runs, and what it runs with.

    Attributes:
        package: directory to dispatch, or None; then `workspace` is a directory that nodes already have:
            absolute, beginning with ~, or relative to each node's root directory.
        entry: what trainers run.
        passthrough: tokens for the trainers' argv, byte for byte.
        flags: the same tokens read as flags; a later one wins.
        threads: thread variables that the user's own environment sets; they hold for every process.
        variables: what the user adds to the environment of every process.
        host_variables: node id -> the same for the processes of nodes that have variables of their own.
        env_files: the files they were read from.
        nproc_per_node: trainers on each trainer node.
        max_restarts: how often each process may be started again after it failed.
        min_trainers: how many trainers must remain when nodes are lost; None: all.
        allow_mismatch: nodes may differ in what their Python is and has, and in the code that they have.
    """

    mode: Mode
    package: Path | None
    workspace: str | None
    entry: Entry
    shard_dirs: tuple[str, ...]
    saving: Saving
    passthrough: tuple[str, ...]
    flags: tuple[Flag, ...]
    threads: tuple[tuple[str, str], ...]
    variables: Variables
    host_variables: Mapping[int, Variables]
    env_files: tuple[Path, ...]
    nproc_per_node: int
    max_restarts: int
    min_trainers: int | None
    allow_mismatch: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that was configured, typed.

    Attributes:
        conf: the conf.py that was read, absolute.
        json: the screen is for a program.
        hosts_given: the hosts are those of --hosts, all else is conf.py's.
        state: where jobs keep their state on this machine.
    """

    cluster: ClusterSettings
    ssh: SshSettings
    limits: Limits
    job: JobSettings
    kubernetes: KubernetesSettings
    detach: bool
    json: bool
    dry_run: bool
    conf: Path
    hosts_given: bool
    state: StatePlaces

    @property
    def num_trainers(self) -> int:
        """How many trainer processes the job has."""
        return len(self.cluster.trainers) * self.job.nproc_per_node

    def variables_of(self, node_id: int) -> Variables:
        """What the user adds to the environment of the processes of a node."""
        return self.job.host_variables.get(node_id, self.job.variables)

    @property
    def connect_limit_s(self) -> float:
        """How long nodes may take until they have been connected to."""
        if self.cluster.engine is EngineKind.KUBERNETES:
            return self.kubernetes.start_timeout_s
        return self.ssh.connect_timeout_s


class _Problems:
    """Everything found wrong, so that one run reports all of it."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def add(self, where: str, message: str) -> None:
        self._found.append((where, message))

    def raise_any(self) -> None:
        if not self._found:
            return
        (where, first), *more = self._found
        raise ConfError(where, "\n".join([first, *(f"{place}: {message}" for place, message in more)]))


def resolve(arguments: Arguments, environ: Mapping[str, str]) -> Settings:
    """Reads conf.py and puts the three layers together.

    Raises:
        ConfError: everything that is wrong in the three, one line each, with file:line, variable or option.
    """
    conf = read_conf(conf_path(arguments, environ))
    elsewhere = hosts_elsewhere(arguments.engine, arguments.hostfile, environ)
    problems = _Problems()
    _refuse_unknown(conf, problems)
    read = {
        name: _layered(name, entry, conf, arguments, environ, problems)
        for name, entry in CONF_NAMES.items()
        if name != "HOSTS" or (elsewhere is None and arguments.engine is not EngineKind.KUBERNETES)
    }
    problems.raise_any()
    if arguments.engine is EngineKind.KUBERNETES:
        count = arguments.nnodes or read["K8S_NODES"]
        given = conf.where("HOSTS") if "HOSTS" in conf.values else ""
        elsewhere = kubernetes.pods(count, given, read["K8S_IMAGE"], conf.shown)
    hosts: tuple[Host, ...] = elsewhere or read["HOSTS"]
    others_are_known = arguments.hosts is not None or elsewhere is not None
    read["HOSTS"] = hosts
    roles = {}
    for name in ("PSERVERS", "TRAINERS"):
        if arguments.hosts and read[name] is not None:
            problems.add(
                conf.where(name),
                f"{name} names entries of this file's HOSTS, and --hosts gives others; take it out, "
                "or write a conf.py for these hosts",
            )
            continue
        try:
            roles[name] = select_nodes(read[name], hosts)
        except values.ValueMismatchError as error:
            _report(problems, conf, name, error)
    try:
        where = partial(conf.where, "HOST_SETTINGS")
        read["own"] = host_settings.of_nodes(read["HOST_SETTINGS"], hosts, where, others_are_known)
    except values.ValueMismatchError as error:
        _report(problems, conf, "HOST_SETTINGS", error)
    for name, message in check_cluster(hosts, read, arguments):
        place = "--hosts" if name == "HOSTS" and arguments.hosts else conf.where(name)
        problems.add(place, f"{name}: {message}")
    problems.raise_any()
    trainers = len(roles["TRAINERS"]) * arguments.nproc_per_node
    if arguments.min_trainers is not None and arguments.min_trainers > trainers:
        problems.add(
            "--min_trainers",
            f"expected at most {trainers}, as many trainers as the job has, got {arguments.min_trainers}",
        )
    problems.raise_any()
    return _settle(arguments, environ, read, roles)


def _refuse_unknown(conf: ConfFile, problems: _Problems) -> None:
    for name in conf.values:
        if name not in CONF_NAMES:
            near = nearest(name, tuple(CONF_NAMES))
            hint = f"did you mean {near}?" if near else "write names of your own in lower case"
            problems.add(conf.where(name), f"unknown name {name}; {hint}")


def _layered(
    name: str,
    entry: ConfName,
    conf: ConfFile,
    arguments: Arguments,
    environ: Mapping[str, str],
    problems: _Problems,
) -> Any:
    """The value from the last layer that has one; a wrong value in any layer is a problem."""
    value: Any = None
    try:
        if name in conf.values:
            value = entry.read(conf.values[name])
        elif entry.default is REQUIRED and arguments.hosts is None:
            problems.add(conf.shown, _missing(name, conf))
        elif entry.default not in (None, REQUIRED):
            value = entry.read(entry.default)
    except values.ValueMismatchError as error:
        _report(problems, conf, name, error)
    overrides = (
        (f"environment variable {name}", environ.get(name) if entry.from_environment else None),
        (f"--{entry.flag}", arguments.flag(entry.flag) if entry.flag else None),
        ("--hosts", arguments.hosts if name == "HOSTS" else None),
    )
    for where, given in overrides:
        if given is None:
            continue
        try:
            told = values.from_text(given, entry.default) if isinstance(given, str) else given
            value = entry.read(told)
        except values.ValueMismatchError as error:
            problems.add(where, str(error))
    return value


def _missing(name: str, conf: ConfFile) -> str:
    near = next((other for other in conf.others if other.upper() == name), None)
    hint = f" ({near} is assigned; names are in upper case)" if near else ""
    return f"{name} is missing{hint}; expected for example {name} = ['root@10.1.9.7', 'root@10.1.18.7']"


def _report(problems: _Problems, conf: ConfFile, name: str, error: values.ValueMismatchError) -> None:
    element = "" if error.index is None else f"[{error.element or error.index}]"
    problems.add(conf.where(name, error.index), f"{name}{element}: {error}")


def _settle(
    arguments: Arguments,
    environ: Mapping[str, str],
    read: Mapping[str, Any],
    roles: Mapping[str, tuple[int, ...]],
) -> Settings:
    return Settings(
        cluster=_cluster(arguments, read, roles),
        ssh=SshSettings(
            config=read["SSH_CONFIG"],
            known_hosts=read["SSH_KNOWN_HOSTS"],
            identity_files=read["SSH_IDENTITY_FILES"],
            host_keys=host_settings.keys(read["HOSTS"], read["own"]),
            jump=read["SSH_JUMP"],
            connect_timeout_s=read["CONNECT_TIMEOUT_S"],
            accept_new_host_keys=arguments.accept_new_host_keys,
        ),
        limits=Limits(**{field.name: read[field.name.upper()] for field in fields(Limits)}),
        job=_job(arguments, environ, read),
        kubernetes=kubernetes.settings_of(read),
        detach=arguments.detach,
        json=arguments.json,
        dry_run=arguments.dry_run,
        conf=conf_path(arguments, environ).absolute(),
        hosts_given=arguments.hosts is not None,
        state=places(environ),
    )


def _cluster(
    arguments: Arguments, read: Mapping[str, Any], roles: Mapping[str, tuple[int, ...]]
) -> ClusterSettings:
    return ClusterSettings(
        engine=arguments.engine,
        hosts=read["HOSTS"],
        pservers=() if arguments.mode is Mode.COLLECTIVE else roles["PSERVERS"],
        trainers=roles["TRAINERS"],
        root_dir=read["ROOT_DIR"],
        job_umask=read["JOB_UMASK"],
        nic=read["PADDLE_NIC"],
        port=read["PADDLE_PORT"],
        port_is_explicit=arguments.flag("port") is not None,
        ports_num=read["PADDLE_PORTS_NUM"],
        ports_num_for_sparse=read["PADDLE_PORTS_NUM_FOR_SPARSE"],
        use_gpu=read["PADDLE_USE_GPU"],
        ld_library_path=read["LD_LIBRARY_PATH"],
        python=read["PYTHON"],
        own=read["own"],
        wire=arguments.wire or read["WIRE"],
    )


def _job(arguments: Arguments, environ: Mapping[str, str], read: Mapping[str, Any]) -> JobSettings:
    own = {node_id: [(*one, said.where) for one in said.env] for node_id, said in read["own"].items()}
    for_all, for_hosts = read_variables(arguments, environ, read["HOSTS"][0].is_local, own)
    return JobSettings(
        mode=arguments.mode,
        package=Path(arguments.package) if arguments.package else None,
        workspace=arguments.workspace,
        entry=read_entry(arguments.entry),
        shard_dirs=tuple(os.path.normpath(directory) for directory in arguments.shard_dirs),
        saving=arguments.saving,
        passthrough=arguments.passthrough,
        flags=arguments.flags,
        threads=tuple((name, environ[name]) for name in THREAD_VARIABLES if environ.get(name)),
        variables=for_all,
        host_variables=for_hosts,
        env_files=variable_files(arguments),
        nproc_per_node=arguments.nproc_per_node,
        max_restarts=arguments.max_restarts,
        min_trainers=arguments.min_trainers,
        allow_mismatch=arguments.allow_mismatch,
    )
