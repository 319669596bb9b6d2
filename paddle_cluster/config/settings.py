# SPDX-License-Identifier: Apache-2.0
"""Settings of one job: conf.py < environment < command line, resolved once, checked together, frozen.

Below this module nobody reads conf.py, os.environ or argv. No connection is made and no file is written here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from paddle_cluster.config import engines, host_settings, kubernetes, monitoring, values
from paddle_cluster.config.arguments import Arguments, Flag
from paddle_cluster.config.conf_file import CONF_NAMES, ConfFile, read_files
from paddle_cluster.config.conf_place import conf_files
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.entry import read as read_entry
from paddle_cluster.config.host_settings import HostSettings
from paddle_cluster.config.host_sources import hosts_elsewhere, waits_for_nodes
from paddle_cluster.config.hosts import Host
from paddle_cluster.config.layers import Layers
from paddle_cluster.config.options import EngineKind, Mode, Saving, SshClient, Wire
from paddle_cluster.config.roles import check_cluster, choose, named, roles_of, wrong_resume
from paddle_cluster.config.selection import HostList
from paddle_cluster.config.variables import Variables
from paddle_cluster.config.variables import files as variable_files
from paddle_cluster.config.variables import read as read_variables
from paddle_cluster.system.state_dir import StatePlaces, places

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
        slots: node id -> trainers, of hosts that have not `nproc_per_node` of them.
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
    slots: Mapping[int, int]
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
        client: what logs in.
    """

    config: Path
    known_hosts: Path
    identity_files: tuple[Path, ...] = ()
    host_keys: tuple[tuple[str, Path], ...] = ()
    jump: str = ""
    connect_timeout_s: float = 10.0
    accept_new_host_keys: bool = False
    client: SshClient = SshClient.FABRIC

    def key_of(self, host: Host) -> Path | None:
        """The private key that a host has of its own."""
        return self._keys.get(host.describe())

    @cached_property
    def _keys(self) -> Mapping[str, Path]:
        return dict(self.host_keys)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What may take how long, and how large a log may get: each is a name of conf.py in lower case.

    Attributes:
        lease_s: a node that hears nothing for so long stops its part of the job.
        heartbeat_timeout_s: a process of ours that is silent for so long is taken for frozen.
        step_timeout_s: a trainer that told of steps and then of none for so long hangs; 0: never.
        restart_backoff_s: the wait before the first restart; each one after it doubles it.
        keep_jobs: number of job directories of a workspace that stay on a node.
        log_limit_mb: a log that grows beyond it is rotated.
        warn_size_mb: what of a workspace is sent is told first where it is more.
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
    warn_size_mb: int
    collect_limit_gb: int
    collect_limit_files: int


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What runs, and what it runs with.

    Attributes:
        mode_is_explicit: --mode was given.
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
        bootstrap: nodes get the packages that the job imports.
        keep_links: links to absolute paths are sent unchanged.
    """

    mode: Mode
    mode_is_explicit: bool
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
    bootstrap: bool
    keep_links: bool


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the settings come from, as text for people.

    Attributes:
        hosts: the option or file that names the hosts.
        total: how many it names.
        lines: the same for each host, with its line.
        names: name of conf.py -> the line, the variable or the option that gave its value.
        remarks: what else the user should know of it.
    """

    hosts: str
    total: int
    lines: tuple[str, ...]
    names: Mapping[str, str]
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that was configured, typed.

    Attributes:
        conf: absolute path of the conf.py, or None if the options give the hosts.
        json: the screen prints JSON.
        state: where jobs keep their state on this machine.
    """

    cluster: ClusterSettings
    ssh: SshSettings
    limits: Limits
    job: JobSettings
    kubernetes: kubernetes.KubernetesSettings
    engines: engines.EngineSettings
    monitoring: monitoring.MonitoringSettings
    detach: bool
    json: bool
    dry_run: bool
    conf: Path | None
    sources: Sources
    state: StatePlaces

    @property
    def num_trainers(self) -> int:
        """How many trainer processes the job has."""
        return sum(map(self.trainers_on, self.cluster.trainers))

    def trainers_on(self, node_id: int) -> int:
        """How many trainers a trainer node has."""
        return self.cluster.slots.get(node_id, self.job.nproc_per_node)

    def variables_of(self, node_id: int) -> Variables:
        """What the user adds to the environment of the processes of a node."""
        return self.job.host_variables.get(node_id, self.job.variables)

    @property
    def connect_limit_s(self) -> float:
        """How long nodes may take until they have been connected to."""
        if self.cluster.engine is EngineKind.KUBERNETES:
            return self.kubernetes.start_timeout_s
        return self.ssh.connect_timeout_s


def resolve(arguments: Arguments, environ: Mapping[str, str]) -> Settings:
    """Reads the files of the configuration and puts the three layers together.

    Raises:
        ConfError: everything that is wrong in the three, one line each, with file:line, variable or option.
    """
    conf = read_files(conf_files(arguments, environ))
    layers = Layers(conf, arguments, environ)
    elsewhere = hosts_elsewhere(arguments, environ)
    is_named_here = elsewhere is None and arguments.engine is not EngineKind.KUBERNETES
    read = layers.read(name for name in CONF_NAMES if name != "HOSTS" or is_named_here)
    if elsewhere is None:
        elsewhere = _pods(arguments, conf, read) if not is_named_here else named(layers, read["HOSTS"])
    read["HOSTS"] = elsewhere.hosts
    others_are_known = not is_named_here or arguments.hosts is not None
    roles = roles_of(layers, arguments, elsewhere, read)
    try:
        read["own"] = host_settings.of_nodes(
            read["HOST_SETTINGS"], elsewhere, partial(conf.where, "HOST_SETTINGS"), others_are_known
        )
    except values.ValueMismatchError as error:
        layers.report("HOST_SETTINGS", error)
    for name, message in check_cluster(elsewhere, read, arguments):
        is_elsewhere = name == "HOSTS" and not elsewhere.is_conf
        layers.add(
            *((elsewhere.source, message) if is_elsewhere else (conf.where(name), f"{name}: {message}"))
        )
    layers.raise_any()
    listed = choose(layers, arguments, elsewhere, read, roles)
    read["HOSTS"] = listed.hosts
    counts = arguments.mode is Mode.COLLECTIVE and arguments.nproc_per_node is None
    read["slots"] = listed.slots if counts else {}
    one = arguments.nproc_per_node or 1
    trainers = sum(read["slots"].get(node_id, one) for node_id in roles["TRAINERS"])
    if arguments.min_trainers is not None and arguments.min_trainers > trainers:
        layers.add(
            "--min_trainers",
            f"expected at most {trainers}, as many trainers as the job has, got {arguments.min_trainers}",
        )
    if problem := wrong_resume(arguments):
        layers.add("--resume", problem)
    layers.raise_any()
    return _settle(layers, arguments, environ, listed, read, roles)


def _pods(arguments: Arguments, conf: ConfFile, read: Mapping[str, Any]) -> HostList:
    count = arguments.nnodes or read["K8S_NODES"]
    place = "--nnodes" if arguments.nnodes else conf.where("K8S_NODES")
    given = conf.where("HOSTS") if "HOSTS" in conf.values else ""
    pods = kubernetes.pods(count, given, read["K8S_IMAGE"], conf.shown)
    return HostList(pods, (place,) * len(pods), "--engine=kubernetes")


def _settle(
    layers: Layers,
    arguments: Arguments,
    environ: Mapping[str, str],
    listed: HostList,
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
            client=read["SSH_CLIENT"],
        ),
        limits=Limits(**{field.name: read[field.name.upper()] for field in fields(Limits)}),
        job=_job(arguments, environ, read),
        kubernetes=kubernetes.settings_of(read),
        engines=engines.settings_of(read, environ, waits_for_nodes(arguments, environ)),
        monitoring=monitoring.settings_of(read),
        detach=arguments.detach,
        json=arguments.json,
        dry_run=arguments.dry_run,
        conf=next((file.absolute() for file in conf_files(arguments, environ)), None),
        sources=Sources(
            hosts=listed.source,
            total=listed.total,
            lines=listed.lines,
            names=layers.origins,
            remarks=tuple(_remarks(layers, arguments, listed)),
        ),
        state=places(environ),
    )


def _remarks(layers: Layers, arguments: Arguments, listed: HostList) -> Iterator[str]:
    if layers.conf.remark:
        yield layers.conf.remark
    if listed.slots and arguments.nproc_per_node is not None:
        yield f"slots of {listed.source} do not count, since --nproc_per_node is given"
    elif listed.slots and arguments.mode is not Mode.COLLECTIVE:
        yield f"slots of {listed.source} count with --mode=collective alone: a host has one trainer"
    if listed.ignored:
        yield f"{listed.source}: ignored: {', '.join(listed.ignored)}"
    named, period = (arguments.flag(f"checkpoint_{name}") for name in ("dir", "period"))
    if arguments.mode is Mode.V2 and named and (period or "0") == "0":
        yield "--checkpoint_dir without --checkpoint_period=BATCHES: no checkpoint is written"


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
        slots=read["slots"],
        wire=arguments.wire or read["WIRE"],
    )


def _job(arguments: Arguments, environ: Mapping[str, str], read: Mapping[str, Any]) -> JobSettings:
    own = {node_id: [(*one, said.where) for one in said.env] for node_id, said in read["own"].items()}
    for_all, for_hosts = read_variables(arguments, environ, read["HOSTS"][0].is_local, own)
    return JobSettings(
        mode=arguments.mode,
        mode_is_explicit=arguments.mode_is_explicit,
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
        nproc_per_node=arguments.nproc_per_node or 1,
        max_restarts=arguments.max_restarts,
        min_trainers=arguments.min_trainers,
        allow_mismatch=arguments.allow_mismatch,
        bootstrap=arguments.bootstrap or read["BOOTSTRAP"],
        keep_links=arguments.keep_links,
    )
