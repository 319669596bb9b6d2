# SPDX-License-Identifier: Apache-2.0
"""The plan of a job: the processes of each node, with argv, environment, ports and log.

A plan is a pure function of settings and facts. Facts that are only known later (a node's address and cores, the
actual endpoints of pservers) are arguments. A plan never contains a secret, and no shell ever interprets an argv.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cached_property

from paddle_cluster.config.host_settings import HostSettings
from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import Mode
from paddle_cluster.config.settings import Settings
from paddle_cluster.plan import checkpoints, environment
from paddle_cluster.plan.environment import Endpoints, endpoint
from paddle_cluster.plan.machines import Machines, Network
from paddle_cluster.plan.ports import PserverPorts, ServicePorts, TrainerPlace, fluid_ports, trainer_places
from paddle_node.contract.classes import dataclass
from paddle_node.contract.flags import PSERVER_FLAGS
from paddle_node.contract.names import STATE_DIR

SERVER_LOG = "log/server.log"
ENTROPY_BYTES = 3

PORT_TRIES = 64
# Decided in Settings, or different on every node.
_DECIDED = frozenset({"port", "ports_num", "ports_num_for_sparse", "nics", "bind"})


class Role(Enum):
    """The role of a process in a job."""

    PSERVER = "pserver"
    TRAINER = "trainer"


@dataclass(frozen=True)
class Node:
    """A machine, or an embedded node, that has a role in the job.

    Attributes:
        node_id: index of the host in HOSTS.
        root_dir: parent of its job directories; may begin with ~, which the node expands.
        job_dir: the job's directory; may begin with ~ too.
        python: the interpreter for the job's processes.
        local_address: 127.0.0.<2+id> of an embedded node, None for a machine.
    """

    node_id: int
    host: Host
    root_dir: str
    job_dir: str
    python: str
    local_address: str | None

    @property
    def label(self) -> str:
        """Return the node's name on the screen: the host, or `local-<id>`."""
        return f"local-{self.node_id}" if self.host.is_local else self.host.describe()


