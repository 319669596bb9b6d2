# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch`: starts one process of a script for each device of this node.

It takes the flags of both versions of the original: --gpus (1.3), and --cluster_node_ips, --node_ip, --started_port,
--selected_gpus, --print_config (1.5). Everything after the script's name is passed to the script.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence

from paddle.distributed import keeper, nodes, script
from paddle.distributed.keeper import Worker
from paddle.distributed.nodes import Nodes
from paddle.endpoints import endpoint_of
from paddle.errors import ConfigError

PORT = 6170
_MODULE = "paddle.distributed.launch"
_GPU = re.compile(r"nvidia\d+")


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the processes and wait for them; return the exit code, or 2 if nothing was started."""
    return script.launch(_MODULE, _flags(), plan, arguments)


def plan(given: argparse.Namespace, environ: Mapping[str, str]) -> list[Worker]:
    """Return the worker processes of this node, one per device.

    Raises:
        ConfigError: flags and environment contradict each other, or a port is in use.
    """
    argv = script.argv(given)
    where = nodes.resolve(given.cluster_node_ips, given.node_ip, environ)
    own = _devices(given.selected_gpus, given.gpus, environ)
    first = nodes.choose_ports(
        where.own,
        PORT if given.started_port is None else given.started_port,
        len(own),
        flag="--started_port",
        movable=given.started_port is None and len(where.addresses) == 1,
    )
    folder = script.log_folder(given.log_dir)
    shared = script.environment(environ, where, len(own))
    workers = [
        Worker(
            name=f"trainer {env['PADDLE_TRAINER_ID']}",
            argv=argv,
            env=shared | env,
            log=folder and folder / f"workerlog.{at}",
        )
        for at, env in enumerate(_environments(where, own, first))
    ]
    if given.print_config:
        _describe(workers, where, own, environ)
    return workers


def visible_gpus(environ: Mapping[str, str], folder: str = "/dev") -> int:
    """Return the number of GPUs that this machine has and CUDA_VISIBLE_DEVICES allows."""
    here = sum(_GPU.fullmatch(name) is not None for name in os.listdir(folder))
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None or not here:
        return here
    count = 0
    for word in shown.split(","):
        if not word.strip() or word.strip() == "-1":  # CUDA ignores the rest
            break
        count += 1
    return count


def _devices(selected: str | None, count: int | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the device number of each process on this node, as FLAGS_selected_gpus takes them.

    Args:
        selected: the value of --selected_gpus, or None.
        count: the value of --gpus; None takes all GPUs that CUDA_VISIBLE_DEVICES allows, or without GPUs CPU_NUM
            processes, 1 by default.

    Raises:
        ConfigError: a value is not a number, or the two contradict each other.
    """
    if selected is not None:
        numbers = tuple(word.strip() for word in selected.split(","))
        if not all(number.isdecimal() for number in numbers) or len(set(numbers)) < len(numbers):
            raise ConfigError(
                f"--selected_gpus: expected distinct device numbers such as 0,1, got {selected!r}"
            )
        if count is not None and count != len(numbers):
            raise ConfigError(
                f"--gpus={count} and --selected_gpus={selected} conflict; give only one of them"
            )
        return numbers
    if count is None:
        count = visible_gpus(environ) or _number_of_cpus(environ)
    if count < 1:
        raise ConfigError(f"--gpus: expected at least 1, got {count}")
    return tuple(str(index) for index in range(count))


def _number_of_cpus(environ: Mapping[str, str]) -> int:
    text = environ.get("CPU_NUM", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"environment variable CPU_NUM: expected a positive number, got {text!r}")
    return int(text)


def _environments(nodes: Nodes, devices: Sequence[str], first_port: int) -> list[dict[str, str]]:
    """Return the variables that identify each process of `launch` on this node; ranks are node-major."""
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


def _describe(
    workers: Sequence[Worker], where: Nodes, own: Sequence[str], environ: Mapping[str, str]
) -> None:
    first = workers[0]
    total = first.env["PADDLE_TRAINERS_NUM"]
    keeper.say(
        f"{len(workers)} of {total} processes, on node {where.index} of {len(where.addresses)} ({where.own})"
    )
    keeper.say(f"endpoints {first.env['PADDLE_TRAINER_ENDPOINTS']}")
    here = visible_gpus(environ)
    if here and any(int(number) >= here for number in own):
        shown = environ.get("CUDA_VISIBLE_DEVICES", "unset")
        keeper.say(
            f"devices {','.join(own)} were requested; this machine has {here} GPUs, counted from 0 "
            f"(CUDA_VISIBLE_DEVICES {shown})"
        )
    if first.log is not None:
        keeper.say(f"logs {first.log.parent}/workerlog.<0 to {len(workers) - 1}>")


def _flags() -> argparse.ArgumentParser:
    flags = script.parser(_MODULE, "Starts one process of a script for each device.")
    flags.add_argument(
        "--gpus", type=int, metavar="N", help="processes on this node (its GPUs; CPU_NUM, or 1)"
    )
    flags.add_argument("--selected_gpus", metavar="N,N", help="devices of this node, one process each")
    flags.add_argument("--started_port", type=int, metavar="N", help=f"first port of a node ({PORT})")
    script.add_nodes(flags)
    script.add_common(flags, "./mylog")
    return flags


if __name__ == "__main__":
    sys.exit(main())
