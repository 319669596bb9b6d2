# SPDX-License-Identifier: Apache-2.0
"""The environment of a job's processes, as docs/design.md lists it, without what only the node knows.

Nothing secret passes through here: the agent adds PADDLE_JOB_KEY itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from launcher.flags import INIT_FLAGS
from launcher.options import Mode
from launcher.settings import THREAD_VARIABLES, Settings

ADDED_ON_NODE = ("PADDLE_JOB_DIR", "PADDLE_JOB_KEY", "PADDLE_REPORT_FD", "PYTHONPATH")

# Below the usual ephemeral range, so that no outgoing connection takes such a port in between.
_FIRST_SERVICE_PORT = 20000
_SERVICE_PORTS = 12000


@dataclass(frozen=True)
class Endpoints:
    """Where one pserver listens: "ip:port" of each dense and each sparse port."""

    dense: tuple[str, ...]
    sparse: tuple[str, ...]


@dataclass(frozen=True)
class JobFacts:
    """What the environments of one job are made of.

    Attributes:
        addresses: node id -> address for the job's traffic.
        pserver_nodes, trainer_nodes: node id by rank.
        pserver_ports: ports that pservers are configured for.
    """

    job_id: str
    settings: Settings
    addresses: Mapping[int, str]
    pserver_nodes: tuple[int, ...]
    trainer_nodes: tuple[int, ...]
    pserver_ports: Sequence[int]

    def service_port(self, which: int) -> int:
        """The which-th port of this job outside the pservers' range; other jobs most likely get others."""
        digest = hashlib.sha256(self.job_id.encode()).digest()
        port = _FIRST_SERVICE_PORT + int.from_bytes(digest[:4], "big") % _SERVICE_PORTS
        free = (at for at in range(port, 65536) if at not in self.pserver_ports)
        for _ in range(which):
            next(free)
        return next(free)

    def trainer_endpoints(self) -> tuple[str, ...]:
        """One endpoint a trainer, by rank."""
        return tuple(
            endpoint(self.addresses[node_id], self.service_port(1)) for node_id in self.trainer_nodes
        )


def endpoint(address: str, port: int) -> str:
    """`ip:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def of_pserver(job: JobFacts, node_id: int, rank: int, planned: Mapping[int, Endpoints]) -> dict[str, str]:
    """A pserver's environment; in fluid mode it runs the script, which wants the list of all pservers."""
    env = _of_any(job, node_id, "PSERVER", rank, endpoint(job.addresses[node_id], job.settings.port))
    if job.settings.mode is Mode.FLUID:
        env |= _pserver_lists(job, planned)
    return env


def of_trainer(job: JobFacts, node_id: int, rank: int, endpoints: Mapping[int, Endpoints]) -> dict[str, str]:
    """A trainer's environment."""
    env = _of_any(job, node_id, "TRAINER", rank, job.trainer_endpoints()[rank])
    env |= {f"PADDLE_INIT_{name.upper()}": value for name, value in job.settings.flags if name in INIT_FLAGS}
    env |= _init_flags(job, rank, endpoints)
    if job.pserver_nodes:
        env |= _pserver_lists(job, endpoints)
    return env | _ranks(job, rank)


def trainer_ports(job: JobFacts, rank: int) -> tuple[int, ...]:
    """Ports a trainer may listen on: its endpoint's, and on rank 0 the master port."""
    return (job.service_port(1), job.service_port(0)) if rank == 0 else (job.service_port(1),)


def threads(count: int, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The thread variables: `count`, unless the user's environment sets them."""
    return dict.fromkeys(THREAD_VARIABLES, str(count)) | dict(given)


def _of_any(job: JobFacts, node_id: int, role: str, rank: int, own_endpoint: str) -> dict[str, str]:
    env = {
        "PADDLE_JOB_ID": job.job_id,
        "PADDLE_NODE_ID": str(node_id),
        "PADDLE_WIRE": str(job.settings.wire),
        "PADDLE_CLUSTER_TRAIN": "True",
        "TRAINING_ROLE": role,
        "POD_IP": job.addresses[node_id],
        "PADDLE_CURRENT_ENDPOINT": own_endpoint,
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(job.trainer_nodes)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(job.trainer_endpoints()),
        "GLOG_logtostderr": "0",
        "GLOG_log_dir": "./log",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    if job.settings.ld_library_path:
        env["LD_LIBRARY_PATH"] = job.settings.ld_library_path
    return env


def _init_flags(job: JobFacts, rank: int, endpoints: Mapping[int, Endpoints]) -> dict[str, str]:
    """The PADDLE_INIT_* that the plan decides, whatever was passed through."""
    settings = job.settings
    env = {
        "PADDLE_INIT_USE_GPU": str(settings.use_gpu),
        "PADDLE_INIT_TRAINER_COUNT": dict(settings.flags).get("trainer_count", "1"),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(len(job.trainer_nodes)),
        "PADDLE_INIT_TRAINER_ID": str(rank),
    }
    if job.pserver_nodes:
        env |= {
            "PADDLE_INIT_PORT": str(_base_port(job, endpoints)),
            "PADDLE_INIT_PORTS_NUM": str(settings.ports_num),
            "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(settings.ports_num_for_sparse),
            "PADDLE_INIT_PSERVERS": ",".join(job.addresses[node_id] for node_id in job.pserver_nodes),
        }
    return env


def _base_port(job: JobFacts, endpoints: Mapping[int, Endpoints]) -> int:
    """The first port of all pservers where they agree; the lists of endpoints hold either way."""
    bases = {int(endpoints[node_id].dense[0].rpartition(":")[2]) for node_id in job.pserver_nodes}
    return bases.pop() if len(bases) == 1 else job.settings.port


def _pserver_lists(job: JobFacts, endpoints: Mapping[int, Endpoints]) -> dict[str, str]:
    dense = (text for node_id in job.pserver_nodes for text in endpoints[node_id].dense)
    sparse = (text for node_id in job.pserver_nodes for text in endpoints[node_id].sparse)
    return {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(dense),
        "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": ",".join(sparse),
    }


def _ranks(job: JobFacts, rank: int) -> dict[str, str]:
    """What MPI and PyTorch scripts read; there is one trainer a node."""
    size = str(len(job.trainer_nodes))
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": size,
        "RANK": str(rank),
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(rank),
        "MASTER_ADDR": job.addresses[job.trainer_nodes[0]],
        "MASTER_PORT": str(job.service_port(0)),
    }
