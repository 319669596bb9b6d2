# SPDX-License-Identifier: Apache-2.0
"""Busy ports of this node and who keeps them busy, from the kernel alone."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any, Dict, List, Optional, Tuple

from paddle_node.agent.link.inet import family_of
from paddle_node.agent.node.network import lines_of
from paddle_node.agent.processes import process_tree

_LISTEN = "0A"
_MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address in the place of an IPv6 one


def busy_ports(addresses: List[str], ports: List[int]) -> List[Any]:
    """Ports that a server could not have: by address, each with who has it; and what else keeps one from them."""
    busy: Dict[str, List[List[Any]]] = {}
    problems: List[List[str]] = []
    for address in addresses:
        busy[address] = []
        for port in ports:
            code = _bind_problem(address, port) if port <= 65535 else errno.EINVAL
            if code == errno.EADDRINUSE:
                busy[address].append([port, _owner_of(address, port)])
            elif code == errno.EADDRNOTAVAIL:
                break  # told once, by the listener
            elif code is not None:
                problems.append(["port", "%s:%d cannot be bound: %s" % (address, port, os.strerror(code))])
    return [busy, problems]


def _bind_problem(address: str, port: int) -> Optional[int]:
    """The errno that binding a server would meet, or None."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.errno or errno.EINVAL
    return None


def _owner_of(address: str, port: int) -> str:
    """Who keeps a port of an address busy: pid and command, or the user, or "unknown"; what can be seen."""
    for inode, uid in _listeners(address, port):
        for pid in process_tree.snapshot():
            if _holds(pid, "socket:[%s]" % inode):
                return "pid %d: %s" % (pid, process_tree.command(pid))
        return "a process of uid %s" % uid
    return "unknown"


def _listeners(address: str, port: int) -> List[Tuple[str, str]]:
    """Inode and uid of every socket that listens on a port, at this address or at all."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in lines_of(table)[1:]:
            columns = line.split()
            where, _, number = columns[1].rpartition(":")
            if columns[3] == _LISTEN and int(number, 16) == port and _covers(where, address):
                found.append((columns[9], columns[7]))
    return found


def _covers(where: str, address: str) -> bool:
    """Whether a socket at an address in /proc's form, 32-bit words in the machine's order, takes this one."""
    raw = b"".join(struct.pack("=I", int(where[at : at + 8], 16)) for at in range(0, len(where), 8))
    wanted = socket.inet_pton(family_of(address), address)
    return not any(raw) or raw in (wanted, _MAPPED + wanted)


def _holds(pid: int, target: str) -> bool:
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(folder + "/" + name) == target:
                return True
        except OSError:
            continue
    return False
