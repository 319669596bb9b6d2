# SPDX-License-Identifier: Apache-2.0
"""The table of settings: OPTIONS has the command-line options, NAMES has settings that only conf.py can assign.

A row defines an option completely: parsing, checks, completion, --help and its field in Settings all use the row. A
test compares the pages of docs/ with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddle_cluster.config import entry, host_settings, hosts, kubernetes, values
from paddle_cluster.config.engines import ENGINES
from paddle_cluster.config.values import boolean, integer, list_of, one_of, seconds, text, whole
from paddle_cluster.system.installation import IS_CHECKOUT
from paddle_node.contract.classes import NamedTuple


class Mode(StrEnum):
    """The kind of job (--mode), which determines its processes."""

    V2 = "v2"
    FLUID = "fluid"
    COLLECTIVE = "collective"
    V1 = "v1"

    @property
    def has_pserver_command(self) -> bool:
        """Return whether pservers run `paddle pserver`, which writes checkpoints, instead of the user's script."""
        return self in (Mode.V1, Mode.V2)


class Wire(StrEnum):
    """The protection of the connections between pservers and trainers: encryption and authentication, or neither."""

    CURVE = "curve"
    PLAIN = "plain"


class SshClient(StrEnum):
    """The client for SSH logins: a library in this process, or the user's own `ssh` in one process per node."""

    FABRIC = "fabric"
    OPENSSH = "openssh"


REQUIRED = object()
"""The default of a name that conf.py must assign."""


class Option(NamedTuple):
    """A row of the table of settings: one that an option, a name in conf.py or an environment variable can set.

    Attributes:
        name: the option, or empty if only conf.py can set it.
        target: the field of Settings that it sets, such as "job.min_trainers"; several rows may share one. Empty: none.
        metavar: placeholder, or empty for a switch.
        read: converts a value to its typed form or raises ValueMismatchError.
        default: the typed default value; `read` expands the `~` of a path.
        help: text for --help.
        against: options that cannot be combined with this one -> the reason or remedy.
        conf: the name in conf.py, or empty.
        split: converts the option's text to the form that `read` accepts, if conf.py uses a different form.
        flag: the passed-through flag that overrides conf.py.
        from_environment: an environment variable of the same name overrides conf.py.
    """

    name: str
    target: str
    metavar: str = ""
    read: Callable[[Any], Any] = boolean
    default: Any = False
    help: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    repeats: bool = False
    against: Mapping[str, str] = {}
    conf: str = ""
    split: Callable[[str], Any] | None = None
    flag: str = ""
    from_environment: bool = False

    @property
    def key(self) -> str:
        """Return the key of the row: its name in conf.py or, without one, the option's name."""
        return self.conf or self.name

    @property
    def written(self) -> str:
        """Return the option with its metavar, as --help prints it."""
        return f"--{self.name}" + (f"={self.metavar}" if self.metavar else "")

    @property
    def absent_value(self) -> Any:
        """Return the option's value if it is not given: its default, or None if a value is required."""
        if self.default is REQUIRED:
            return None
        return self.read(str(self.default)) if isinstance(self.default, Path) else self.default


_CONF = "conf.py beside paddle.py" if IS_CHECKOUT else "DIR/../conf.py, else ./conf.py"
_ONE_SOURCE = "both list the hosts; give only one of them"
_PODS = {
    f"--engine={row.name}": "cannot be combined: --nnodes sets the number of pods; omit the first"
    for row in ENGINES.values()
    if not row.can_choose
}
_directories = partial(text, expected="directories separated by ':', such as '/opt/a/lib:/opt/b/lib'")
_SILENT = "cannot be combined, because the second option prints no events; omit one of them"
_ALLOCATION = {f"--engine={row.name}": _ONE_SOURCE for row in ENGINES.values() if row.hosts}
_OWN_QUEUE = {
    f"--engine={row.name}": "cannot be combined: the engine has a queue of its own; omit --queue"
    for row in ENGINES.values()
    if row.hosts
}

