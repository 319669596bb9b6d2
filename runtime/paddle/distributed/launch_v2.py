# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch_v2`: starts this machine's pserver and trainer of a v2 job (PADDLE_INIT_*).

The cluster's own tool starts it on every machine. The pserver serves the trainers of all machines: after this
machine's trainer is done, it runs until no other trainer needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle.distributed import keeper, script
from paddle.distributed.keeper import Worker
from paddle.distributed.nodes import Nodes
from paddle.endpoints import host_of
from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle.flags import read_flags
from paddle_node.contract.flags import INIT_FLAGS, PSERVER_FLAGS
from paddle_node.linux.inet import family_of, is_loopback

_MODULE = "paddle.distributed.launch_v2"
_SERVERS = "PADDLE_INIT_PSERVERS"


def main(arguments: Sequence[str] | None = None) -> int:
    """Start both processes and wait for them; return the exit code, or 2 if nothing was started."""
    return script.launch(_MODULE, _flags(), plan, arguments)


def plan(given: argparse.Namespace, environ: Mapping[str, str]) -> list[Worker]:
    """Return the pserver and the trainer of this machine.

    Raises:
        ConfigError: PADDLE_INIT_* variables contradict each other or do not match this machine.
    """
    argv = script.argv(given)
    init = JobEnvironment.read(environ).init_flags
    for_pserver = {name: text for name, text in init.items() if name in PSERVER_FLAGS}
    read_flags(PSERVER_FLAGS, for_pserver)
    flags = read_flags(INIT_FLAGS, {name: text for name, text in init.items() if name not in for_pserver})
    where = _nodes(str(flags["pservers"]), int(flags["trainer_id"]))
    rank, size = str(flags["trainer_id"]), for_pserver.get("num_gradient_servers", "1")
    folder = script.log_folder(given.log_dir)
    pserver = (sys.executable, "-P", "-m", "paddle", "pserver")
    shared = script.environment(environ, where, 2) | _environment(rank, size, folder)
    if len(where.addresses) > 1 and is_loopback(where.own):
        del shared["POD_IP"]  # this machine's name for itself; other machines use another address
    own_flags = {f"PADDLE_INIT_{name.upper()}" for name in for_pserver.keys() - INIT_FLAGS.keys()}
    if given.print_config:
        keeper.say(
            f"pserver {where.index} of {len(where.addresses)} and trainer {rank} of {size}, on {where.own}"
            + (f"; logs {folder}/" if folder else "")
        )
    return [
        Worker(
            f"pserver {where.index}",
            (*pserver, *(f"--{name}={text}" for name, text in for_pserver.items())),
            shared | {"TRAINING_ROLE": "PSERVER"},
            folder and folder / "server.log",
            is_server=True,
            drains=True,
        ),
        Worker(
            f"trainer {rank}",
            argv,
            {name: text for name, text in shared.items() if name not in own_flags}
            | {"TRAINING_ROLE": "TRAINER"},
            folder and folder / "train.log",
        ),
    ]


def _environment(rank: str, size: str, log_dir: Path | None) -> dict[str, str]:
    """Return the variables of `launch_v2`'s pserver and trainer other than PADDLE_INIT_*.

    Args:
        rank: the rank of the trainer.
        size: the number of trainers on all nodes.
        log_dir: the folder for glog's files; None logs to stderr.
    """
    env = {"PADDLE_CLUSTER_TRAIN": "True", "PADDLE_TRAINER_ID": rank, "PADDLE_TRAINERS_NUM": size}
    return env | ({} if log_dir is None else {"GLOG_logtostderr": "0", "GLOG_log_dir": str(log_dir)})


def _nodes(pservers: str, rank: int) -> Nodes:
    """Return the machines with pservers and the index of this one; `rank` decides if several match."""
    what = f"environment variable {_SERVERS}:"
    names = [
        host_of(text.strip(), what, ports="PADDLE_INIT_PORT, the same for all")
        for text in pservers.split(",")
        if text.strip()
    ]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"{what} expected distinct hosts such as 10.0.0.1,10.0.0.2, got {pservers!r}")
    if len(names) > 1 and (local := [name for name in names if name == "localhost" or is_loopback(name)]):
        raise ConfigError(
            f"{what} the other machines cannot reach {local[0]}, got {pservers!r}: give the address of that machine"
        )
    found = [_address(name) for name in names]
    own = [at for at, address in enumerate(found) if _is_own(address)]
    if not own:
        raise ConfigError(
            f"{what} none of {pservers} is an address of this machine ({socket.gethostname()}), "
            "which should run one of these pservers: start launch_v2 only on those machines, "
            "once on each"
        )
    return Nodes(tuple(found), rank if rank in own else own[0])


def _address(name: str) -> str:
    """Return the address that a host name resolves to on this machine, or the name itself if it does not resolve."""
    with contextlib.suppress(OSError, UnicodeError):
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    return name


def _is_own(address: str) -> bool:
    try:
        with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _flags() -> argparse.ArgumentParser:
    flags = script.parser(
        _MODULE,
        "Starts a pserver and a trainer of a v2 job on this machine, configured by PADDLE_INIT_* variables.",
    )
    script.add_common(flags, "logs")
    return flags


if __name__ == "__main__":
    sys.exit(main())
