# SPDX-License-Identifier: Apache-2.0
"""What a plan takes from the nodes' answers beside their addresses: cores, GPUs, and a run of free ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.service_ports import ServicePorts

BUSY = "busy_service_ports"


@dataclass(frozen=True)
class Machines:
    """What is known of the machines, by node id; nothing before any connection.

    Attributes:
        cpus: cores; 1 where it is not known.
        gpus: GPUs; none where it is not known.
        service_port: first port of the run for the trainers, or None: the likeliest one.
    """

    cpus: Mapping[int, int] = field(default_factory=dict)
    gpus: Mapping[int, int] = field(default_factory=dict)
    service_port: int | None = None


def read(ports: ServicePorts, probed: Mapping[int, Mapping[str, Any]]) -> Machines:
    """What the answers to `probe` tell, by node id.

    Raises:
        PreflightError: no run of ports is free.
    """
    return Machines(
        cpus={node_id: int(answer.get("cpus") or 1) for node_id, answer in probed.items()},
        gpus={node_id: _gpus(answer) for node_id, answer in probed.items()},
        service_port=ports.choose({node_id: answer.get(BUSY) or () for node_id, answer in probed.items()}),
    )


def set_ports_apart(answer: Mapping[str, Any], pserver_ports: range) -> dict[str, Any]:
    """An answer to `probe` whose busy ports are those of pservers alone; the trainers' are under BUSY."""
    busy = [(int(port), str(owner)) for port, owner in answer.get("busy_ports") or ()]
    return {
        **answer,
        "busy_ports": [entry for entry in busy if entry[0] in pserver_ports],
        BUSY: [entry for entry in busy if entry[0] not in pserver_ports],
    }


def _gpus(answer: Mapping[str, Any]) -> int:
    gpus = answer.get("gpus") or {}
    return int(gpus.get("count") or 0)