COMMON = (
    Option(
        "job_dispatch_package",
        "job.package",
        "DIR",
        Path,
        None,
        "send DIR to every node and run it there",
        short="p",
        against={
            "--job_workspace": (
                "cannot be combined: the first sends a directory to the nodes, the second runs one "
                "that is already there; give only one of them"
            )
        },
    ),
    Option(
        "job_workspace",
        "job.workspace",
        "DIR",
        values.directory_there,
        None,
        "run DIR, which is already on the nodes",
        "j",
    ),
    Option("dry_run", "dry_run", help="show every process of the job; connect to nothing"),
    Option("conf", "conf", "FILE", Path, None, f"the cluster (default: {_CONF})"),
    Option(
        "hosts",
        "cluster.hosts",
        "HOST[,HOST]",
        list_of(hosts.host, "hosts, such as ['root@10.1.9.7']"),
        REQUIRED,
        "use these hosts: user@a,b:2222; or --hostfile=FILE",
        against={"--hostfile": _ONE_SOURCE, **_ALLOCATION},
        conf="HOSTS",
        split=hosts.listed,
    ),
    Option(
        "engine",
        "cluster.engine",
        "ENGINE",
        str,
        "ssh",
        "ssh (default), openmpi, slurm or kubernetes",
        choices=tuple(ENGINES),
    ),
    Option(
        "entry",
        "job.entry",
        "FILE",
        entry.read,
        entry.Entry(entry.DEFAULT),
        "run train.py (default), ./run.sh, -mpkg.module",
    ),
    Option(
        "mode",
        "job.mode",
        "MODE",
        Mode,
        Mode.V2,
        "v2 (default), fluid, v1, or collective: any script",
        choices=tuple(Mode),
    ),
    Option(
        "nproc_per_node", "job.nproc_per_node", "N", whole(1), None, "start N trainers per node (default: 1)"
    ),
    Option(
        "env",
        "job.variables",
        "NAME[=VALUE]",
        values.utf8,
        (),
        "set a variable for every process; or --env_file=FILE",
        repeats=True,
    ),
    Option("max_restarts", "job.max_restarts", "N", whole(0), 0, "restart a failed process up to N times"),
    Option("detach", "detach", help="run in the background; attach shows it again"),
    Option("help", "", help="print this text; --version prints the version", short="h"),
)
"""The options in the short --help, in this order."""

OTHERS = (
    Option(
        "hostfile", "cluster.hosts", "FILE", Path, None, "use the hosts listed in FILE", against=_ALLOCATION
    ),
    Option(
        "include", "cluster.hosts", "HOST[,HOST]", hosts.listed, (), "use only these hosts", against=_PODS
    ),
    Option(
        "exclude",
        "cluster.hosts",
        "HOST[,HOST]",
        hosts.listed,
        (),
        "use all hosts except these",
        against=_PODS,
    ),
    Option("nnodes", "cluster.hosts", "N", whole(1), None, "use the first N of these hosts, or start N pods"),
    Option(
        "queue",
        "job.queue",
        help="wait until no other job of yours uses the hosts or DIR",
        against=_OWN_QUEUE,
    ),
    Option(
        "queue_priority", "job.priority", "N", whole(0), 0, "start the waiting job with the highest N first"
    ),
    Option("name", "job.name", "NAME", values.job_name, "", "name the job, for status, logs and stop"),
    Option("env_file", "job.env_files", "FILE", Path, (), "set the variables listed in FILE", repeats=True),
    Option("min_trainers", "job.min_trainers", "N", whole(1), None, "continue while N trainers remain"),
    Option(
        "json",
        "json",
        help="print events as JSON, one per line",
        against={"--detach": _SILENT, "--dry_run": _SILENT},
    ),
    Option(
        "shard_dirs",
        "job.shard_dirs",
        "DIR[,DIR]",
        values.directories,
        (),
        "send each file in DIR to only one node",
        against={
            "--job_workspace": "cannot be combined: the first selects files to send and needs --job_dispatch_package",
            "--min_trainers --mode=collective": (
                "cannot be combined: a remaining trainer would get a new rank but keep its old "
                "shard; omit --shard_dirs, so that every node has all files"
            ),
        },
    ),
    Option(
        "keep_as",
        "job.saving.name",
        "NAME",
        values.directory_name,
        "",
        "set the name of the script's checkpoint directory",
    ),
    Option(
        "collect",
        "job.saving.collect",
        "PATTERN[,PATTERN]",
        values.patterns,
        (),
        "copy matching files back from that directory",
    ),
    Option("keep_links", "job.keep_links", help="send links to absolute paths unchanged"),
    Option(
        "wire",
        "cluster.wire",
        "WIRE",
        one_of(Wire),
        Wire.CURVE,
        "between processes: curve (default, encrypted) or plain",
        choices=tuple(Wire),
        conf="WIRE",
    ),
    Option(
        "bootstrap", "job.bootstrap", help="also send the packages that the job imports", conf="BOOTSTRAP"
    ),
    Option("accept_new_host_keys", "ssh.accept_new_host_keys", help="trust the keys of unknown hosts"),
    Option("allow_mismatch", "job.allow_mismatch", help="allow different versions of Python and packages"),
    Option("version", "", help="print the version"),
)

