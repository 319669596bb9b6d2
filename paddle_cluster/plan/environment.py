# SPDX-License-Identifier: Apache-2.0
"""Builds the environment of a job's processes (see docs/design.md), except values that only the node knows.

It contains no secret: the agent adds PADDLE_JOB_KEY itself.

Values that grow with the number of nodes are sent to a node once, not with each of its processes. In a job of 3,000
nodes with 8 trainers each, each of 24,000 environments contains 400 KB of endpoints. A long value is cut into pieces of
equal size, so that values that differ only in their last bytes, such as TF_CONFIG, share the preceding pieces. A
`start` names pieces by digest, and includes those that its node has not received yet. Values above Linux's limit for a
string are written to a file on the node, and the process gets the file's path in NAME_FILE.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Set
from functools import cached_property, lru_cache

from paddle_cluster.config.options import Mode
from paddle_cluster.config.settings import OPENBLAS_POLLING, THREAD_VARIABLES, Settings
from paddle_cluster.config.variables import LONGEST
from paddle_cluster.plan import checkpoints
from paddle_cluster.plan.machines import NAMED, NCCL, OPEN_MPI, UCX, Network
from paddle_cluster.plan.ports import TrainerPlace, share, trainer_port
from paddle_node.contract import names
from paddle_node.contract.classes import dataclass, replace
from paddle_node.contract.flags import INIT_FLAGS
from paddle_node.contract.probed import NodeAddress

ADDED_ON_NODE = (
    names.CHECKPOINT_DIR,
    *(name for name in names.MARKS if name not in (names.JOB_ID, names.NODE_ID)),
    "PYTHONPATH",
)

_TASK = (
    '{"cluster":{"worker":},"task":{"type":"worker","index":99999}}'  # the size of TF_CONFIG without its list
)
_LOOPBACK_BITS = 8


@dataclass(frozen=True)
class Endpoints:
    """The endpoints of one pserver, as "ip:port": one per dense port, and one per sparse port."""

    dense: tuple[str, ...]
    sparse: tuple[str, ...]


@dataclass(frozen=True)
class SharedFacts:
    """The facts from which the environments of a job's processes are built; common parts are computed once.

    Attributes:
        addresses: node ID -> address for the job's traffic.
        pserver_nodes: node ID by rank.
        trainer_places: the trainers' places, by rank.
        service_port: first port of the trainers' run: the master port.
        endpoints: node ID of a pserver -> its endpoints.
    """

    job_id: str
    settings: Settings
    addresses: Mapping[int, str]
    pserver_nodes: tuple[int, ...]
    trainer_places: tuple[TrainerPlace, ...]
    service_port: int
    endpoints: Mapping[int, Endpoints]

    @cached_property
    def trainer_endpoints(self) -> tuple[str, ...]:
        """Return one endpoint per trainer, by rank."""
        return tuple(
            endpoint(self.addresses[place.node_id], trainer_port(self.service_port, place))
            for place in self.trainer_places
        )

    @cached_property
    def for_all(self) -> Mapping[str, str]:
        """Return the variables that are the same for every process."""
        env: dict[str, str] = {
            names.JOB_ID: self.job_id,
            names.WIRE: str(self.settings.cluster.wire),
            "PADDLE_CLUSTER_TRAIN": "True",
            "PADDLE_TRAINERS_NUM": str(len(self.trainer_places)),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(self.trainer_endpoints),
            "GLOG_logtostderr": "0",
            "GLOG_log_dir": "./log",
            "GLOG_max_log_size": str(self.settings.limits.log_limit_mb),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        if self.settings.cluster.ld_library_path:
            env["LD_LIBRARY_PATH"] = self.settings.cluster.ld_library_path
        return {**env, **self.fluid_lists} if self.settings.job.mode is Mode.FLUID else env

    @cached_property
    def fluid_lists(self) -> Mapping[str, str]:
        """Return the pservers' addresses, under the names that Fluid scripts of all versions read."""
        addresses = ",".join(self.addresses[node_id] for node_id in self.pserver_nodes)
        port = str(self._base_port())
        return {
            **self.pserver_lists,
            "PADDLE_PSERVERS": addresses,
            "PADDLE_PSERVER_IPS": addresses,
            "PADDLE_PORT": port,
            "PADDLE_PSERVER_PORT": port,
            "PADDLE_TRAINERS": str(len(self.trainer_places)),
            "PADDLE_PSERVER_EPS": self.pserver_lists["PADDLE_PSERVERS_IP_PORT_LIST"],
            "PSERVERS": self.pserver_lists["PADDLE_PSERVERS_IP_PORT_LIST"],
            "TRAINERS": str(len(self.trainer_places)),
            "PADDLE_INIT_PSERVERS": addresses,
            "PADDLE_INIT_PORT": port,
        }

    @cached_property
    def pserver_lists(self) -> Mapping[str, str]:
        """Return the pservers' endpoints in a dense and a sparse list, ordered by node, then by port."""
        dense = (text for node_id in self.pserver_nodes for text in self.endpoints[node_id].dense)
        sparse = (text for node_id in self.pserver_nodes for text in self.endpoints[node_id].sparse)
        return {
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(dense),
            "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": ",".join(sparse),
        }

    @cached_property
    def for_trainers(self) -> Mapping[str, str]:
        """Return the variables that are the same for every trainer. The plan's values override passed-through flags."""
        settings, size = self.settings, str(len(self.trainer_places))
        env = {
            f"PADDLE_INIT_{name.upper()}": value for name, value in settings.job.flags if name in INIT_FLAGS
        }
        env.setdefault("PADDLE_INIT_TRAINER_COUNT", "1")
        env["PADDLE_INIT_USE_GPU"] = str(settings.cluster.use_gpu)
        env["PADDLE_INIT_NUM_GRADIENT_SERVERS"] = size
        if self.pserver_nodes:
            env |= self.pserver_lists
            if checkpoints.pserver_restarts(settings):
                env["PADDLE_PSERVER_PATIENCE_S"] = str(checkpoints.PATIENCE_S)
            env["PADDLE_INIT_PORT"] = str(self._base_port())
            env["PADDLE_INIT_PORTS_NUM"] = str(settings.cluster.ports_num)
            env["PADDLE_INIT_PORTS_NUM_FOR_SPARSE"] = str(settings.cluster.ports_num_for_sparse)
            env["PADDLE_INIT_PSERVERS"] = ",".join(self.addresses[node_id] for node_id in self.pserver_nodes)
        env["OMPI_COMM_WORLD_SIZE"] = env["WORLD_SIZE"] = size
        env["MASTER_ADDR"] = self.addresses[self.trainer_places[0].node_id]
        env["MASTER_PORT"] = str(self.service_port)
        return env

    def _base_port(self) -> int:
        """Return the common first port of all pservers, if there is one; the lists of endpoints are always valid."""
        bases = {int(self.endpoints[node_id].dense[0].rpartition(":")[2]) for node_id in self.pserver_nodes}
        return bases.pop() if len(bases) == 1 else self.settings.cluster.port


