# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch_ps`: starts a script as pservers and trainers; TRAINING_ROLE gives the role.

The job ends when all trainers are done; pservers that are still running then are stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from paddle.distributed import keeper, nodes, script
from paddle.distributed.keeper import Worker
from paddle.distributed.nodes import Nodes
from paddle.endpoints import address_of, endpoint_of
from paddle.errors import ConfigError

PORT = 6170
COUNT = 2
_MODULE = "paddle.distributed.launch_ps"


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the processes and wait for them; return the exit code, or 2 if nothing was started."""
    return script.launch(_MODULE, _flags(), plan, arguments)


def plan(given: argparse.Namespace, environ: Mapping[str, str]) -> list[Worker]:
    """Return the processes of this node, pservers first.

    Raises:
        ConfigError: flags and environment contradict each other, or a port is in use.
    """
    argv = script.argv(given)
    where = nodes.resolve(given.cluster_node_ips, given.node_ip, environ)
    if given.worker_num < 1 or (given.server_num is not None and given.server_num < 1):
        raise ConfigError(
            f"--worker_num, --server_num: expected at least 1, got {given.worker_num}, {given.server_num}"
        )
    servers = _endpoints(given, where)
    folder = script.log_folder(given.log_dir)
    own = [(rank, one) for rank, one in enumerate(servers) if one[0] == where.own]
    job = _of_job(servers, given.worker_num * len(where.addresses))
    shared = script.environment(environ, where, len(own) + given.worker_num) | job
    first = where.index * given.worker_num
    workers = [
        Worker(
            f"pserver {rank}",
            argv,
            shared | _of_pserver(rank, one),
            folder and folder / f"serverlog.{at}",
            is_server=True,
        )
        for at, (rank, one) in enumerate(own)
    ] + [
        Worker(
            f"trainer {first + at}",
            argv,
            shared | _of_worker(first + at),
            folder and folder / f"workerlog.{at}",
        )
        for at in range(given.worker_num)
    ]
    if given.print_config:
        total = job["PADDLE_TRAINERS_NUM"]
        keeper.say(
            f"{len(own)} of {len(servers)} pservers and {given.worker_num} of {total} trainers, "
            f"on node {where.index} of {len(where.addresses)} ({where.own})"
        )
        keeper.say(f"pservers {job['PADDLE_PSERVERS_IP_PORT_LIST']}")
        if folder is not None:
            keeper.say(f"logs {folder}/serverlog.<n>, {folder}/workerlog.<n>")
    return workers


def _of_job(endpoints: Sequence[tuple[str, int]], trainers: int) -> dict[str, str]:
    """Return the variables that all processes of `launch_ps` share, under the names of every version.

    Args:
        endpoints: the address and port of each pserver.
        trainers: the number of trainers on all nodes.
    """
    ports = [str(port) for _, port in endpoints]
    addresses = ",".join(address for address, _ in endpoints)
    env = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoint_of(*one) for one in endpoints),
        "PADDLE_PSERVERS": addresses,
        "PADDLE_PSERVER_IPS": addresses,
        "PADDLE_PORT": ",".join(ports),
        "PADDLE_TRAINERS_NUM": str(trainers),
        "PADDLE_TRAINERS": str(trainers),
    }
    return env | ({"PADDLE_PSERVER_PORT": ports[0]} if len(set(ports)) == 1 else {})


def _of_pserver(rank: int, own: tuple[str, int]) -> dict[str, str]:
    """Return the variables that identify a pserver."""
    text = endpoint_of(*own)
    return {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_CURRENT_ENDPOINT": text,
        "CURRENT_ENDPOINT": text,
    }


def _of_worker(rank: int) -> dict[str, str]:
    """Return the variables that identify a trainer of `launch_ps`."""
    return {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(rank)}


def _endpoints(given: argparse.Namespace, where: Nodes) -> list[tuple[str, int]]:
    """Return the address and port of every pserver, node-major."""
    if given.endpoints:
        found = [address_of(text.strip(), "--endpoints:") for text in given.endpoints.split(",")]
        own = sum(address == where.own for address, _ in found)
        if given.server_num not in (None, own):
            raise ConfigError(
                f"--endpoints lists {own} on {where.own}, but --server_num={given.server_num}; omit --server_num"
            )
        if len(set(found)) < len(found):
            raise ConfigError(
                f"--endpoints={given.endpoints} lists an endpoint twice; give each pserver its own address and port"
            )
        for address, port in found:
            if address == where.own and nodes.is_taken(address, port):
                raise ConfigError(f"--endpoints: {endpoint_of(address, port)} is in use; give a free port")
        return found
    count = given.server_num or COUNT
    first = nodes.choose_ports(
        where.own,
        PORT if given.start_port is None else given.start_port,
        count,
        flag="--start_port",
        movable=given.start_port is None and len(where.addresses) == 1,
    )
    return [(address, first + at) for address in where.addresses for at in range(count)]


def _flags() -> argparse.ArgumentParser:
    flags = script.parser(_MODULE, "Starts pservers and trainers of a script on this node.")
    flags.add_argument("--server_num", type=int, metavar="N", help=f"pservers on this node ({COUNT})")
    flags.add_argument(
        "--worker_num", type=int, default=COUNT, metavar="N", help=f"trainers on this node ({COUNT})"
    )
    flags.add_argument("--start_port", type=int, metavar="N", help=f"first pserver port of a node ({PORT})")
    flags.add_argument("--endpoints", default="", metavar="IP:PORT,...", help="all pservers")
    script.add_nodes(flags)
    script.add_common(flags, "logs")
    return flags


if __name__ == "__main__":
    sys.exit(main())
