# SPDX-License-Identifier: Apache-2.0
"""Determines a job's machines and this one's index, from flags or the environment, and chooses ports."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from paddle.endpoints import host_of
from paddle.errors import ConfigError
from paddle_node.contract.classes import dataclass
from paddle_node.linux.inet import family_of

ALONE = "127.0.0.1"
_DIGITS = 9  # of a number of nodes
_HIGHEST = 65535
_TRIES = 256


@dataclass(frozen=True)
class Nodes:
    """The machines of a job, and the index of this one.

    Attributes:
        addresses: the distinct addresses of all nodes, in order.
        index: the index of this node.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def own(self) -> str:
        """Return the address of this node."""
        return self.addresses[self.index]


def resolve(cluster_node_ips: str | None, node_ip: str | None, environ: Mapping[str, str]) -> Nodes:
    """Determine the nodes of the job and this one from the flags and the environment.

    --cluster_node_ips or PADDLE_TRAINERS lists the nodes. --node_ip, PADDLE_TRAINER_ID (an index) or POD_IP identifies
    this one. PADDLE_NUM_TRAINERS, if set, must equal their number.

    Raises:
        ConfigError: the values contradict each other.
    """
    given = environ.get("PADDLE_TRAINERS", "")
    where, text = "--cluster_node_ips", cluster_node_ips
    if text is None and given.strip() and not given.strip().isdecimal():  # elsewhere it is a count
        where, text = "PADDLE_TRAINERS", given
    own = _bare(node_ip or environ.get("POD_IP", ""))
    addresses = tuple(map(_bare, text.split(","))) if text is not None else (own or ALONE,)
    for address in filter(None, addresses):
        said = where if text is not None else "--node_ip (POD_IP)"
        host_of(address, f"{said}:", ports="--started_port (launch_ps: --start_port)")
    if not all(addresses) or len(set(addresses)) < len(addresses):
        raise ConfigError(f"{where}: expected distinct addresses such as 10.0.0.1,10.0.0.2, got {text!r}")
    _check_count(addresses, environ)
    return Nodes(addresses, _index(addresses, where, node_ip, environ))


def choose_ports(address: str, first: int, count: int, *, flag: str, movable: bool) -> int:
    """Return the first of `count` adjacent ports of a node that are free now.

    Args:
        first: the preferred first port.
        flag: the flag that sets the port, for messages.
        movable: whether other free ports may be taken, since no other process knows these yet.

    Raises:
        ConfigError: a port is in use, or the range ends beyond 65535.
    """
    if not 1 <= first <= _HIGHEST - count + 1:
        raise ConfigError(f"{flag}: expected {count} ports between 1 and {_HIGHEST}, got {first}")
    last = min(first + _TRIES, _HIGHEST - count + 1) if movable else first
    start = first
    while start <= last:
        taken = next((port for port in range(start, start + count) if is_taken(address, port)), None)
        if taken is None:
            return start
        start = taken + 1
    raise ConfigError(
        f"port {taken} of {address} is in use"
        + (f", and so is one of every {count} ports up to {last + count - 1}" if movable else "")
        + f"; choose different ports with {flag}"
    )


def is_taken(address: str, port: int) -> bool:
    """Return whether a process of this machine listens at an address; False for other machines' addresses."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno in (errno.EADDRINUSE, errno.EACCES)
    return False


def _check_count(addresses: tuple[str, ...], environ: Mapping[str, str]) -> None:
    text = environ.get("PADDLE_NUM_TRAINERS", "").strip()
    if not text:
        return
    if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise ConfigError(
            f"environment variable PADDLE_NUM_TRAINERS: expected the number of nodes, got {text[:40]!r}"
        )
    if int(text) != len(addresses):
        raise ConfigError(
            f"PADDLE_NUM_TRAINERS={text}, but {len(addresses)} addresses of nodes are known: "
            f"{', '.join(addresses)}. Give --cluster_node_ips=IP,IP,... (or PADDLE_TRAINERS), and "
            "on each node its own --node_ip (or POD_IP). For several processes on this machine "
            "alone, give --gpus=N instead"
        )


def _index(addresses: tuple[str, ...], where: str, node_ip: str | None, environ: Mapping[str, str]) -> int:
    number, pod = environ.get("PADDLE_TRAINER_ID", "").strip(), environ.get("POD_IP", "").strip()
    if node_ip is None and number:
        if not number.isdecimal() or len(number) > _DIGITS or int(number) >= len(addresses):
            raise ConfigError(
                f"environment variable PADDLE_TRAINER_ID: expected the number of this node, 0 to {len(addresses) - 1}, "
                f"got {number[:40]!r}; {where} has {', '.join(addresses)}"
            )
        return int(number)
    own = _bare(node_ip or pod)
    if not own and len(addresses) == 1:
        return 0
    if own not in addresses:
        raise ConfigError(
            f"cannot determine which of {', '.join(addresses)} is this node; "
            + (f"{own} is not one of them; " if own else "")
            + "give --node_ip, or set POD_IP"
        )
    return addresses.index(own)


def _bare(text: str) -> str:
    """Return an address without the brackets of IPv6."""
    return text.strip().removeprefix("[").removesuffix("]")