def endpoint(address: str, port: int) -> str:
    """Return `ip:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def of_pserver(job: SharedFacts, node_id: int, rank: int) -> dict[str, str]:
    """Return a pserver's environment; for a Fluid script, it includes the location of the saved state."""
    is_kept_script = job.settings.job.mode is Mode.FLUID and checkpoints.pserver_restarts(job.settings)
    kept = {"PADDLE_PSERVER_STATE_DIR": checkpoints.state_dir(job.settings)} if is_kept_script else {}
    own = job.endpoints[node_id].dense[0]
    # cloud scripts of 0.11 and 0.12 use these for PADDLE_CURRENT_ENDPOINT and PADDLE_TRAINER_ID
    old = {"SERVER_ENDPOINT": own, "PADDLE_INIT_TRAINER_ID": str(rank)}
    is_script = job.settings.job.mode is Mode.FLUID
    return {**job.for_all, **kept, **(old if is_script else {}), **_own(job, node_id, "PSERVER", rank, own)}


def of_trainer(job: SharedFacts, place: TrainerPlace) -> dict[str, str]:
    """Return a trainer's environment, with its ranks under every name that scripts read."""
    rank, local_rank, local_size = str(place.rank), str(place.local_rank), str(place.local_size)
    env = {
        **job.for_all,
        **job.for_trainers,
        **_own(job, place.node_id, "TRAINER", place.rank, job.trainer_endpoints[place.rank]),
        "PADDLE_INIT_TRAINER_ID": rank,
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": local_rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": local_size,
        "OMPI_COMM_WORLD_NODE_RANK": local_rank,  # in Open MPI, the rank within a node
        "RANK": rank,
        "NODE_RANK": str(place.node_rank),
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
    }
    if place.local_size > 1:  # separate links paddle_trainer.INFO
        env["GLOG_log_dir"] = f"./log/trainer_{local_rank}"
    return env


