# SPDX-License-Identifier: Apache-2.0
"""The addresses that a server binds and publishes, and the process that occupies a port."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence

from paddle.endpoints import address_of, endpoint_of
from paddle.errors import ConfigError, PortBusy
from paddle_node.linux.interfaces import ipv4_of
from paddle_node.linux.ports import owner_of, reserve

_log = logging.getLogger(__name__)

ALL = "*"


def bind_addresses(bind: str, nics: str, pod_ip: str) -> tuple[str, ...]:
    """Return the addresses to listen on: `bind`, or `pod_ip`, or the IPv4 of each device in `nics`, or all.

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
    """Return the "ip:port" at which other machines reach a server bound to `address`."""
    host = _own_address() if address == ALL else address
    return endpoint_of(host, port)


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Return the address and port of "host:port", where the host can be a name.

    Raises:
        ConfigError: the endpoint is malformed, or the name is unknown.
    """
    host, port = address_of(endpoint, first_port=0)
    try:
        # ZeroMQ binds to addresses alone.
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]), port
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"endpoint {endpoint!r}: {host!r} cannot be resolved: {error}") from None


@contextlib.contextmanager
def reserved(address: str, port: int) -> Iterator[None]:
    """Reserve a port while it is being bound; port 0 needs no reservation.

    Raises:
        PortBusy: an agent has reserved the port for a server of another job, which has not bound it yet.
    """
    reservation = reserve(address, port) if port else None
    if port and reservation is None:
        endpoint = endpoint_of(address, port)
        raise PortBusy(f"cannot listen on {endpoint}: another job has reserved it", endpoint)
    with reservation or contextlib.nullcontext():
        yield


def owner_text(endpoint: str) -> str:
    """Describe the process that listens on "ip:port" of this machine; empty if unknown.

    Example: ": held by pid 7 (python train.py)".
    """
    address, _, port = endpoint.rpartition(":")
    owner = owner_of("" if address == ALL else address.strip("[]"), int(port))
    if owner is None:
        return ""
    return f": held by pid {owner.pid} ({owner.command})" if owner.pid else ": held by another user's process"


def _address_of(device: str) -> str:
    try:
        return ipv4_of(device)
    except OSError as error:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise ConfigError(
            f"flag --nics: device {device!r} has no IPv4 address ({error.strerror}); available devices: {names}"
        ) from None


def _own_address() -> str:
    """Return the address of this machine in its network; loopback if it has no route."""
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
