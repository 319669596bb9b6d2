# SPDX-License-Identifier: Apache-2.0
"""Parses endpoints that users write: "ip:port", "[v6]:port", or a host alone.

Invalid addresses are reported by these functions, before any connection attempt. Names are not resolved.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from paddle.errors import ConfigError
from paddle_node.contract.flags import MAX_PORT

_PORT_DIGITS = 5
_SHOWN = 100  # characters of a user's text in messages


def address_of(endpoint: str, what: str = "endpoint", *, first_port: int = 1) -> tuple[str, int]:
    """Return the host and port of an endpoint, "ip:port" or "[v6]:port".

    Args:
        endpoint: the user's text.
        what: the role of the endpoint, for errors.
        first_port: smallest allowed port; 0 if a server may use any free port.

    Raises:
        ConfigError: the text is not an endpoint.
    """
    shown = f"{what} {endpoint[:_SHOWN]!r}"
    host, colon, port = endpoint.rpartition(":")
    _check_scheme(endpoint, shown)
    if _is_v6(endpoint) or not colon or not host:
        raise ConfigError(
            f"{shown}: expected 'ip:port', such as 192.168.1.1:6170 or [fe80::1]:6170; the "
            f"{'host' if colon and (not host) else 'port'} is missing"
        )
    if not port.isascii() or not port.isdigit() or len(port) > _PORT_DIGITS:
        raise ConfigError(f"{shown}: expected 'ip:port', but {port[:_SHOWN]!r} is not a valid port")
    if not first_port <= int(port) <= MAX_PORT:
        raise ConfigError(f"{shown}: expected a port from {first_port} to {MAX_PORT}")
    return _host(host, shown), int(port)


def host_of(text: str, what: str, *, ports: str) -> str:
    """Parse a host that has no port; return it without brackets.

    Args:
        text: the user's text.
        what: the role of the host, for errors.
        ports: where to give ports instead, for errors.

    Raises:
        ConfigError: the text is not a host, or contains a port.
    """
    shown = f"{what} {text[:_SHOWN]!r}"
    _check_scheme(text, shown)
    if _is_v6(text):
        return text
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        return _host(text, shown)
    raise ConfigError(
        f"{shown}: expected an address without a port; write {host or 'the address'} here, "
        f"and give the port {port} as {ports}"
    )


def endpoint_of(host: str, port: int) -> str:
    """Return "ip:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_endpoints(endpoints: Sequence[str], what: str, *, first_port: int = 1) -> None:
    """Check that each is an endpoint, and that all are distinct; see `address_of` for arguments.

    Raises:
        ConfigError: an entry is not an endpoint, or two are the same.
    """
    found = [address_of(endpoint, what, first_port=first_port) for endpoint in endpoints]
    if len(set(found)) < len(found):
        twice = next(endpoint for endpoint, one in zip(endpoints, found, strict=True) if found.count(one) > 1)
        raise ConfigError(f"{what} {twice!r} is listed twice: {', '.join(endpoints)}")


def listed(endpoints: Iterable[str], most: int = 4) -> str:
    """Return endpoints as text; a long list is cut to its first entries and the number of omitted ones."""
    every = list(endpoints)
    more = len(every) - most
    return ", ".join(every) if more <= 0 else f"{', '.join(every[:most])} and {more} more"


def _check_scheme(text: str, shown: str) -> None:
    scheme, found, _ = text.partition("://")
    if found:
        raise ConfigError(f"{shown}: expected an address without {scheme[:_SHOWN]}://")


def _host(text: str, shown: str) -> str:
    """Return a name or an address without brackets."""
    if text.startswith("[") or text.endswith("]") or ":" in text:
        bare = text.removeprefix("[").removesuffix("]")
        if text != f"[{bare}]" or not _is_v6(bare):
            raise ConfigError(f"{shown}: expected an IPv6 address in brackets, such as [fe80::1]")
        return bare
    if not text or any(letter.isspace() or letter in "/@," for letter in text):
        raise ConfigError(f"{shown}: {text[:_SHOWN]!r} is not a valid host name")
    try:
        text.encode("idna")  # the first step of resolving a name, which does not raise OSError
    except UnicodeError as error:
        raise ConfigError(f"{shown}: {text[:_SHOWN]!r} is not a valid host name: {error}") from None
    if not set(text) - set("0123456789."):
        try:
            ipaddress.IPv4Address(text)
        except ValueError as error:
            raise ConfigError(f"{shown}: not an IPv4 address ({error})") from None
    return text


def _is_v6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
