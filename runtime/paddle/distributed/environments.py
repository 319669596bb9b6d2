# SPDX-License-Identifier: Apache-2.0
"""The environment of processes that `launch`, `launch_ps` and `launch_v2` start: ours, and who each of them is.

The user's own environment is handed on whole, unlike the original's, which kept a few names of it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle.distributed.nodes import Nodes
from paddle.endpoints import endpoint_of

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NOT_HANDED_ON = ("PADDLE_REPORT_FD", "PADDLE_STACKS_SIGNAL")  # between an agent and this process alone
_KEY_BYTES = 32


def shared(environ: Mapping[str, str], nodes: Nodes, processes: int) -> dict[str, str]:
    """What all processes on this node have.

    Args:
        processes: how many of them there are; they share the cores.
    """
    env = {name: text for name, text in environ.items() if name not in _NOT_HANDED_ON}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name in THREADS:
        env.setdefault(name, str(max(1, cores // processes)))
    if len(nodes.addresses) == 1:  # several launches do not know each other's
        env.setdefault("PADDLE_JOB_KEY", secrets.token_hex(_KEY_BYTES))
    return env | {"POD_IP": nodes.own, "PADDLE_CURRENT_IP": nodes.own}


def of_trainers(nodes: Nodes, devices: Sequence[str], first_port: int) -> list[dict[str, str]]:
    """What tells each process of `launch` on this node who it is; ranks are node-major."""
    count = len(devices)
    endpoints = [endpoint_of(ip, first_port + at) for ip in nodes.addresses for at in range(count)]
    first = nodes.index * count
    return [
        {
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINING_ROLE": "TRAINER",
            "FLAGS_selected_gpus": device,
            "PADDLE_TRAINER_ID": str(first + at),
            "PADDLE_CURRENT_ENDPOINT": endpoints[first + at],
            "PADDLE_TRAINERS_NUM": str(len(endpoints)),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_NUM_TRAINERS": str(len(nodes.addresses)),
        }
        for at, device in enumerate(devices)
    ]


def of_pserver_job(endpoints: Sequence[tuple[str, int]], trainers: int) -> dict[str, str]:
    """What all processes of `launch_ps` know, under the names of every version.

    Args:
        endpoints: address and port of each pserver.
        trainers: how many there are on all nodes.
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


def of_pserver(rank: int, own: tuple[str, int]) -> dict[str, str]:
    """What tells a pserver who it is."""
    text = endpoint_of(*own)
    return {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_CURRENT_ENDPOINT": text,
        "CURRENT_ENDPOINT": text,
    }


def of_worker(rank: int) -> dict[str, str]:
    """What tells a trainer of `launch_ps` who it is."""
    return {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(rank)}


def of_v2(rank: str, size: str, log_dir: Path | None) -> dict[str, str]:
    """What pserver and trainer of `launch_v2` know beside PADDLE_INIT_*.

    Args:
        rank: of the trainer.
        size: how many trainers there are on all nodes.
        log_dir: where glog's files go; None: to stderr.
    """
    env = {"PADDLE_CLUSTER_TRAIN": "True", "PADDLE_TRAINER_ID": rank, "PADDLE_TRAINERS_NUM": size}
    return env | ({} if log_dir is None else {"GLOG_logtostderr": "0", "GLOG_log_dir": str(log_dir)})
