# SPDX-License-Identifier: Apache-2.0
"""What trainers of other frameworks look for in collective mode; docs/any-script.md tells who reads which variable.

Two kinds: which network interface a library is to use, and where JAX, TensorFlow and XGBoost find the other processes
when their names are not torchrun's. Whatever the user gives goes over all of it on the node.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache

from paddle_cluster.config.settings import Settings
from paddle_cluster.plan.answers import Answer
from paddle_cluster.plan.environment import SharedFacts, endpoint, is_too_long
from paddle_cluster.plan.ports import Seat, share
from paddle_node.contract.classes import dataclass
from paddle_node.contract.probed import NodeAddress

_TASK = '{"cluster":{"worker":},"task":{"type":"worker","index":99999}}'  # what TF_CONFIG has beside its list
_NAMED = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")  # these look for exactly the interface with this name
_NCCL = "NCCL_SOCKET_IFNAME"
_UCX = "UCX_NET_DEVICES"
_OPEN_MPI = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
INTERFACE_VARIABLES = (*_NAMED, _NCCL, _UCX, *_OPEN_MPI)
"""What a node is asked for: what its own environment sets of these holds."""

_LOOPBACK_BITS = 8


@dataclass(frozen=True)
class Network:
    """How a node's own traffic leaves it.

    Attributes:
        place: the address of the job's traffic with its interface, or None where it is not known.
        has_rdma: it has devices for remote memory access, which TCP's interface must not hide.
        given: what the node's own environment says of INTERFACE_VARIABLES.
    """

    place: NodeAddress | None = None
    has_rdma: bool = False
    given: Mapping[str, str] = field(default_factory=dict)


def network_of(answer: Answer) -> Network:
    """What an answer to `probe` reports."""
    place = next((one for one in answer.placed if one.address == answer.address), None)
    said = answer.variables
    return Network(place, answer.has_rdma, {name: said[name] for name in INTERFACE_VARIABLES if name in said})


def embedded(address: str, known: Network) -> Network:
    """An embedded node's: its address is on the loopback interface, though the kernel lists 127.0.0.1 alone."""
    return replace(known, place=NodeAddress("lo", address, _LOOPBACK_BITS))


def of_trainer(job: SharedFacts, seat: Seat, network: Network, gpus: int) -> dict[str, str]:
    """All of it for one trainer.

    Args:
        gpus: of its machine.
    """
    return {**interfaces(network), **rendezvous(job, seat), **jax_devices(job.settings, gpus, seat)}


def interfaces(network: Network) -> dict[str, str]:
    """Which interface the libraries use.

    Without them they take what the host's name resolves to, which is 127.0.1.1 on a Debian as it is installed, or
    the first interface that looks like one, which may be a container's.
    """
    place = network.place
    if place is None:
        return dict(network.given)
    found = dict.fromkeys(_NAMED, place.nic)
    found[_NCCL] = f"={place.nic}"  # without the sign eth1 is eth10 too
    if not network.has_rdma:
        found[_UCX] = place.nic
    address = ipaddress.ip_interface(f"{place.address}/{place.prefix}")
    if address.version == 4 and not address.is_loopback:
        # A network, not a name: mpirun hands its variables on to machines where the interface has another one.
        found |= dict.fromkeys(_OPEN_MPI, str(address.network))
    return found | dict(network.given)


def rendezvous(job: SharedFacts, seat: Seat) -> dict[str, str]:
    """Where JAX, TensorFlow and XGBoost find the other processes: rank 0 is where MASTER_ADDR and MASTER_PORT say."""
    size = len(job.seats)
    address = job.addresses[job.seats[0].node_id]
    master = endpoint(address, job.service_port)
    scheme = "tcp6" if ":" in address else "tcp"
    found = {
        "JAX_COORDINATOR_ADDRESS": master,
        "JAX_COORDINATOR_BIND_ADDRESS": master,
        # JAX takes number and count from OMPI_COMM_WORLD_* where it sees this; no Open MPI goes by it.
        "OMPI_MCA_orte_hnp_uri": f"0.0;{scheme}://{master}",
        "DMLC_TRACKER_URI": address,
        "DMLC_TRACKER_PORT": str(job.service_port),
        "DMLC_NUM_WORKER": str(size),
        "DMLC_TASK_ID": str(seat.rank).zfill(len(str(size - 1))),  # XGBoost sorts them as texts
    }
    workers = _workers(job.trainer_endpoints)
    if workers:  # a job without TensorFlow must not fail by it
        found["TF_CONFIG"] = (
            f'{{"cluster":{{"worker":{workers}}},"task":{{"type":"worker","index":{seat.rank}}}}}'
        )
    return found


def jax_devices(settings: Settings, gpus: int, seat: Seat) -> dict[str, str]:
    """Which of the GPUs that it sees are a process's own, for JAX: else it would take one, as under Open MPI.

    Args:
        gpus: of the machine.
    """
    given = settings.variables_of(seat.node_id)
    visible = given.gpus if given.rules_gpus and not given.all_gpus else gpus
    own = share(visible, seat) if seat.slots > 1 else range(visible)
    return {"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, own))} if own else {}


@lru_cache(maxsize=1)
def _workers(endpoints: tuple[str, ...]) -> str:
    """The list that all trainers of a job have in TF_CONFIG, as JSON; empty where no environment could hold it."""
    text = json.dumps(endpoints, separators=(",", ":"))
    return "" if is_too_long("TF_CONFIG", text + _TASK) else text
