# SPDX-License-Identifier: Apache-2.0
"""The configuration of a job, typed and frozen. Packages above this one never read conf.py, os.environ or argv.

Each row of the table of options names its field: "job.min_trainers" is Settings.job.min_trainers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from paddle_cluster.config.arguments import Flag
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.host_settings import HostSettings
from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import Mode, SshClient, Wire
from paddle_cluster.config.variables import Variables
from paddle_cluster.system.state_dir import StatePlaces
from paddle_node.contract.classes import NamedTuple, dataclass

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# For 2^n cycles, idle threads of OpenBLAS poll before they sleep. Its default, 2^26, keeps cores from other threads.
OPENBLAS_POLLING = ("OPENBLAS_THREAD_TIMEOUT", "14")


class Saving(NamedTuple):
    """The checkpoints that a script saves: their directory's name on nodes, or empty, and the files to collect."""

    name: str
    collect: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The settings of a job's nodes: which ones it uses, and what applies to all of them.

    Attributes:
        engine: the method that starts agents on hosts other than this machine.
        pservers, trainers: node IDs in ascending order; a rank is an index into these. Collective mode has no pservers.
        root_dir: parent of the job directories on a node; absolute, or beginning with ~.
        job_umask: umask for everything that a job creates on a node.
        nic: network interface for the job's traffic; empty: the interface of the route to the other nodes.
        port_is_explicit: whether --port was given: a busy port is then an error and is not skipped.
        python: the configured interpreter; empty: the default for the kind of node.
        own: node ID -> settings that apply only to that host.
        slots: node ID -> number of trainers, where it differs from `nproc_per_node`.
    """

    engine: str
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
    """The settings for logins to nodes.

    Attributes:
        config: the user's ssh_config; may be missing.
        known_hosts: the file to which new host keys are added; may be missing.
        identity_files: private keys to try before those of the SSH configuration.
        host_keys: (host, private key) for each host with its own key, which is tried first.
        jump: `[user@]host[:port][,...]` for every node; empty: the SSH configuration decides.
        connect_timeout_s: timeout for each step of a login, in seconds.
        accept_new_host_keys: whether to save the keys of unknown hosts instead of rejecting them.
        client: the SSH client.
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
        """Return the path of a host's own private key, or None."""
        return self._keys.get(host.describe())

    @cached_property
    def _keys(self) -> Mapping[str, Path]:
        return dict(self.host_keys)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits on times and log sizes; each is a name in conf.py, in lower case.

    Attributes:
        lease_s: a node that hears nothing from the launcher for this time stops its part of the job.
        heartbeat_timeout_s: a process of the runtime that is silent for this time is considered frozen.
        step_timeout_s: a trainer that has reported steps, but none for this time, is considered stuck; 0 means never.
        restart_backoff_s: the delay before the first restart; it doubles with every further restart.
        queue_timeout_s: the longest wait of --queue.
        keep_jobs: number of a workspace's job directories that a node keeps.
        log_limit_mb: size at which a log is rotated.
        warn_size_mb: size of the files to send above which a warning is printed first.
        collect_limit_gb: maximum size collected from one node; collect_limit_files: maximum number of files.
    """

    preflight_timeout_s: float
    ready_timeout_s: float
    stop_grace_s: float
    collect_timeout_s: float
    lease_s: float
    heartbeat_timeout_s: float
    step_timeout_s: float
    restart_backoff_s: float
    queue_timeout_s: float
    keep_jobs: int
    log_limit_mb: int
    warn_size_mb: int
    collect_limit_gb: int
    collect_limit_files: int


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The job's program and the settings for running it.

    Attributes:
        name: the job's name in commands and output; empty for its ID.
        queue: whether the job waits until no other job of the user occupies its hosts or its package; the waiting job
            with the highest priority is next.
        mode_is_explicit: whether --mode was given.
        package: directory to dispatch; None means `workspace` is a directory that the nodes already have: absolute,
            starting with ~, or relative to each node's root directory.
        entry: the program that trainers run.
        passthrough: tokens for the trainers' argv, byte for byte.
        flags: the same tokens parsed as flags; the last one takes precedence.
        threads: thread variables set in the user's own environment; they apply to every process.
        variables: variables that the user adds to the environment of every process.
        host_variables: node ID -> variables that the user adds for the processes of this node only.
        env_files: the files from which the variables were read.
        nproc_per_node: trainers on each trainer node.
        max_restarts: maximum number of restarts of each process after failures.
        min_trainers: number of trainers that must remain when nodes are lost; None means all.
        allow_mismatch: whether nodes may differ in their Python, its packages, and their copies of the code.
        bootstrap: whether nodes get the packages that the job imports.
        keep_links: whether links to absolute paths are sent unchanged.
    """

    name: str
    queue: bool
    priority: int
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
class KubernetesSettings:
    """The settings for Kubernetes; each is a name in conf.py, in lower case and without K8S_.

    Attributes:
        namespace: the pods' namespace, or empty for that of the context or of the launcher's own pod.
        kubeconfig: its path, or None for the default files or the service account of the launcher's pod.
        context: its name in the kubeconfig, or empty for the current one.
        requests, limits: resources of each pod.
        queue: a queue of Kueue, or empty.
        user: the user ID of a pod's processes, which can then write only to volumes; 0 means the image's user, whose
            processes can write wherever the image permits.
        claims: PersistentVolumeClaim -> its mount path in every pod.
        shm_size: maximum size of /dev/shm.
        pull_secrets: names of Secrets with credentials for image registries.
        deadline_s: activeDeadlineSeconds of the Job; 0 means none.
        pod: a pod template that is merged last.
        start_timeout_s: seconds from the creation of the Job until all pods have connected.
    """

    image: str
    namespace: str
    kubeconfig: Path | None
    context: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    queue: str
    service_account: str
    user: int
    claims: Mapping[str, str]
    shm_size: str
    pull_secrets: tuple[str, ...]
    priority_class: str
    deadline_s: int
    pod: Mapping[str, Any]
    start_timeout_s: float


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """The settings of individual engines.

    Attributes:
        resident_s: time in seconds for which an agent waits for the next job; 0 means it does not wait.
        ports: ports of this machine for connections from nodes; empty: any.
        address: address of this machine for connections from nodes; empty: all of its addresses.
        slurm_options: options for salloc and sbatch.
        slurm_queue_timeout_s: timeout for an allocation.
        start_timeout_s: timeout for connecting to the nodes.
        slurm_job: the job ID of the allocation that this process runs in, or empty.
        waits_for_nodes: whether the nodes must still be requested from the engine; until then, they are called slurm-0,
            slurm-1, ...
    """

    resident_s: float
    ports: range
    address: str
    slurm_options: tuple[str, ...]
    slurm_queue_timeout_s: float
    start_timeout_s: float
    slurm_job: str
    waits_for_nodes: bool