OPTIONS = (*COMMON, *OTHERS)
"""All command-line options, in the order of `run --help`."""


def _name(conf: str, target: str, default: object, read: Callable[[Any], Any]) -> Option:
    return Option("", target, "VALUE", read, default, conf=conf)


def _flag(conf: str, target: str, default: object, read: Callable[[Any], Any], flag: str) -> Option:
    return _name(conf, target, default, read)._replace(flag=flag, from_environment=True)


_DAY_S = 86400.0
_seconds = seconds(0.1, _DAY_S)
_SLURM_EXAMPLE = "options of salloc, such as ['--partition=gpu']"
_nodes = list_of(values.node_reference, "entries of HOSTS or their indices, such as [0, 1]")

NAMES = (
    _name("PSERVERS", "cluster.pservers", None, _nodes),
    _name("TRAINERS", "cluster.trainers", None, _nodes),
    _name("ROOT_DIR", "cluster.root_dir", "~/.paddle-cluster", values.root_dir),
    _name("JOB_UMASK", "cluster.job_umask", 0o077, values.umask),
    _flag("PADDLE_NIC", "cluster.nic", "", values.nics, "nics"),
    _flag("PADDLE_PORT", "cluster.port", 7164, integer(1, 65535), "port"),
    _flag("PADDLE_PORTS_NUM", "cluster.ports_num", 1, integer(1, 1024), "ports_num"),
    _flag(
        "PADDLE_PORTS_NUM_FOR_SPARSE",
        "cluster.ports_num_for_sparse",
        1,
        integer(0, 1024),
        "ports_num_for_sparse",
    ),
    _flag("PADDLE_USE_GPU", "cluster.use_gpu", False, boolean, "use_gpu"),
    _name("LD_LIBRARY_PATH", "cluster.ld_library_path", "", _directories),
    _name("PYTHON", "cluster.python", "", values.python),
    _name("HOST_SETTINGS", "cluster.own", (), host_settings.read),
    _name("SSH_CLIENT", "ssh.client", SshClient.FABRIC, one_of(SshClient)),
    _name("SSH_CONFIG", "ssh.config", Path("~/.ssh/config"), values.ssh_config),
    _name("SSH_KNOWN_HOSTS", "ssh.known_hosts", Path("~/.ssh/known_hosts"), values.ssh_path),
    _name("SSH_IDENTITY_FILES", "ssh.identity_files", (), list_of(values.local_file, "private key files")),
    _name("SSH_JUMP", "ssh.jump", "", hosts.jump),
    _name("CONNECT_TIMEOUT_S", "ssh.connect_timeout_s", 10.0, _seconds),
    _name("PREFLIGHT_TIMEOUT_S", "limits.preflight_timeout_s", 20.0, _seconds),
    _name("READY_TIMEOUT_S", "limits.ready_timeout_s", 30.0, _seconds),
    _name("STOP_GRACE_S", "limits.stop_grace_s", 5.0, seconds(0, _DAY_S)),
    _name("COLLECT_TIMEOUT_S", "limits.collect_timeout_s", 30.0, _seconds),
    _name("LEASE_S", "limits.lease_s", 30.0, seconds(1, _DAY_S)),
    _name("HEARTBEAT_TIMEOUT_S", "limits.heartbeat_timeout_s", 10.0, seconds(1, _DAY_S)),
    _name("STEP_TIMEOUT_S", "limits.step_timeout_s", 600.0, seconds(0, _DAY_S)),
    _name("RESTART_BACKOFF_S", "limits.restart_backoff_s", 1.0, seconds(0, _DAY_S)),
    _name("QUEUE_TIMEOUT_S", "limits.queue_timeout_s", 604800.0, seconds(1, 365 * _DAY_S)),
    _name("KEEP_JOBS", "limits.keep_jobs", 3, integer(1, 1_000_000)),
    _name("LOG_LIMIT_MB", "limits.log_limit_mb", 256, integer(1, 1 << 20)),
    _name("WARN_SIZE_MB", "limits.warn_size_mb", 100, integer(1, 1 << 20)),
    _name("COLLECT_LIMIT_GB", "limits.collect_limit_gb", 100, integer(1, 1 << 20)),
    _name("COLLECT_LIMIT_FILES", "limits.collect_limit_files", 1_000_000, integer(1, 10_000_000)),
    _name("METRICS_PORT", "monitoring.metrics_port", 0, integer(0, 65535)),
    _name("METRICS_ADDRESS", "monitoring.metrics_address", "127.0.0.1", values.ip_address),
    _name("TENSORBOARD", "monitoring.tensorboard", False, boolean),
    _name("PROGRESS", "monitoring.progress", (), entry.read_progress),
    _name("RESIDENT_S", "engines.resident_s", 0.0, seconds(0, _DAY_S)),
    _name("ENGINE_PORT", "engines.ports", range(0), values.ports),
    _name("ENGINE_ADDRESS", "engines.address", "", hosts.own_address),
    _name("SLURM_OPTIONS", "engines.slurm_options", (), list_of(values.slurm_option, _SLURM_EXAMPLE)),
    _name("SLURM_QUEUE_TIMEOUT_S", "engines.slurm_queue_timeout_s", 86400.0, seconds(1, 365 * _DAY_S)),
    _name("K8S_NODES", "cluster.hosts", 0, integer(0, values.MOST_COUNTED)),
    _name("K8S_IMAGE", "kubernetes.image", "", kubernetes.name),
    _name("K8S_NAMESPACE", "kubernetes.namespace", "", kubernetes.label),
    _name("K8S_KUBECONFIG", "kubernetes.kubeconfig", None, kubernetes.kubeconfig),
    _name("K8S_CONTEXT", "kubernetes.context", "", text),
    _name("K8S_REQUESTS", "kubernetes.requests", {}, kubernetes.amounts("{'cpu': 4, 'memory': '8Gi'}")),
    _name("K8S_LIMITS", "kubernetes.limits", {}, kubernetes.amounts("{'nvidia.com/gpu': 1}")),
    _name("K8S_NODE_SELECTOR", "kubernetes.node_selector", {}, kubernetes.labels),
    _name("K8S_TOLERATIONS", "kubernetes.tolerations", (), list_of(kubernetes.toleration, "tolerations")),
    _name("K8S_QUEUE", "kubernetes.queue", "", kubernetes.name),
    _name("K8S_SERVICE_ACCOUNT", "kubernetes.service_account", "", kubernetes.name),
    _name("K8S_USER", "kubernetes.user", 1000, integer(0, 2**31 - 1)),
    _name("K8S_PVC", "kubernetes.claims", {}, kubernetes.claims),
    _name("K8S_SHM_SIZE", "kubernetes.shm_size", "8Gi", kubernetes.quantity),
    _name(
        "K8S_IMAGE_PULL_SECRETS", "kubernetes.pull_secrets", (), list_of(kubernetes.name, "names of Secrets")
    ),
    _name("K8S_PRIORITY_CLASS", "kubernetes.priority_class", "", kubernetes.name),
    _name("K8S_DEADLINE_S", "kubernetes.deadline_s", 30 * 86400, integer(0, 2**31 - 1)),
    _name("K8S_POD", "kubernetes.pod", {}, kubernetes.pod),
    _name("K8S_START_TIMEOUT_S", "kubernetes.start_timeout_s", 600.0, seconds(1, 7 * _DAY_S)),
)

BY_KEY: Mapping[str, Option] = MappingProxyType({row.key: row for row in (*OPTIONS, *NAMES)})
"""All rows by their key: the name in conf.py, or else the option."""

LONG: Mapping[str, Option] = MappingProxyType({row.name: row for row in OPTIONS})
"""Options by their name."""

CONF_NAMES: Mapping[str, Option] = MappingProxyType({row.conf: row for row in BY_KEY.values() if row.conf})
"""The names that conf.py can assign."""
