# SPDX-License-Identifier: Apache-2.0
"""The launcher's own options and the words some of them take."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Mode(StrEnum):
    """What a job consists of."""

    V2 = "v2"
    FLUID = "fluid"
    COLLECTIVE = "collective"


class Wire(StrEnum):
    """How pservers and trainers speak: encrypted and authenticated, or neither."""

    CURVE = "curve"
    PLAIN = "plain"


class SshClient(StrEnum):
    """What logs in to nodes: a library in this process, or the user's own `ssh`, a process for each node."""

    FABRIC = "fabric"
    OPENSSH = "openssh"


class EngineKind(StrEnum):
    """What starts agents on the nodes."""

    SSH = "ssh"
    OPENMPI = "openmpi"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


OWN_HOSTS: Mapping[str, str] = {
    EngineKind.SLURM: "--engine=slurm, which has those of its allocation,",
    EngineKind.KUBERNETES: "--engine=kubernetes, which has as many pods as --nnodes or K8S_NODES says,",
}
"""Engines that know their nodes themselves, and which ones."""


class Option(NamedTuple):
    """One option of the launcher itself; without a metavar it is a switch, with `repeats` it may come again."""

    name: str
    metavar: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    repeats: bool = False


class Saving(NamedTuple):
    """What scripts save to go on from: the name under which nodes keep it, or empty; patterns of what comes back."""

    name: str = ""
    collect: tuple[str, ...] = ()


UNNAMED = Saving()
"""Kept under the job's id, and nothing comes back."""

OPTIONS = (
    Option("job_dispatch_package", "DIR", short="p"),
    Option("job_workspace", "DIR", short="j"),
    Option("conf", "FILE"),
    Option("hosts", "HOST[,HOST]"),
    Option("engine", "ENGINE", choices=tuple(EngineKind)),
    Option("hostfile", "FILE"),
    Option("include", "HOST[,HOST]"),
    Option("exclude", "HOST[,HOST]"),
    Option("nnodes", "N"),
    Option("dry_run"),
    Option("entry", "FILE"),
    Option("mode", "MODE", choices=tuple(Mode)),
    Option("nproc_per_node", "N"),
    Option("env", "NAME[=VALUE]", repeats=True),
    Option("env_file", "FILE", repeats=True),
    Option("max_restarts", "N"),
    Option("min_trainers", "N"),
    Option("detach"),
    Option("json"),
    Option("shard_dirs", "DIR[,DIR]"),
    Option("keep_as", "NAME"),
    Option("collect", "PATTERN[,PATTERN]"),
    Option("keep_links"),
    Option("wire", "WIRE", choices=tuple(Wire)),
    Option("bootstrap"),
    Option("accept_new_host_keys"),
    Option("allow_mismatch"),
    Option("help", short="h"),
    Option("version"),
)
"""In the order in which --help shows them."""

HOSTS_ADVICE = "give --hosts=HOST[,HOST:PORT] or --hostfile=FILE, or HOSTS in conf.py"
_ROLES = (
    "PSERVERS and TRAINERS in conf.py say which hosts run what, --nproc_per_node=N how many trainers each"
)
_PER_NODE = "give --nproc_per_node=N"
_SET = "every process finds RANK, MASTER_ADDR, MASTER_PORT and the like in its environment"
_EXPECTED = {
    "config_file conf_file cluster cluster_conf cluster_config": "give --conf=FILE",
    "host host_file hostlist machinefile machine_file nodelist nodes ips cluster_node_ips H": HOSTS_ADVICE,
    "np nproc nprocs npernode ppn procs_per_node processes_per_node": _PER_NODE,
    "num_gpus num_processes gpus_per_node ntasks_per_node": _PER_NODE,
    "num_nodes num_machines": "give --nnodes=N",
    "node_rank machine_rank master_addr main_process_ip rdzv_endpoint rdzv_id rdzv_backend": f"{_SET}; {HOSTS_ADVICE}",
    "master_port main_process_port standalone": f"{_SET}; leave it out",
    "server_num num_servers num_pservers worker_num num_trainers": _ROLES,
    "script m": "give --entry=FILE, or --entry=-mpackage.module",
    "package": "give --job_dispatch_package=DIR",
    "daemon background": "give --detach",
    "ssh_port ssh_user": "write [user@]host[:port] in HOSTS or --hosts",
    "ssh_key identity_file": "give SSH_IDENTITY_FILES in conf.py",
}

EXPECTED: Mapping[str, str] = MappingProxyType(
    {name: advice for names, advice in _EXPECTED.items() for name in names.split()}
)
"""Names that other launchers have for what is called otherwise here, and what to give instead."""
