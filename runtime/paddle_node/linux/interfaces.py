# SPDX-License-Identifier: Apache-2.0
"""Lists this machine's network interfaces and their addresses, from the kernel alone.

Addresses with their prefix lengths are read from the routing socket, without a program or a name lookup. Only addresses
that peers can use are listed: on interfaces that are up with a carrier, and neither link-local nor tentative.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from paddle_node.linux import proc
from paddle_node.linux.inet import is_link_local

REPLY_S = 2.0
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_TENTATIVE, _FAILED = 0x40, 0x08
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_BODY = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_SIOCGIFFLAGS, _SIOCGIFADDR = 0x8913, 0x8915
_UP_AND_RUNNING = 0x1 | 0x40


class Placed(NamedTuple):
    """An IP address of this machine, with its interface and network.

    Attributes:
        prefix: the number of its network bits.
    """

    nic: str
    address: str
    prefix: int


def placed() -> List[Placed]:
    """Return every address that a peer can use, including loopback addresses, in the kernel's order.

    Raises:
        OSError: the kernel did not answer.
    """
    found = []
    running = {}
    for index, address, prefix in _dump():
        try:
            nic = socket.if_indextoname(index)
        except OSError:
            continue  # it has disappeared since
        if nic not in running:
            running[nic] = _is_running(nic)
        if running[nic] and not is_link_local(address):
            found.append(Placed(nic, address, prefix))
    return found


def interfaces() -> Dict[str, List[str]]:
    """Return the addresses of each interface: the first IPv4 one, then the IPv6 ones that are not link-local."""
    found: Dict[str, List[str]] = {}
    for _, name in socket.if_nameindex():
        found[name] = []
        with contextlib.suppress(OSError):  # it has none
            found[name].append(ipv4_of(name))
    for line in proc.lines("/proc/net/if_inet6"):
        digits, _, _, _, _, name = line.split()
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
        if not is_link_local(address):
            found.setdefault(name, []).append(address)
    return found


def ipv4_of(name: str) -> str:
    """Return the first IPv4 address of an interface.

    Raises:
        OSError: the interface has none, or does not exist.
    """
    return socket.inet_ntoa(_ioctl(name, _SIOCGIFADDR)[20:24])


def _ioctl(name: str, request: int) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        return fcntl.ioctl(asker.fileno(), request, struct.pack("256s", name.encode()[:15]))


def _dump() -> Iterator[Tuple[int, str, int]]:
    """Yield (interface index, address, prefix length) of every address."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(REPLY_S)
        kernel.bind((0, 0))
        size = _HEADER.size + _BODY.size
        kernel.send(_HEADER.pack(size, _RTM_GETADDR, _REQUEST_DUMP, 1, 0) + _BODY.pack(0, 0, 0, 0, 0))
        while True:
            data = kernel.recv(1 << 17)
            while len(data) >= _HEADER.size:
                length, kind = _HEADER.unpack_from(data)[:2]
                if kind in (_NLMSG_DONE, _NLMSG_ERROR) or length < _HEADER.size:
                    return
                if kind == _RTM_NEWADDR:
                    one = _read(data[_HEADER.size : length])
                    if one is not None:
                        yield one
                data = data[_aligned(length) :]


def _read(message: bytes) -> Optional[Tuple[int, str, int]]:
    family, prefix, flags, _, index = _BODY.unpack_from(message)
    if family not in (socket.AF_INET, socket.AF_INET6) or flags & (_TENTATIVE | _FAILED):
        return None
    values = {}
    rest = message[_BODY.size :]
    while len(rest) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(rest)
        if length < _ATTRIBUTE.size:
            break
        values[kind] = rest[_ATTRIBUTE.size : length]
        rest = rest[_aligned(length) :]
    raw = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)  # for a tunnel, ADDRESS is the other end
    return None if raw is None else (index, socket.inet_ntop(family, raw), prefix)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _is_running(name: str) -> bool:
    try:
        flags = int(struct.unpack_from("=H", _ioctl(name, _SIOCGIFFLAGS), 16)[0])
    except OSError:
        return False
    return flags & _UP_AND_RUNNING == _UP_AND_RUNNING
