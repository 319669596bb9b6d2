# SPDX-License-Identifier: Apache-2.0
"""The facts, besides addresses, that a plan takes from the nodes' answers: cores, GPUs, interfaces, free ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle_cluster.plan import frameworks
from paddle_cluster.plan.answers import Answer
from paddle_cluster.plan.frameworks import Network
from paddle_cluster.plan.ports import PserverPorts, ServicePorts
from paddle_node.contract.classes import dataclass, field, replace
from paddle_node.contract.probed import Busy, Part


@dataclass(frozen=True)
class Machines:
    """The known facts about the machines, by node ID; empty before any connection.

    Attributes:
        cpus: number of cores; 1 if unknown.
        gpus: number of GPUs; 0 if unknown.
        networks: the interface for the job's traffic; missing if unknown.
        service_port: first port of the trainers' run, or None: the likeliest one.
        pserver_port: first port of every pserver, or None: the configured one.
        parts: parts of checkpoints, if the job may resume from one.
    """

    cpus: Mapping[int, int] = field(default_factory=dict)
    gpus: Mapping[int, int] = field(default_factory=dict)
    networks: Mapping[int, Network] = field(default_factory=dict)
    service_port: int | None = None
    pserver_port: int | None = None
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict)


def read(ports: ServicePorts, pserver_ports: PserverPorts, answers: Mapping[int, Answer]) -> Machines:
    """Return the machines from the answers to `probe`, by node ID, with their ports set apart.

    Raises:
        PreflightError: the ports that the job needs are not free.
    """
    return Machines(
        cpus={node_id: answer.cpus for node_id, answer in answers.items()},
        gpus={node_id: answer.gpus.count if answer.gpus else 0 for node_id, answer in answers.items()},
        networks={node_id: frameworks.network_of(answer) for node_id, answer in answers.items()},
        service_port=ports.choose({node_id: answer.busy_service for node_id, answer in answers.items()}),
        pserver_port=pserver_ports.choose(
            {node_id: (*answer.busy_ports, *answer.busy_spare) for node_id, answer in answers.items()}
        ),
        parts={node_id: answer.parts for node_id, answer in answers.items()},
    )


def set_ports_apart(answer: Answer, busy: Sequence[Busy], pserver_ports: PserverPorts) -> Answer:
    """Return an answer to `probe` with these busy ports assigned to their categories."""
    return replace(
        answer,
        busy_ports=tuple(one for one in busy if one.port in pserver_ports.configured),
        busy_spare=tuple(one for one in busy if one.port in pserver_ports.spare),
        busy_service=tuple(one for one in busy if one.port not in pserver_ports.asked),
    )
