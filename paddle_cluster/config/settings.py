# SPDX-License-Identifier: Apache-2.0
"""What of a job was configured, typed and frozen. Below this room nobody reads conf.py, os.environ or argv.

A row of the table of options says which field it decides: "job.min_trainers" is Settings.job.min_trainers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from paddle_cluster.config.arguments import Flag
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.host_settings import HostSettings
from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import Mode, SshClient, Wire
from paddle_cluster.config.variables import Variables
from paddle_cluster.system.state_dir import StatePlaces
from paddle_node.contract.classes import dataclass

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Saving(NamedTuple):
    """What scripts save to go on from: the name under which nodes keep it, or empty; patterns of what comes back."""

    name: str
    collect: tuple[str, ...]


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
        queue_timeout_s: the longest wait of --queue.
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
    queue_timeout_s: float
    keep_jobs: int
    log_limit_mb: int
    warn_size_mb: int
    collect_limit_gb: int
    collect_limit_files: int


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What the job runs, and with which settings.

    Attributes:
        name: what commands and screens call the job, or empty: its id.
        queue: the job waits until none of the user's jobs holds its hosts or its package; of waiting jobs the one with
            the highest priority is next.
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
    """Each is a name of conf.py in lower case, after K8S_.

    Attributes:
        namespace: empty: that of the context, or of the pod that the launcher runs in.
        kubeconfig: None: the default ones, or the service account of the pod that the launcher runs in.
        context: of the kubeconfig; empty: its current one.
        requests, limits: of each pod.
        queue: of Kueue, or empty.
        user: the id of a pod's processes, which then write to volumes alone; 0: the image's user, who may write
            wherever the image lets it.
        claims: PersistentVolumeClaim -> where every pod mounts it.
        shm_size: the most that /dev/shm may hold.
        pull_secrets: names of Secrets with logins of image registries.
        deadline_s: activeDeadlineSeconds of the Job; 0: none.
        pod: merged last into the pods' template.
        address: of this machine as pods see it; empty: by the route to the API server.
        start_timeout_s: from the Job's making until all pods have called.
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
    address: str
    start_timeout_s: float


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of single engines.

    Attributes:
        resident_s: seconds that an agent waits for the next job; 0: it does not wait.
        ports: ports of this machine for connections from nodes; empty: any.
        address: address of this machine for connections from nodes; empty: all of its addresses.
        slurm_options: of salloc and sbatch.
        slurm_queue_timeout_s: timeout for an allocation.
        start_timeout_s: how long nodes may take until they have been connected to.
        slurm_job: the job id of the allocation that this process runs in, or empty.
        waits_for_nodes: the nodes must be requested from the engine; until then they are called slurm-0, slurm-1, ...
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
    """Each is a name of conf.py in lower case.

    Attributes:
        metrics_port: where Prometheus finds the job, at metrics_address of this machine; 0: nowhere.
        tensorboard: whether curves go into event files below log/.
        progress: regular expressions that find numbers in the trainers' log lines.
    """

    metrics_port: int
    metrics_address: str
    tensorboard: bool
    progress: tuple[str, ...]


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
        """How many trainer processes the job has."""
        return sum(map(self.trainers_on, self.cluster.trainers))

    def trainers_on(self, node_id: int) -> int:
        """How many trainers a trainer node has."""
        return self.cluster.slots.get(node_id, self.job.nproc_per_node)

    def variables_of(self, node_id: int) -> Variables:
        """What the user adds to the environment of the processes of a node."""
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
"""Where a target's last word is a field; those inside others come first."""
