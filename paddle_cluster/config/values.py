# SPDX-License-Identifier: Apache-2.0
"""What a configured value must be: each function takes any object and returns a typed value or raises.

Texts (from the environment or the command line) and Python values (from conf.py) go through the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from paddle_cluster.config.hosts import Host, HostError, parse_host
from paddle_cluster.config.options import SshClient, Wire

T = TypeVar("T")

_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_NIC = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.:@-]{0,14}")
_INTEGER = re.compile(r"-?[0-9]{1,12}")
_MAX_SHOWN = 80


class ValueMismatchError(ValueError):
    """A value is wrong; the message says what was expected.

    Attributes:
        index: which element of a list or dictionary is at fault, or None.
        element: how messages name that element; empty: by its index.
    """

    index: int | None = None
    element: str = ""


def mismatch(expected: str, got: object) -> ValueMismatchError:
    """The error of a value that is not what it should be."""
    return ValueMismatchError(f"expected {expected}, got {show(got)}")


def show(value: object) -> str:
    """A value with its kind, short enough for one line."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - an integer of 5000 digits, the user's own __repr__
        text = f"(cannot be shown: {type(error).__name__})"
    if len(text) > _MAX_SHOWN:
        text = text[: _MAX_SHOWN - 3] + "..."
    kinds = {str: "the string ", bool: "", int: "", float: "", type(None): ""}
    return kinds.get(type(value), f"the {type(value).__name__} ") + text


def integer(low: int, high: int) -> Callable[[object], int]:
    """An int within [low, high]; True and False are none."""
    expected = f"an integer from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise mismatch(expected, value)
        return value

    return read


def seconds(low: float, high: float) -> Callable[[object], float]:
    """A finite number of seconds within [low, high]."""
    expected = f"a number of seconds from {low:g} to {high:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise mismatch(expected, value)
        if not low <= value <= high:  # nan is not either
            raise mismatch(expected, value)
        return float(value)

    return read


def boolean(value: object) -> bool:
    """True, False, 1, 0 or one of gflags' words for them, in any case."""
    word = str(value).lower() if isinstance(value, str | bool | int) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise mismatch("True or False (also yes, no, 1, 0)", value)


def umask(value: object) -> int:
    """A umask that takes nothing from the owner, and lets nobody else write."""
    if isinstance(value, bool) or not isinstance(value, int) or value & ~0o077 or value & 0o022 != 0o022:
        raise mismatch("0o077 (yours alone), 0o027 (your group may read) or 0o022 (everybody may)", value)
    return value


def wire(value: object) -> Wire:
    """`curve` or `plain`."""
    if value not in tuple(Wire):
        raise mismatch("'curve' or 'plain'", value)
    return Wire(str(value))


def ssh_client(value: object) -> SshClient:
    """`fabric` or `openssh`."""
    if value not in tuple(SshClient):
        raise mismatch("'fabric' or 'openssh'", value)
    return SshClient(str(value))


def text(value: object) -> str:
    """A string on one line, possibly empty."""
    if not isinstance(value, str) or not value.isprintable():
        raise mismatch("a string without control characters", value)
    return value


def nics(value: object) -> str:
    """Names of network interfaces with commas between, or empty."""
    if not isinstance(value, str) or (value and not all(_NIC.fullmatch(part) for part in value.split(","))):
        raise mismatch("the name of a network interface such as 'eth0', or '' to choose by route", value)
    return value


def root_dir(value: object) -> str:
    """A directory on the nodes: absolute, or below a home directory."""
    expected = "a directory on the nodes, absolute or beginning with ~, such as '/home/paddle'"
    if not isinstance(value, str) or not value.startswith(("/", "~")) or not value.isprintable():
        raise mismatch(expected, value)
    return value.rstrip("/") or "/"


def python(value: object) -> str:
    """A Python on the nodes: a command name, an absolute path, or empty for the default."""
    expected = "a command name such as 'python3.11' or an absolute path on the nodes"
    if not isinstance(value, str) or not value.isprintable() or value.startswith("-"):
        raise mismatch(expected, value)
    if value and not value.startswith("/") and ("/" in value or value.startswith("~") or " " in value):
        raise mismatch(expected, value)
    return value


def local_path(value: object) -> Path:
    """A file of the submitting machine; ~ is its user's home."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise mismatch("the path of a file on this machine", value)
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise mismatch("the path of a file on this machine (its ~ names no user)", value) from None


def local_file(value: object) -> Path:
    """A file of the submitting machine that exists."""
    path = local_path(value)
    if not path.is_file():
        raise mismatch("a file that exists on this machine", value)
    return path


def list_of(read: Callable[[object], T], what: str) -> Callable[[object], tuple[T, ...]]:
    """A list or tuple, each element read by `read`."""

    def read_list(value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise mismatch(f"a list of {what}", value)
        read_elements = []
        for index, element in enumerate(value):
            try:
                read_elements.append(read(element))
            except ValueMismatchError as error:
                error.index = index
                raise
        return tuple(read_elements)

    return read_list


def host(value: object) -> Host:
    """One host, by the grammar of `paddle_cluster.config.hosts`."""
    if not isinstance(value, str):
        raise mismatch("a host as a string, such as 'root@10.1.9.7'", value)
    try:
        return parse_host(value)
    except HostError as error:
        raise ValueMismatchError(f"{show(value)} is no host: {error}") from error


def own_address(value: object) -> str:
    """An IP address or name of this machine, or nothing."""
    if value == "":
        return ""
    try:
        host = parse_host(value) if isinstance(value, str) else None
    except HostError:
        host = None
    if host is None or host.user or host.port or host.is_local:
        raise mismatch("an address of this machine such as '10.1.9.7', or ''", value)
    return host.name


def node_reference(value: object) -> str | int:
    """A node of HOSTS: its text there, or its 0-based index."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise mismatch("an entry of HOSTS or its index", value)
    return value


def jump(value: object) -> str:
    """ssh's ProxyJump: hosts with commas between, or empty."""
    if not isinstance(value, str):
        raise mismatch("jump hosts as [user@]host[:port] with commas between, or ''", value)
    for hop in value.split(",") if value else ():
        if host(hop).is_local:
            raise mismatch("a jump host that ssh can reach", hop)
    return value


def from_text(text: str, like: object) -> object:
    """What a text from the environment or the command line stands for, where the default is `like`."""
    wants_integer = isinstance(like, int) and not isinstance(like, bool)
    return int(text) if wants_integer and _INTEGER.fullmatch(text) else text
