# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch`: one process of a script for each device of this node.

It takes the flags of both families that the original had: --gpus (1.3), and --cluster_node_ips, --node_ip,
--started_port, --selected_gpus, --print_config (1.5). Everything after the script is the script's own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from paddle.distributed import devices, environments, front, nodes, ports, script
from paddle.distributed.nodes import Nodes
from paddle.distributed.worker import Worker

PORT = 6170
_MODULE = "paddle.distributed.launch"


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the processes and wait for them; return the exit code, 2 if nothing was started."""
    return script.launch(_MODULE, _flags(), plan, arguments)


def plan(given: argparse.Namespace, environ: Mapping[str, str]) -> list[Worker]:
    """The processes of this node.

    Raises:
        ConfigError: flags and environment do not fit together, or a port is taken.
    """
    argv = script.argv(given)
    where = nodes.resolve(given.cluster_node_ips, given.node_ip, environ)
    own = devices.choose(given.selected_gpus, given.gpus, environ)
    first = ports.choose(
        where.own,
        PORT if given.started_port is None else given.started_port,
        len(own),
        flag="--started_port",
        movable=given.started_port is None and len(where.addresses) == 1,
    )
    folder = script.log_folder(given.log_dir)
    shared = environments.shared(environ, where, len(own))
    workers = [
        Worker(
            name=f"trainer {env['PADDLE_TRAINER_ID']}",
            argv=argv,
            env=shared | env,
            log=folder and folder / f"workerlog.{at}",
        )
        for at, env in enumerate(environments.of_trainers(where, own, first))
    ]
    if given.print_config:
        _describe(workers, where, own, environ)
    return workers


def _describe(
    workers: Sequence[Worker], where: Nodes, own: Sequence[str], environ: Mapping[str, str]
) -> None:
    first = workers[0]
    total = first.env["PADDLE_TRAINERS_NUM"]
    front.say(
        f"{len(workers)} of {total} processes, on node {where.index} of {len(where.addresses)} ({where.own})"
    )
    front.say(f"endpoints {first.env['PADDLE_TRAINER_ENDPOINTS']}")
    here = devices.visible_gpus(environ)
    if here and any(int(number) >= here for number in own):
        shown = environ.get("CUDA_VISIBLE_DEVICES", "unset")
        front.say(
            f"devices {','.join(own)} are asked for; this machine shows {here} GPUs, counted from 0 "
            f"(CUDA_VISIBLE_DEVICES {shown})"
        )
    if first.log is not None:
        front.say(f"logs {first.log.parent}/workerlog.<0 to {len(workers) - 1}>")


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
