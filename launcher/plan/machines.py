# SPDX-License-Identifier: Apache-2.0
"""What a plan takes from the nodes' answers beside their addresses: cores, GPUs, and free ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.plan.pserver_ports import PserverPorts
from launcher.plan.service_ports import ServicePorts

BUSY = "busy_service_ports"
BUSY_SPARE = "busy_spare_ports"


@dataclass(frozen=True)
class Machines:
    """What is known of the machines, by node id; nothing before any connection.

    Attributes:
        cpus: cores; 1 where it is not known.
        gpus: GPUs; none where it is not known.
        service_port: first port of the run for the trainers, or None: the likeliest one.
        pserver_port: first port of every pserver, or None: the configured one.
    """

    cpus: Mapping[int, int] = field(default_factory=dict)
    gpus: Mapping[int, int] = field(default_factory=dict)
    service_port: int | None = None
    pserver_port: int | None = None


def read(
    ports: ServicePorts, pserver_ports: PserverPorts, probed: Mapping[int, Mapping[str, Any]]
) -> Machines:
    """What the answers to `probe` tell, by node id.

    Raises:
        PreflightError: the ports that the job needs are not free.
    """
    taken = {
        node_id: (*(answer.get("busy_ports") or ()), *(answer.get(BUSY_SPARE) or ()))
        for node_id, answer in probed.items()
    }
    return Machines(
        cpus={node_id: int(answer.get("cpus") or 1) for node_id, answer in probed.items()},
        gpus={node_id: _gpus(answer) for node_id, answer in probed.items()},
        service_port=ports.choose({node_id: answer.get(BUSY) or () for node_id, answer in probed.items()}),
        pserver_port=pserver_ports.choose(taken),
    )


def set_ports_apart(answer: Mapping[str, Any], pserver_ports: PserverPorts) -> dict[str, Any]:
    """An answer to `probe` whose busy ports are the configured ones of pservers alone.

    Their spare ones are under BUSY_SPARE, the trainers' under BUSY.
    """
    busy = [(int(port), str(owner)) for port, owner in answer.get("busy_ports") or ()]
    return {
        **answer,
        "busy_ports": [entry for entry in busy if entry[0] in pserver_ports.configured],
        BUSY_SPARE: [entry for entry in busy if entry[0] in pserver_ports.spare],
        BUSY: [entry for entry in busy if entry[0] not in pserver_ports.asked],
    }


def _gpus(answer: Mapping[str, Any]) -> int:
    gpus = answer.get("gpus") or {}
    return int(gpus.get("count") or 0)
