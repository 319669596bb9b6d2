# SPDX-License-Identifier: Apache-2.0
"""The variables of other frameworks in collective mode; docs/any-script.md lists which framework reads which variable.

There are two kinds: the network interface for a library, and the location of the other processes for JAX, TensorFlow
and XGBoost, whose names differ from torchrun's. On the node, the user's values override all of them.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from functools import lru_cache

from paddle_cluster.config.settings import Settings
from paddle_cluster.plan.answers import Answer
from paddle_cluster.plan.environment import SharedFacts, endpoint, is_too_long
from paddle_cluster.plan.ports import TrainerPlace, share
from paddle_node.contract.classes import dataclass, field, replace
from paddle_node.contract.probed import NodeAddress

_TASK = (
    '{"cluster":{"worker":},"task":{"type":"worker","index":99999}}'  # the size of TF_CONFIG without its list
)
_NAMED = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")  # these require the exact name of the interface
_NCCL = "NCCL_SOCKET_IFNAME"
_UCX = "UCX_NET_DEVICES"
_OPEN_MPI = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
INTERFACE_VARIABLES = (*_NAMED, _NCCL, _UCX, *_OPEN_MPI)
"""The variables that a node is asked for: values in its own environment take precedence."""

_LOOPBACK_BITS = 8


@dataclass(frozen=True)
class Network:
    """The network interface of a node's own traffic.

    Attributes:
        place: the address of the job's traffic with its interface, or None if unknown.
        has_rdma: whether the node has devices for remote memory access, which a TCP interface setting must not hide.
        given: the node's own values of INTERFACE_VARIABLES.
    """

    place: NodeAddress | None = None
    has_rdma: bool = False
    given: Mapping[str, str] = field(default_factory=dict)


def network_of(answer: Answer) -> Network:
    """Return the network from an answer to `probe`."""
    place = next((one for one in answer.placed if one.address == answer.address), None)
    said = answer.variables
    return Network(place, answer.has_rdma, {name: said[name] for name in INTERFACE_VARIABLES if name in said})


def embedded(address: str, known: Network) -> Network:
    """Return an embedded node's network: its address is on the loopback interface, though only 127.0.0.1 is listed."""
    return replace(known, place=NodeAddress("lo", address, _LOOPBACK_BITS))


def of_trainer(job: SharedFacts, place: TrainerPlace, network: Network, gpus: int) -> dict[str, str]:
    """Return all frameworks' variables for one trainer.

    Args:
        gpus: number of GPUs of its machine.
    """
    return {**interfaces(network), **rendezvous(job, place), **jax_devices(job.settings, gpus, place)}


def interfaces(network: Network) -> dict[str, str]:
    """Return the variables that select the interface for the libraries.

    Without these variables, libraries use the address that the host name resolves to, which is 127.0.1.1 on a default
    Debian installation, or the first plausible interface, which may belong to a container.
    """
    place = network.place
    if place is None:
        return dict(network.given)
    found = dict.fromkeys(_NAMED, place.nic)
    found[_NCCL] = f"={place.nic}"  # without the sign, eth1 also matches eth10
    if not network.has_rdma:
        found[_UCX] = place.nic
    address = ipaddress.ip_interface(f"{place.address}/{place.prefix}")
    if address.version == 4 and not address.is_loopback:
        # A network, not a name: mpirun passes its variables to machines where the interface may have another name.
        found |= dict.fromkeys(_OPEN_MPI, str(address.network))
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


def jax_devices(settings: Settings, gpus: int, place: TrainerPlace) -> dict[str, str]:
    """Return the visible GPUs of a process for JAX, which would otherwise use one GPU, as under Open MPI.

    Args:
        gpus: number of GPUs of the machine.
    """
    given = settings.variables_of(place.node_id)
    visible = given.gpus if given.rules_gpus and not given.all_gpus else gpus
    own = share(visible, place) if place.slots > 1 else range(visible)
    return {"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, own))} if own else {}


@lru_cache(maxsize=1)
def _workers(endpoints: tuple[str, ...]) -> str:
    """Return the list that all trainers of a job have in TF_CONFIG, as JSON; empty if too large for an environment."""
    text = json.dumps(endpoints, separators=(",", ":"))
    return "" if is_too_long("TF_CONFIG", text + _TASK) else text
