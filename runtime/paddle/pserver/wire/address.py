# SPDX-License-Identifier: Apache-2.0
"""Addresses of this machine: where a server listens, what it publishes, who holds a port that it wanted."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from paddle.endpoints import address_of, endpoint_of
from paddle.errors import ConfigError

_log = logging.getLogger(__name__)

_SIOCGIFADDR = 0x8915
_LISTEN = "0A"
ALL = "*"


def bind_addresses(bind: str, nics: str, pod_ip: str) -> tuple[str, ...]:
    """Return where to listen: `bind`, else `pod_ip`, else the IPv4 of each device in `nics`, else everywhere.

    Raises:
        ConfigError: a device does not exist or has no IPv4 address.
    """
    if bind or pod_ip:
        return (bind or pod_ip,)
    devices = [name.strip() for name in nics.split(",") if name.strip()]
    if devices:
        return tuple(_address_of(device) for device in devices)
    _log.warning("listening on all addresses: give --nics or --bind to choose one")
    return (ALL,)


def published(address: str, port: int) -> str:
    """Return the "ip:port" under which others reach a server bound to `address`."""
    host = _own_address() if address == ALL else address
    return endpoint_of(host, port)


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Return the address and the port of "host:port", whose host may be a name.

    Raises:
        ConfigError: it cannot be read, or the name is unknown.
    """
    host, port = address_of(endpoint, first_port=0)
    try:
        # ZeroMQ binds to addresses alone.
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]), port
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"endpoint {endpoint!r}: {host!r} cannot be resolved: {error}") from None


def owner_of(endpoint: str) -> str:
    """Return who listens on a port here, as ": held by pid 7 (python train.py)"; empty if unknown."""
    port = int(endpoint.rpartition(":")[2])
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return ""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and inodes & _links(entry / "fd"):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            return f": held by pid {entry.name} ({command[:200]})"
    return ": held by a process of another user"


def _listening_inodes(port: int) -> list[str]:
    inodes = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.append(fields[9])
    return inodes


def _links(folder: Path) -> set[str]:
    try:
        return {os.readlink(entry) for entry in folder.iterdir()}
    except OSError:
        return set()


def _address_of(device: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", device.encode()[:15]))
        except OSError as error:
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise ConfigError(
                f"flag --nics: device {device!r} has no IPv4 address ({error.strerror}); there are {names}"
            ) from None
    return socket.inet_ntoa(answer[20:24])


def _own_address() -> str:
    """Return the address that this machine uses towards others; loopback if it has no route."""
    targets: Sequence[tuple[socket.AddressFamily, str]] = (
        (socket.AF_INET, "192.0.2.1"),  # documentation addresses: connect on UDP sends nothing
        (socket.AF_INET6, "2001:db8::1"),
    )
    for family, target in targets:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((target, 9))
                return str(sock.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