@dataclass(frozen=True)
class Process:
    """A process that the job starts on a node.

    Attributes:
        name: "pserver-0", "trainer-2".
        argv: never interpreted by a shell.
        env: complete except for the variables added on the node: `environment.ADDED_ON_NODE`.
        log: file for its stdout and stderr, relative to the job directory.
        ports: TCP ports on which it is expected to listen.
    """

    name: str
    role: Role
    rank: int
    node_id: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: str
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The nodes of a job and the roles on them, from which its processes follow.

    Attributes:
        nodes: the nodes of HOSTS that have a role, in that order; `node()` finds one by ID.
        pserver_nodes, trainer_nodes: node ID by rank; a node appears once per trainer.
    """

    job_id: str
    settings: Settings
    nodes: tuple[Node, ...]
    pserver_nodes: tuple[int, ...]
    trainer_nodes: tuple[int, ...]

    @property
    def mode(self) -> Mode:
        """Return the mode of the job."""
        return self.settings.job.mode

    def node(self, node_id: int) -> Node:
        """Return the node with this ID."""
        return self._by_id[node_id]

    @cached_property
    def _by_id(self) -> dict[int, Node]:
        return {node.node_id: node for node in self.nodes}

    @cached_property
    def trainer_places(self) -> tuple[TrainerPlace, ...]:
        """Return the node, machine and position of each trainer, in rank order."""
        return trainer_places(self.trainer_nodes, one_machine=self.settings.cluster.hosts[0].is_local)

    @cached_property
    def service_ports(self) -> ServicePorts:
        """Return the ports that trainers may listen on."""
        reserved = self.pserver_ports.configured
        reach = range(reserved.start, reserved.stop + PORT_TRIES)
        return ServicePorts(self.job_id, self.trainer_places, reach)

    @cached_property
    def pserver_ports(self) -> PserverPorts:
        """Return the ports that pservers may listen on."""
        settings = self.settings
        if self.mode is Mode.FLUID:
            return fluid_ports(settings.cluster.port, is_explicit=settings.cluster.port_is_explicit)
        count = settings.cluster.ports_num + settings.cluster.ports_num_for_sparse
        return PserverPorts(range(settings.cluster.port, settings.cluster.port + count), range(0))


def new_job_id(now: datetime, entropy: bytes) -> str:
    """Return a new job ID such as JOB20261121090807-a1b2c3; IDs sort by time.

    Args:
        entropy: at least ENTROPY_BYTES random bytes.
    """
    return f"JOB{now:%Y%m%d%H%M%S}-{entropy[:ENTROPY_BYTES].hex()}"


def build(settings: Settings, job_id: str) -> Plan:
    """Build the plan of a job from its settings; no connection is made."""
    used = sorted({*settings.cluster.pservers, *settings.cluster.trainers})
    nodes = tuple(_node(settings, job_id, node_id) for node_id in used)
    trainer_nodes = tuple(
        node_id for node_id in settings.cluster.trainers for _ in range(settings.trainers_on(node_id))
    )
    return Plan(job_id, settings, nodes, settings.cluster.pservers, trainer_nodes)


def _node(settings: Settings, job_id: str, node_id: int) -> Node:
    host = settings.cluster.hosts[node_id]
    own = settings.cluster.own.get(node_id, HostSettings())
    root_dir = own.root_dir or settings.cluster.root_dir
    if host.is_local:
        root_dir = f"{root_dir.rstrip('/')}/node_{node_id}"
    job_dir = settings.job.workspace if settings.job.workspace is not None else job_id
    if not job_dir.startswith(("/", "~")):
        job_dir = f"{root_dir.rstrip('/')}/{job_dir}"
    python = own.python or settings.cluster.python or (sys.executable if host.is_local else "python3")
    return Node(node_id, host, root_dir, job_dir, python, f"127.0.0.{2 + node_id}" if host.is_local else None)


def planned_addresses(plan: Plan) -> dict[int, str]:
    """Return the addresses that are known before any connection: host names, and 127.0.0.x for embedded nodes."""
    return {node.node_id: node.local_address or node.host.name for node in plan.nodes}


def planned_endpoints(
    plan: Plan, addresses: Mapping[int, str], first_port: int | None = None
) -> dict[int, Endpoints]:
    """Return the endpoints by node ID if every pserver gets its intended ports.

    Args:
        first_port: the first port; None means the configured one.
    """
    configured = plan.pserver_ports.configured
    first = configured.start if first_port is None else first_port
    ports = range(first, first + len(configured))
    dense = 1 if plan.mode is Mode.FLUID else plan.settings.cluster.ports_num
    return {
        node_id: Endpoints(
            tuple(endpoint(addresses[node_id], port) for port in ports[:dense]),
            tuple(endpoint(addresses[node_id], port) for port in ports[dense:]),
        )
        for node_id in plan.pserver_nodes
    }


def pserver_processes(
    plan: Plan, addresses: Mapping[int, str], machines: Machines | None = None
) -> tuple[Process, ...]:
    """Return the pserver processes of a plan, by rank.

    Args:
        addresses: node ID -> address for the job's traffic.
        machines: other facts reported by the nodes.
    """
    machines = machines or Machines()
    resume = aligned(plan, machines).resume
    planned = planned_endpoints(plan, addresses, machines.pserver_port)
    job = _job_facts(plan, addresses, planned, machines)
    threads = _threads(plan, addresses, machines.cpus)
    return tuple(
        Process(
            name=f"pserver-{rank}",
            role=Role.PSERVER,
            rank=rank,
            node_id=node_id,
            argv=pserver_argv(
                plan.settings, plan.node(node_id).python, plan.job_id, addresses[node_id], resume
            ),
            env={
                **environment.of_pserver(job, node_id, rank),
                **threads[node_id],
                "PADDLE_PYTHON": plan.node(node_id).python,
            },
            log=SERVER_LOG,
            ports=_ports(planned[node_id]),
        )
        for rank, node_id in enumerate(plan.pserver_nodes)
    )


def aligned(plan: Plan, machines: Machines) -> checkpoints.ResumeChoice:
    """Choose the checkpoint for pservers to resume from, if `--resume` names none and nodes have different ones."""
    if not machines.parts:
        return checkpoints.ResumeChoice()
    names = {node.node_id: node.label for node in plan.nodes}
    given = dict(plan.settings.job.flags).get("resume", "")
    return checkpoints.choose(given, machines.parts, plan.pserver_nodes, names)


def trainer_processes(
    plan: Plan,
    addresses: Mapping[int, str],
    endpoints: Mapping[int, Endpoints],
    machines: Machines | None = None,
) -> tuple[Process, ...]:
    """Return the trainer processes of a plan, by rank.

    Args:
        addresses: node ID -> address for the job's traffic.
        endpoints: node ID of a pserver -> its actual endpoints; empty in collective mode.
        machines: other facts reported by the nodes.
    """
    machines = machines or Machines()
    job = _job_facts(plan, addresses, endpoints, machines)
    threads = _threads(plan, addresses, machines.cpus)
    return tuple(
        Process(
            name=f"trainer-{place.rank}",
            role=Role.TRAINER,
            rank=place.rank,
            node_id=place.node_id,
            argv=script_argv(plan.settings, plan.node(place.node_id).python),
            env={
                **environment.of_trainer(job, place),
                **environment.gpus(plan.settings, machines.gpus.get(place.node_id, 0), place),
                **_for_frameworks(plan, job, place, machines),
                **threads[place.node_id],
                "PADDLE_PYTHON": plan.node(place.node_id).python,
            },
            log=trainer_log(place),
            ports=environment.trainer_ports(job, place) if plan.mode is Mode.COLLECTIVE else (),
        )
        for place in plan.trainer_places
    )


def _for_frameworks(
    plan: Plan, job: environment.SharedFacts, place: TrainerPlace, machines: Machines
) -> Mapping[str, str]:
    if plan.mode is not Mode.COLLECTIVE:
        return {}
    local_address = plan.node(place.node_id).local_address
    known = machines.networks.get(place.node_id, Network())
    network = known if local_address is None else environment.embedded(local_address, known)
    return environment.for_frameworks(job, place, network, machines.gpus.get(place.node_id, 0))


def _ports(endpoints: Endpoints) -> tuple[int, ...]:
    return tuple(int(text.rpartition(":")[2]) for text in (*endpoints.dense, *endpoints.sparse))


def trainer_log(place: TrainerPlace) -> str:
    """Return the path of a trainer's log; its name contains the local rank if a node has several trainers."""
    return "log/train.log" if place.local_size == 1 else f"log/train.{place.local_rank}.log"


