# SPDX-License-Identifier: Apache-2.0
"""This node's interfaces, addresses and busy ports, from the kernel alone, and what it says of variables itself."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from typing import Dict, Iterable, List, Optional, Tuple

from agent.link.inet import family_of, is_link_local
from agent.processes import process_tree

_SIOCGIFADDR = 0x8915
_LISTEN = "0A"
_MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address in the place of an IPv6 one


def interfaces() -> Dict[str, List[str]]:
    """Addresses by interface: the first IPv4 one, then the IPv6 ones that are not link-local."""
    found: Dict[str, List[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            found[name] = []
            try:
                reply = fcntl.ioctl(asker.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has none
            found[name].append(socket.inet_ntoa(reply[20:24]))
    for line in _lines("/proc/net/if_inet6"):
        digits, _, _, _, _, name = line.split()
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
        if not is_link_local(address):
            found.setdefault(name, []).append(address)
    return found


def has_rdma() -> bool:
    """Whether there are devices for remote memory access: InfiniBand's, RoCE's."""
    try:
        return bool(os.listdir("/sys/class/infiniband"))
    except OSError:
        return False


def own_variables(names: Iterable[str]) -> Dict[str, str]:
    """What this node says of variables: its login's environment, else the files that NCCL reads for its own."""
    found = {}  # type: Dict[str, str]
    for path in ("/etc/nccl.conf", os.path.expanduser("~/.nccl.conf")):  # the later one wins
        for line in _lines(path):
            name, equals, value = line.partition("=")
            if equals and not name.startswith("#"):
                found[name.strip()] = value.strip()
    found.update(os.environ)
    return {name: found[name] for name in names if found.get(name)}


def bind_problem(address: str, port: int) -> Optional[int]:
    """The errno that binding a server would meet, or None."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.errno or errno.EINVAL
    return None


def owner_of(address: str, port: int) -> str:
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
        for line in _lines(table)[1:]:
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


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