def trainer_ports(job: SharedFacts, place: TrainerPlace) -> tuple[int, ...]:
    """Return the ports on which a trainer can listen: its endpoint's port and, on rank 0, the master port."""
    own = trainer_port(job.service_port, place)
    return (own, job.service_port) if place.rank == 0 else (own,)


def gpus(settings: Settings, count: int, place: TrainerPlace) -> dict[str, str]:
    """Return the variables that select a trainer's GPUs; empty if no other trainer runs on its machine.

    A trainer sees only its own GPUs, unless the user lets it see all. In collective mode, it sees all of them: scripts
    for torchrun and for Paddle's launch select one by their local rank. FLAGS_selected_gpus is an index into the
    visible GPUs.
    """
    given = settings.variables_of(place.node_id)
    own = share(count, place) if place.slots > 1 else range(0)
    if not own or (given.rules_gpus and not given.all_gpus):
        return {}
    if given.all_gpus or settings.job.mode is Mode.COLLECTIVE:
        return {"FLAGS_selected_gpus": _numbers(own)}
    return {"CUDA_VISIBLE_DEVICES": _numbers(own), "FLAGS_selected_gpus": _numbers(range(len(own)))}


def threads(count: int, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that limit threads to `count` and shorten polling, except those that the user sets."""
    return dict([*dict.fromkeys(THREAD_VARIABLES, str(count)).items(), OPENBLAS_POLLING, *given])


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _own(job: SharedFacts, node_id: int, role: str, rank: int, own_endpoint: str) -> dict[str, str]:
    return {
        names.NODE_ID: str(node_id),
        "TRAINING_ROLE": role,
        "PADDLE_TRAINING_ROLE": role,
        "POD_IP": job.addresses[node_id],
        "PADDLE_CURRENT_IP": job.addresses[node_id],
        "PADDLE_CURRENT_ENDPOINT": own_endpoint,
        "PADDLE_TRAINER_ID": str(rank),
    }


PIECE = 16384  # characters; shorter values are sent unchanged
FILE_SUFFIX = "_FILE"


@dataclass(frozen=True)
class LongValues:
    """An environment that is split into short variables and the pieces of long values.

    Attributes:
        short: names and values that are sent unchanged.
        pieces: name -> digests of the value's pieces, in order.
        in_files: the same, for values that are too large for any environment.
        texts: digest -> piece.
    """

    short: Mapping[str, str]
    pieces: Mapping[str, tuple[str, ...]]
    in_files: Mapping[str, tuple[str, ...]]
    texts: Mapping[str, str]


def split_long(env: Mapping[str, str]) -> LongValues:
    """Separate the variables whose values are longer than PIECE characters from the others."""
    texts: dict[str, str] = {}
    pieces: dict[str, tuple[str, ...]] = {}
    in_files: dict[str, tuple[str, ...]] = {}
    for name, value in env.items():
        if len(value) > PIECE:
            cut = _cut(value)
            texts.update(cut)
            (in_files if is_too_long(name, value) else pieces)[name] = tuple(digest for digest, _ in cut)
    short = {name: value for name, value in env.items() if name not in pieces and name not in in_files}
    return LongValues(short, pieces, in_files, texts)


def pack_pieces(values: LongValues, known: Set[str]) -> bytes:
    """Return unknown pieces as the body of a `start`: a JSON list, compressed; empty if there are none."""
    return _packed(tuple(text for digest, text in values.texts.items() if digest not in known))


def is_too_long(name: str, value: str) -> bool:
    """Return whether a variable exceeds Linux's limit for one string of an environment."""
    room = LONGEST - len(name) - 1
    return len(value) > room or (not value.isascii() and len(os.fsencode(value)) > room)


def too_long_message(name: str) -> str:
    """Return the message for the user about a variable that is too long for an environment."""
    return (
        f"{name} is too long for a Linux environment variable: it is written to a file, and "
        f"{name}{FILE_SUFFIX} has its path. paddle reads that file itself; other scripts must "
        "read it"
    )


@lru_cache(maxsize=64)
def _cut(value: str) -> tuple[tuple[str, str], ...]:
    parts = (value[at : at + PIECE] for at in range(0, len(value), PIECE))
    return tuple((hashlib.blake2b(os.fsencode(part), digest_size=16).hexdigest(), part) for part in parts)


@lru_cache(maxsize=64)
def _packed(texts: tuple[str, ...]) -> bytes:
    return zlib.compress(json.dumps(texts).encode("ascii"), 1) if texts else b""


def embedded(address: str, known: Network) -> Network:
    """Return an embedded node's network: its address is on the loopback interface, though only 127.0.0.1 is listed."""
    return replace(known, place=NodeAddress("lo", address, _LOOPBACK_BITS))


def for_frameworks(job: SharedFacts, place: TrainerPlace, network: Network, gpu_count: int) -> dict[str, str]:
    """Return the variables of other frameworks for one trainer; docs/any-script.md lists the readers of each.

    They select the network interface for a library, or locate the other processes for JAX, TensorFlow and XGBoost,
    whose names differ from torchrun's. On the node, the user's values override all of them.

    Args:
        gpu_count: number of GPUs of its machine.
    """
    return {**interfaces(network), **rendezvous(job, place), **jax_devices(job.settings, gpu_count, place)}


def interfaces(network: Network) -> dict[str, str]:
    """Return the variables by which communication libraries select the network interface.

    Without these variables, libraries use the address that the host name resolves to, which is 127.0.1.1 on a default
    Debian installation, or the first plausible interface, which may belong to a container.
    """
    place = network.place
    if place is None:
        return dict(network.given)
    found = dict.fromkeys(NAMED, place.nic)
    found[NCCL] = f"={place.nic}"  # without the sign, eth1 also matches eth10
    if not network.has_rdma:
        found[UCX] = place.nic
    address = ipaddress.ip_interface(f"{place.address}/{place.prefix}")
    if address.version == 4 and not address.is_loopback:
        # A network, not a name: mpirun passes its variables to machines where the interface may have another name.
        found |= dict.fromkeys(OPEN_MPI, str(address.network))
    return found | dict(network.given)


def rendezvous(job: SharedFacts, place: TrainerPlace) -> dict[str, str]:
    """Return the variables by which JAX, TensorFlow and XGBoost find the other processes; rank 0 is the master."""
    size = len(job.trainer_places)
    address = job.addresses[job.trainer_places[0].node_id]
    master = endpoint(address, job.service_port)
    scheme = "tcp6" if ":" in address else "tcp"
    found = {
        "JAX_COORDINATOR_ADDRESS": master,
        "JAX_COORDINATOR_BIND_ADDRESS": master,
        # With this set, JAX takes number and count from OMPI_COMM_WORLD_*; Open MPI itself does not use it.
        "OMPI_MCA_orte_hnp_uri": f"0.0;{scheme}://{master}",
        "DMLC_TRACKER_URI": address,
        "DMLC_TRACKER_PORT": str(job.service_port),
        "DMLC_NUM_WORKER": str(size),
        "DMLC_TASK_ID": str(place.rank).zfill(len(str(size - 1))),  # XGBoost sorts them as texts
    }
    workers = _workers(job.trainer_endpoints)
    if workers:  # a job without TensorFlow must not fail because of it
        found["TF_CONFIG"] = (
            f'{{"cluster":{{"worker":{workers}}},"task":{{"type":"worker","index":{place.rank}}}}}'
        )
    return found


def jax_devices(settings: Settings, gpu_count: int, place: TrainerPlace) -> dict[str, str]:
    """Return the variable by which JAX uses all GPUs of a trainer; otherwise, it would use only one."""
    given = settings.variables_of(place.node_id)
    visible = given.gpus if given.rules_gpus and not given.all_gpus else gpu_count
    own = share(visible, place) if place.slots > 1 else range(visible)
    return {"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, own))} if own else {}


@lru_cache(maxsize=1)
def _workers(endpoints: tuple[str, ...]) -> str:
    """Return the list that all trainers of a job have in TF_CONFIG, as JSON; empty if too large for an environment."""
    text = json.dumps(endpoints, separators=(",", ":"))
    return "" if is_too_long("TF_CONFIG", text + _TASK) else text
