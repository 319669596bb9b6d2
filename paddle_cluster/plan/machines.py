# SPDX-License-Identifier: Apache-2.0
"""The facts about nodes, other than addresses, that a plan uses: cores, GPUs, interfaces, free ports."""

from __future__ import annotations

from collections.abc import Mapping

from paddle_cluster.plan.addresses import interface
from paddle_cluster.plan.ports import PserverPorts, ServicePorts
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.probed import NodeAddress, Part
from paddle_node.contract.to_launcher import Probed

NAMED = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")  # these require the exact name of the interface
NCCL = "NCCL_SOCKET_IFNAME"
UCX = "UCX_NET_DEVICES"
OPEN_MPI = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
INTERFACE_VARIABLES = (*NAMED, NCCL, UCX, *OPEN_MPI)
"""The variables that a node is asked for: values in its own environment take precedence."""


def checked(probed: Probed) -> Probed:
    """Check the addresses in an answer to `probe`, and return the answer. Raises ValueError if a prefix is too long."""
    for one in probed.networks:
        interface(one.address, one.prefix)
    return probed


@dataclass(frozen=True)
class Network:
    """The network interface that a node uses for the job's traffic.

    Attributes:
        place: the address of the job's traffic with its interface, or None if unknown.
        has_rdma: whether the node has devices for remote memory access, which a TCP interface setting must not hide.
        given: the node's own values of INTERFACE_VARIABLES.
    """

    place: NodeAddress | None = None
    has_rdma: bool = False
    given: Mapping[str, str] = field(default_factory=dict)


def network_of(answer: Probed) -> Network:
    """Return the network of a node, as its answer to `probe` describes it."""
    place = next((one for one in answer.networks if one.address == answer.address), None)
    said = answer.variables
    return Network(place, answer.has_rdma, {name: said[name] for name in INTERFACE_VARIABLES if name in said})


@dataclass(frozen=True)
class Machines:
    """The known facts about the nodes' machines, by node ID; empty before any connection.

    Attributes:
        cpus: number of cores; 1 if unknown.
        gpus: number of GPUs; 0 if unknown.
        networks: the interface for the job's traffic; missing if unknown.
        service_port: first port of the trainers' run; None for the likeliest one.
        pserver_port: first port of every pserver; None for the configured one.
        parts: parts of checkpoints, if the job may resume from one.
    """

    cpus: Mapping[int, int] = field(default_factory=dict)
    gpus: Mapping[int, int] = field(default_factory=dict)
    networks: Mapping[int, Network] = field(default_factory=dict)
    service_port: int | None = None
    pserver_port: int | None = None
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict)


def read(ports: ServicePorts, pserver_ports: PserverPorts, answers: Mapping[int, Probed]) -> Machines:
    """Collect the facts about the machines from the answers to `probe`, by node ID.

    Raises:
        PreflightError: the ports that the job needs are not free.
    """
    busy = {node_id: answer.busy_ports for node_id, answer in answers.items()}
    return Machines(
        cpus={node_id: max(answer.cpus, 1) for node_id, answer in answers.items()},
        gpus={node_id: answer.gpus.count if answer.gpus else 0 for node_id, answer in answers.items()},
        networks={node_id: network_of(answer) for node_id, answer in answers.items()},
        service_port=ports.choose(busy),
        pserver_port=pserver_ports.choose(busy),
        parts={node_id: answer.facts.checkpoints for node_id, answer in answers.items()},
    )
