# SPDX-License-Identifier: Apache-2.0
"""A node's answer to `probe`, in the form that the job uses."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from paddle_cluster.plan import wheel_platform
from paddle_cluster.plan.wheel_platform import WheelPlatform
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.probed import Busy, Disk, Gpus, Machine, NodeAddress, Part
from paddle_node.contract.to_launcher import Probed


@dataclass(frozen=True)
class Answer:
    """The fields of `Probed`, ready for use.

    Attributes:
        platform: the platform that its Python needs wheels for, if known.
        modules: version by module; None: it cannot be imported.
        placed: candidate addresses for the job's traffic, the likeliest first.
        listen_ports: address -> port of a listener that peers can probe.
        cpus: number of cores that the job may use.
        busy_ports: occupied ports on `address`; `busy_at`: the same by candidate address. After they are set apart,
            `busy_ports` contains only ports configured for pservers, `busy_spare` their spare ones, and `busy_service`
            those of trainers.
        has_rdma: whether the node has devices for remote memory access, such as InfiniBand.
        variables: the requested variables of the node's environment.
        root: the disk of ROOT_DIR; `disks`: other examined disks.
        code: digest by path of the code in a directory that exists on nodes; None if not requested.
        parts: parts of checkpoints from which its pserver can resume.
        steps: duration of each check, in seconds.
    """

    python_version: str = ""
    platform: WheelPlatform | None = None
    modules: Mapping[str, str | None] = field(default_factory=dict)
    root_dir: str = "ROOT_DIR"
    free_bytes: int = 0
    writable: bool = False
    address: str = ""
    login_address: str = ""
    placed: tuple[NodeAddress, ...] = ()
    listen_ports: Mapping[str, int] = field(default_factory=dict)
    cpus: int = 1
    busy_ports: tuple[Busy, ...] = ()
    busy_spare: tuple[Busy, ...] = ()
    busy_service: tuple[Busy, ...] = ()
    busy_at: Mapping[str, tuple[Busy, ...]] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()
    root: Disk | None = None
    disks: tuple[Disk, ...] = ()
    machine: Machine = field(default_factory=Machine)
    gpus: Gpus | None = None
    has_rdma: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] | None = None
    parts: tuple[Part, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)


def answer_of(probed: Probed) -> Answer:
    """Convert a message to the preflight answer that it contains.

    Raises:
        ValueError: the prefix of an address is too long.
    """
    for one in probed.networks:
        ipaddress.ip_interface(f"{one.address}/{one.prefix}")
    facts = probed.facts
    return Answer(
        python_version=probed.python_version,
        platform=wheel_platform.read(probed.python_version, probed.python_kind),
        modules={name: version or None for name, version in probed.modules.items()},
        root_dir=probed.root_dir or "ROOT_DIR",
        free_bytes=probed.free_bytes,
        writable=probed.writable,
        address=probed.address,
        login_address=probed.login_address,
        placed=probed.networks,
        listen_ports=probed.listen_ports,
        cpus=probed.cpus or 1,
        busy_ports=probed.busy_ports,
        busy_at=probed.busy_at,
        problems=probed.problems,
        remarks=probed.remarks,
        root=facts.root_dir,
        disks=facts.disks,
        machine=facts.machine,
        gpus=probed.gpus,
        has_rdma=probed.has_rdma,
        variables=probed.variables,
        code=facts.code,
        parts=facts.checkpoints,
        steps=probed.steps,
    )
