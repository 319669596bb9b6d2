# SPDX-License-Identifier: Apache-2.0
"""Examines this node's network for a probe: addresses for the job's traffic, busy ports, variables, RDMA.

The launcher, which sees all nodes, chooses one of the addresses.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Dict, Iterable, List, Optional, Sequence

from paddle_node.contract.classes import NamedTuple
from paddle_node.linux import proc
from paddle_node.linux.inet import family_of, is_loopback, usual
from paddle_node.linux.interfaces import Placed
from paddle_node.linux.ports import Owner, owner_of

LOOPBACK = "127.0.0.1"
MOST = 8
COMMAND = 80  # characters of a command line in a message
# Networks of containers and virtual machines inside one machine; the address that a login arrived at always counts.
_INSIDE = (
    "docker",
    "br-",
    "virbr",
    "veth",
    "cni",
    "flannel",
    "cali",
    "lxc",
    "lxd",
    "podman",
    "kube",
    "dummy",
)


class Candidates(NamedTuple):
    """The candidate addresses of this node for the job's traffic, the most likely first.

    Attributes:
        problem: why the requested address is not available, or "".
    """

    addresses: List[str]
    problem: str


def candidates(
    given: Optional[str], nic: Optional[str], login: Optional[str], have: List[Placed]
) -> Candidates:
    """Choose candidate addresses for the job's traffic among those of the node.

    Args:
        given: an address that overrides the node's choice, or None.
        nic: comma-separated interface names, the first of which with an address is used; or None.
        login: the address that the login arrived at, or None.

    Raises:
        ValueError: `given` is not an IP address; a name would need a lookup, which can take long.
    """
    if given:
        return Candidates([usual(given)], "")
    problem = ""
    if nic:
        for name in nic.split(","):
            found = [one.address for one in have if one.nic == name]
            if found:
                return Candidates(sorted(found, key=_is_v6)[:MOST], "")
        problem = _no_such(nic, have)
    found = [one.address for one in have if not one.nic.startswith(_INSIDE) and not is_loopback(one.address)]
    ordered = sorted(found, key=_is_v6)
    if login:
        ordered = [login, *(address for address in ordered if address != login)]
    return Candidates(ordered[:MOST] or [LOOPBACK], problem)


def busy_ports(addresses: List[str], ports: Sequence[int]) -> List[Any]:
    """Return the ports in use by address, each with its owner or the error that prevents binding."""
    busy: Dict[str, List[List[Any]]] = {}
    problems: List[List[str]] = []
    for address in addresses:
        busy[address] = []
        for port in ports:
            code = _bind_problem(address, port) if port <= 65535 else errno.EINVAL
            if code == errno.EADDRINUSE:
                busy[address].append([port, _named(owner_of(address, port))])
            elif code == errno.EADDRNOTAVAIL:
                break  # reported once, by the listener
            elif code is not None:
                problems.append(["port", "cannot bind %s:%d: %s" % (address, port, os.strerror(code))])
    return [busy, problems]


def owner_if_busy(address: str, port: int) -> str:
    """Return the owner of a port that is in use, or ""; other problems are left to the process that binds it."""
    return _named(owner_of(address, port)) if _bind_problem(address, port) == errno.EADDRINUSE else ""


def has_rdma() -> bool:
    """Return whether the node has devices for remote memory access (InfiniBand, RoCE)."""
    try:
        return bool(os.listdir("/sys/class/infiniband"))
    except OSError:
        return False


def own_variables(names: Iterable[str]) -> Dict[str, str]:
    """Return this node's values of variables: from the login's environment, or for NCCL's also from NCCL's files."""
    found: Dict[str, str] = {}
    for path in ("/etc/nccl.conf", os.path.expanduser("~/.nccl.conf")):  # a later file wins
        for line in proc.lines(path):
            name, equals, value = line.partition("=")
            if equals and not name.startswith("#"):
                found[name.strip()] = value.strip()
    found.update(os.environ)
    return {name: found[name] for name in names if found.get(name)}


def _no_such(nic: str, have: List[Placed]) -> str:
    by_name = {}  # type: dict[str, List[str]]
    for one in have:
        by_name.setdefault(one.nic, []).append(one.address)
    has = ", ".join("%s (%s)" % (name, " ".join(addresses)) for name, addresses in by_name.items())
    what = "%s does not exist, is down, or has no address; this node has %s." % (nic, has)
    return (
        what + " Correct PADDLE_NIC in conf.py, or remove it: a network that all nodes share is then chosen"
    )


def _is_v6(address: str) -> bool:
    return ":" in address


def _bind_problem(address: str, port: int) -> Optional[int]:
    """Return the errno with which a server would fail to bind, or None."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.errno or errno.EINVAL
    return None


def _named(owner: Optional[Owner]) -> str:
    if owner is None:
        return "unknown"
    command = owner.command if len(owner.command) <= COMMAND else owner.command[:COMMAND] + " ..."
    return "pid %d: %s" % (owner.pid, command) if owner.pid else "a process of uid %d" % owner.uid
