# SPDX-License-Identifier: Apache-2.0
"""Reserves ports of this machine, and finds the processes that listen on ports, in /proc."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from typing import List, NamedTuple, Optional, Tuple

from paddle_node.linux import proc
from paddle_node.linux.inet import family_of

_LISTEN = "0A"
_MAPPED = bytes(10) + b"\xff\xff"  # precedes an IPv4 address in an IPv6 address


class Owner(NamedTuple):
    """A process that listens on a port.

    Attributes:
        pid: the process ID; 0 if it is not visible, because the process belongs to another user.
        command: its command line, for messages.
    """

    uid: int
    pid: int = 0
    command: str = ""


def reserve(address: str, port: int) -> Optional[socket.socket]:
    """Reserve a port for a process that binds it later; return None if it is reserved already.

    Only callers of this function are kept off. The reservation is a name in the abstract namespace of Unix sockets,
    which belongs to the network namespace, as ports do, and to no user. It ends when the returned socket is closed, or
    with the process.
    """
    reserved = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        reserved.bind("\0paddle-port-%s-%d" % (address, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reserved.close()
            return None  # otherwise such names are forbidden here, which must not stop a job
    return reserved


def owner_of(address: str, port: int) -> Optional[Owner]:
    """Return the process that occupies a port of an address; None if no process listens there.

    Args:
        address: an IP address; empty for a server that listens on all of them.
    """
    found = _listeners(address, port)
    wanted = {"socket:[%s]" % inode: uid for inode, uid in found}
    for name in os.listdir("/proc") if wanted else ():
        held = wanted.keys() & _links("/proc/%s/fd" % name) if name.isdigit() else ()
        for link in held:
            return Owner(wanted[link], int(name), proc.command(int(name)))
    return Owner(found[0][1]) if found else None


def _listeners(address: str, port: int) -> List[Tuple[str, int]]:
    """Return the inode and uid of every socket that listens on a port, at this address or at all addresses."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in proc.lines(table)[1:]:
            columns = line.split()
            where, _, number = columns[1].rpartition(":")
            if columns[3] == _LISTEN and int(number, 16) == port and _covers(where, address):
                found.append((columns[9], int(columns[7])))
    return found


def _covers(where: str, address: str) -> bool:
    """Return whether a socket at an address in /proc's form (32-bit words, native order) occupies this address."""
    raw = b"".join(struct.pack("=I", int(where[at : at + 8], 16)) for at in range(0, len(where), 8))
    if not address or not any(raw):
        return True
    wanted = socket.inet_pton(family_of(address), address)
    return not any(wanted) or raw in (wanted, _MAPPED + wanted)


def _links(folder: str) -> "set[str]":
    """Return the targets of a process's descriptors; empty if they are not visible."""
    found = set()
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed in the meantime, as the listing of an own folder is
                found.add(os.readlink(folder + "/" + name))
    return found