def _job_facts(
    plan: Plan, addresses: Mapping[int, str], endpoints: Mapping[int, Endpoints], machines: Machines
) -> environment.SharedFacts:
    return environment.SharedFacts(
        plan.job_id,
        plan.settings,
        addresses,
        plan.pserver_nodes,
        plan.trainer_places,
        plan.service_ports.runs[0] if machines.service_port is None else machines.service_port,
        endpoints,
    )


def _threads(plan: Plan, addresses: Mapping[int, str], cpus: Mapping[int, int]) -> dict[int, dict[str, str]]:
    """Return each node's thread variables: the machine's cores divided by the job's processes on it.

    All embedded nodes share one machine.
    """
    machines = {n.node_id: "" if n.host.is_local else addresses[n.node_id] for n in plan.nodes}
    sharing = Counter(machines[node_id] for node_id in (*plan.pserver_nodes, *plan.trainer_nodes))
    return {
        node_id: environment.threads(
            max(1, cpus.get(node_id, 1) // sharing[machine]), plan.settings.job.threads
        )
        for node_id, machine in machines.items()
    }


def pserver_argv(
    settings: Settings, python: str, job_id: str, address: str, resume: str = ""
) -> tuple[str, ...]:
    """Return the command line of a pserver that listens on `address`.

    In fluid mode, the script is its own pserver. Otherwise `-P` keeps the workspace off sys.path, so that its modules
    cannot replace those of the runtime.

    Args:
        resume: the checkpoint that all pservers have, which replaces the user's `--resume` unless empty.
    """
    if settings.job.mode is Mode.FLUID:
        return script_argv(settings, python)
    flags = {
        "port": str(settings.cluster.port),
        "ports_num": str(settings.cluster.ports_num),
        "ports_num_for_sparse": str(settings.cluster.ports_num_for_sparse),
        "num_gradient_servers": str(settings.num_trainers),
        "nics": settings.cluster.nic,
        "comment": job_id,
        "bind": address,
        "state_dir": STATE_DIR,
    }
    if not settings.cluster.port_is_explicit:
        flags["port_tries"] = str(PORT_TRIES)
    flags |= {name: value for name, value in settings.job.flags if name in PSERVER_FLAGS.keys() - _DECIDED}
    flags |= {"resume": resume} if resume else {}
    return (python, "-P", "-m", "paddle", "pserver", *(f"--{name}={value}" for name, value in flags.items()))


def script_argv(settings: Settings, python: str) -> tuple[str, ...]:
    """Return the command line of a process that runs the entry, or `paddle train`, with the passed-through tokens."""
    if settings.job.mode is Mode.V1:
        return (python, "-u", "-P", "-m", "paddle", "train", *settings.job.passthrough)
    return (*settings.job.entry.argv(python), *settings.job.passthrough)


def values_in_files(plan: Plan, addresses: Mapping[int, str]) -> tuple[str, ...]:
    """Return the names of variables whose values grow with the number of nodes and exceed any environment's limit.

    Args:
        addresses: node ID -> address; nodes without one are counted with the maximum length.
    """
    widest = max(addresses.values(), key=len, default="")
    known = {node.node_id: addresses.get(node.node_id, widest) for node in plan.nodes}
    job = _job_facts(plan, known, planned_endpoints(plan, known), Machines())
    shared = {**job.for_all, **job.for_trainers}
    return tuple(name for name, value in shared.items() if environment.is_too_long(name, value))