@dataclass(frozen=True, kw_only=True)
class MonitoringSettings:
    """The settings for monitoring; each is a name in conf.py, in lower case.

    Attributes:
        metrics_port: port for Prometheus on metrics_address of this machine; 0 means disabled.
        tensorboard: whether curves are written to event files below log/.
        progress: regular expressions that find numbers in the trainers' log lines.
    """

    metrics_port: int
    metrics_address: str
    tensorboard: bool
    progress: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The origin of each setting, as text for messages.

    Attributes:
        hosts: the option or file that names the hosts.
        total: the number of hosts that it names.
        lines: the source and its line, for each host.
        names: name of conf.py -> the line, variable or option that set its value.
        remarks: other notes for the user.
    """

    hosts: str
    total: int
    lines: tuple[str, ...]
    names: Mapping[str, str]
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The complete configuration of a job.

    Attributes:
        conf: absolute path of conf.py, or None if the options name the hosts.
        json: whether the screen prints JSON.
        state: the directories for the state of jobs on this machine.
    """

    cluster: ClusterSettings
    ssh: SshSettings
    limits: Limits
    job: JobSettings
    kubernetes: KubernetesSettings
    engines: EngineSettings
    monitoring: MonitoringSettings
    detach: bool
    json: bool
    dry_run: bool
    conf: Path | None
    sources: Sources
    state: StatePlaces

    @property
    def num_trainers(self) -> int:
        """Return the number of the job's trainer processes."""
        return sum(map(self.trainers_on, self.cluster.trainers))

    def trainers_on(self, node_id: int) -> int:
        """Return the number of trainers on a trainer node."""
        return self.cluster.slots.get(node_id, self.job.nproc_per_node)

    def variables_of(self, node_id: int) -> Variables:
        """Return the variables that the user adds to the environment of a node's processes."""
        return self.job.host_variables.get(node_id, self.job.variables)


GROUPS: Mapping[str, type] = {
    "cluster": ClusterSettings,
    "ssh": SshSettings,
    "limits": Limits,
    "job.saving": Saving,
    "job": JobSettings,
    "kubernetes": KubernetesSettings,
    "engines": EngineSettings,
    "monitoring": MonitoringSettings,
}
"""Prefix of a target -> the class with its fields; a group inside another one comes before it."""
