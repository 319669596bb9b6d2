# SPDX-License-Identifier: Apache-2.0
"""Parses hosts and lists of hosts: `[user@]host[:port]`, `[user@][v6]:port`, an ssh_config alias, or `local`.

Parsed text contains nothing that a shell or an option parser interprets, except a backslash inside a login name. Names
are not resolved here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from paddle_cluster.config.values import ValueMismatchError, mismatch, nearest, show
from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import dataclass, field, regex, replace

LOCAL = "local"
MAX_TEXT = 253
MOST = 100_000  # maximum number of hosts in a range
_SHOWN = 5
_SSH_LINE = regex(r"(ssh +)?([^ -][^ ]*)(?: +-p *([0-9]+))?")
_LABEL = regex(r"local-([0-9]{1,3})")
# Ports on which no sshd listens; Horovod and MPICH write process counts there.
COUNTS = frozenset(range(1, 65)) - {22}

_SHELL_CHARACTERS = frozenset(";$`'\"|&<>(){}*?!#~^=,")
# with the domain of a directory service: DOMAIN\user or user@domain
_USER = regex(
    r"([A-Za-z0-9][A-Za-z0-9.-]*\\)?[A-Za-z0-9_][A-Za-z0-9_.+-]*(@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)?"
)
LONGEST_USER = 64
_NAME = regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]*)(\.[A-Za-z0-9_][A-Za-z0-9_-]*)*\.?")
_PORT = regex(r"[1-9][0-9]{0,4}")
_COMMA = regex(r",(?![^\[]*\])")
_NUMBERS = regex(r"([0-9]{1,9})(?:[-:]([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?")
_LETTERS = regex(r"([a-z])[-:]([a-z])|([A-Z])[-:]([A-Z])")
_SPAN = regex(r"((?:[0-9]+\.){3})([0-9]+)-(?:(?:[0-9]+\.){3})?([0-9]+)")  # of addresses
_RANGE = regex(r"([^\[]*)\[([0-9]+)[-:]([0-9]+)\]([^\[]*)")
_NETWORK = regex(r"[0-9.]+/[0-9.]+|[0-9a-fA-F:]+/[0-9]+")
_ZONE = regex(r"[A-Za-z0-9_.-]{1,15}")


class HostError(ValueError):
    """Raised for a string that is not a valid host; the message gives the reason and the correct form."""


@dataclass(frozen=True)
class Host:
    """A machine in a list of hosts, as written by the user.

    Attributes:
        text: the user's exact text.
        user: login name, or None for ssh's default.
        name: DNS name (ASCII form), IPv4 or IPv6 address without brackets, alias, or `local`.
        port: TCP port of sshd, or None for ssh's default.
        is_local: whether it is an embedded node: a directory and an agent on this machine.
    """

    text: str
    user: str | None
    name: str
    port: int | None
    is_local: bool

    def describe(self) -> str:
        """Return the host in its shortest form, which parses to the same user, name and port."""
        if self.is_local:
            return LOCAL
        name = f"[{self.name}]" if ":" in self.name else self.name
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{user}{name}{port}"


@dataclass(frozen=True)
class HostList:
    """A list of hosts, and the file or option that it comes from.

    Attributes:
        lines: location of each host in the source.
        source: the file or option that names them.
        slots: number of trainers by node ID, if given.
        keys: private key of the login by node ID, if given.
        all_hosts: number of hosts including excluded ones; 0 means no host was excluded.
        ignored: settings of the source that have no effect.
        is_conf: whether the source is HOSTS of conf.py.
        is_requested: whether the nodes must be requested from the engine; until then, the hosts are placeholders.
    """

    hosts: tuple[Host, ...]
    lines: tuple[str, ...]
    source: str
    slots: Mapping[int, int] = field(default_factory=dict)
    keys: Mapping[int, Path] = field(default_factory=dict)
    all_hosts: int = 0
    ignored: tuple[str, ...] = ()
    is_conf: bool = False
    is_requested: bool = False

    @property
    def called(self) -> str:
        """Return the name of the list for messages, such as "HOSTS"."""
        return "HOSTS" if self.is_conf else f"the nodes of {self.source}"

    @property
    def total(self) -> int:
        """Return the number of hosts in the source."""
        return self.all_hosts or len(self.hosts)

    def of(self, ids: Sequence[int]) -> HostList:
        """Return the hosts with these IDs as a list, renumbered from 0."""
        if len(ids) == len(self.hosts):
            return self
        return replace(
            self,
            hosts=tuple(self.hosts[one] for one in ids),
            lines=tuple(self.lines[one] for one in ids),
            slots={new: self.slots[one] for new, one in enumerate(ids) if one in self.slots},
            keys={new: self.keys[one] for new, one in enumerate(ids) if one in self.keys},
            all_hosts=self.total,
        )

    def ids(self, reference: str) -> Sequence[int]:
        """Return the IDs of the nodes whose entry in the list is `reference`, or else of those with this host name."""
        return self._ids.get(reference, ())

    def node_of(self, reference: str | int) -> int:
        """Return the ID of the node that is given as written in the list, by its unique host name, or by its index.

        Raises:
            ValueMismatchError: the reference matches no node, or several.
        """
        if isinstance(reference, int):
            if not 0 <= reference < len(self.hosts):
                raise mismatch(f"an index into {self.called}, from 0 to {len(self.hosts) - 1}", reference)
            return reference
        ids = self.ids(reference)
        if self.hosts[0].is_local and (labelled := _LABEL.fullmatch(reference)):
            return self.node_of(int(labelled[1]))
        if len(ids) > 1:
            raise ValueMismatchError(
                f"{reference!r} matches several entries of {self.called}; give the index of the one you mean"
            )
        if not ids:
            texts = [host.text for host in self.hosts]
            near = nearest(reference, [*texts, *(host.name for host in self.hosts)])
            hint = f"; did you mean {near!r}?" if near else f", which has {some(texts, _SHOWN)}"
            hint += "; write an index without quotes" * reference.isdecimal()
            raise ValueMismatchError(f"{reference!r} is not in {self.called}{hint}")
        return ids[0]

    @cached_property
    def _ids(self) -> Mapping[str, Sequence[int]]:
        texts, names = dict[str, list[int]](), dict[str, list[int]]()
        for node_id, host in enumerate(self.hosts):
            texts.setdefault(host.text, []).append(node_id)
            names.setdefault(host.name, []).append(node_id)
        return names | texts


def parse_host(text: str) -> Host:
    """Parse one host, as the user wrote it.

    Raises:
        HostError: the text does not match the grammar.
    """
    _refuse_dangerous(text)
    if text == LOCAL:
        return Host(text, None, LOCAL, None, is_local=True)
    if "/" in text and "[" not in text:
        if _NETWORK.fullmatch(text):
            raise HostError("this is a network, not a host; list its machines, such as --hosts=10.0.0.[1-3]")
        bare = text.rpartition("://")[2].partition("/")[0].rstrip(":")
        raise HostError(
            f"a host is not a URL and has no path; write {bare or '[user@]host[:port]'}. The directory on the host is "
            "ROOT_DIR in conf.py"
        )
    user, at, rest = text.rpartition("@")
    if at:
        _check_user(user)
    name, port = _bracketed(rest) if rest.startswith("[") else _plain(rest)
    if name == LOCAL:
        if port in COUNTS and not at:
            raise HostError(f"`:{port}` is not a count: write {LOCAL}, and give --nproc_per_node={port}")
        raise HostError(
            "'local' is the embedded node on this machine and takes no user or port. For a machine with that name, "
            "write its full DNS name or its address"
        )
    return Host(text, user if at else None, name, port, is_local=False)


def listed(text: str) -> tuple[str, ...]:
    """Split a list of hosts at its commas and expand ranges.

    `node[01-03,7]` (Slurm, pdsh), `node[01:03]` and `rack-[a:c]` (Ansible) are ranges; brackets around anything else
    are preserved, as in an IPv6 address.

    Raises:
        HostError: a range ends before it starts or has too many hosts.
    """
    return tuple(host for part in _COMMA.split(text) for host in _expanded(part))


def _expanded(text: str) -> list[str]:
    before, opened, rest = text.partition("[")
    inside, closed, after = rest.partition("]")
    if not opened or not closed:
        return [text]
    items = [_items(item) for item in inside.split(",")]
    tails = _expanded(after)
    if not all(items):
        return [f"{before}[{inside}]{tail}" for tail in tails]
    if sum(map(len, items)) * len(tails) > MOST:
        raise HostError(f"{text!r:.80} expands to more than {MOST} hosts")
    return [f"{before}{item}{tail}" for found in items for item in found for tail in tails]


def _items(item: str) -> list[str]:
    """Return the values of one comma-separated part of a range; empty if the part is not a range."""
    letters = _LETTERS.fullmatch(item)
    numbers = _NUMBERS.fullmatch(item)
    if letters:
        first, last = filter(None, letters.groups())
        found = [chr(code) for code in range(ord(first), ord(last) + 1)]
    elif numbers:
        first, last, step = numbers[1], numbers[2] or numbers[1], int(numbers[3] or 1)
        if int(last) - int(first) >= MOST * step:
            raise HostError(f"[{item}] expands to more than {MOST} hosts")
        found = [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1, step)]
    else:
        return []
    if not found:
        raise HostError(f"the range [{item}] ends before it starts")
    return found


def host(value: object) -> Host:
    """Accept a host, by the grammar of this module."""
    if not isinstance(value, str):
        error = mismatch("a host as a string, such as 'root@10.1.9.7' or 'root@10.1.9.7:2222'", value)
        if isinstance(value, Mapping) and isinstance(name := value.get("host"), str):
            slots = f", and give --nproc_per_node={value['slots']} for its slots" if "slots" in value else ""
            raise ValueMismatchError(f"{error}; write {show(name).removeprefix('the string ')}{slots}")
        raise error
    try:
        return parse_host(value)
    except HostError as error:
        raise ValueMismatchError(f"{show(value)} is not a host: {error}") from error


def own_address(value: object) -> str:
    """Accept an IP address or name of this machine, or an empty text."""
    if value == "":
        return ""
    try:
        host = parse_host(value) if isinstance(value, str) else None
    except HostError:
        host = None
    if host is None or host.user or host.port or host.is_local:
        raise mismatch("an address of this machine such as '10.1.9.7', or ''", value)
    return host.name


def jump(value: object) -> str:
    """Accept ssh's ProxyJump: hosts as a list or separated by commas, or an empty text."""
    value = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    if not isinstance(value, str):
        raise mismatch("jump hosts as [user@]host[:port], separated by commas, or ''", value)
    for hop in value.split(",") if value else ():
        if host(hop).is_local:
            raise mismatch("a jump host that ssh can reach", hop)
    return value


def count_question(host: Host) -> str:
    """Return a question to the user if a host's port looks like a number of processes, otherwise ""."""
    if host.port not in COUNTS:
        return ""
    some = "1 process" if host.port == 1 else f"{host.port} processes"
    return (
        f"`:{host.port}` in {host.text!r} is a port, not a count. For {some} "
        f"on each host, give --nproc_per_node={host.port}; for this host alone, use a "
        f"hostfile with `{host.name} slots={host.port}` (set a port below 65 in your ssh "
        "config instead)"
    )


def _refuse_dangerous(text: str) -> None:
    if not text:
        raise HostError("a host must not be empty; check for an extra comma")
    if len(text) > MAX_TEXT:
        raise HostError(f"a host may have at most {MAX_TEXT} characters, got {len(text)}")
    if text.startswith("-"):
        raise HostError(
            "a host must not begin with '-', as options do; expected [user@]host[:port]. In conf.py, sys.argv has the "
            "launcher's options: use --hosts=HOST[,HOST] instead"
        )
    if text != text.strip():
        raise HostError("remove the spaces or line breaks around it, for example with text.strip()")
    if (line := _SSH_LINE.fullmatch(text)) and (line[1] or line[3]):
        raise HostError(f"write {line[2]}:{line[3]}" if line[3] else f"write {line[2]}")
    for character in text:
        if character.isspace() or not character.isprintable():
            raise HostError(
                f"a host must not contain spaces or control characters, got {character!r}; separate several with "
                "commas: --hosts=a,b, or HOSTS = ['a', 'b'] in conf.py"
            )
        if character in _SHELL_CHARACTERS:
            several = "; separate several as in HOSTS = ['a', 'b']" * (character == ",")
            raise HostError(f"a host must not contain {character!r}; expected [user@]host[:port]{several}")


def _check_user(user: str) -> None:
    if ":" in user:
        raise HostError(
            f"nothing can follow the user name {user.partition(':')[0]!r} before the '@', and logins use keys, not "
            "passwords: add your public key to the node with ssh-copy-id; expected [user@]host[:port]"
        )
    if len(user) > LONGEST_USER or not _USER.fullmatch(user):
        raise HostError(
            f"{user} is not a valid login name: expected letters, digits and . _ + - (at most "
            f"{LONGEST_USER}), with or without a domain (DOMAIN\\user, user@example.org). For any other name, write a "
            "Host alias with a User line in your ssh_config"
        )


def _bracketed(rest: str) -> tuple[str, int | None]:
    inside, closed, after = rest[1:].partition("]")
    if not closed:
        raise HostError("'[' without ']': expected [address]:port")
    address, percent, zone = inside.partition("%")
    try:
        name = str(ipaddress.IPv6Address(address))
    except ValueError:
        raise HostError(
            f"{inside!r} is not an IPv6 address; only IPv6 addresses are written in brackets"
        ) from None
    if percent and not _ZONE.fullmatch(zone):
        raise HostError(f"{zone!r} is not a valid network interface")
    if not after:
        return name + percent + zone, None
    if not after.startswith(":"):
        raise HostError(f"unexpected {after!r} after ']': expected [address]:port")
    return name + percent + zone, _port(after[1:])


def _plain(rest: str) -> tuple[str, int | None]:
    if rest.count(":") > 1:
        if set(rest.lower()) - set("0123456789abcdef:.%"):
            raise HostError("expected [user@]host[:port], with a single port")
        raise HostError(f"write an IPv6 address in brackets: [{rest}], or [{rest}]:22 with a port")
    name, colon, port = rest.partition(":")
    return _name(name), _port(port) if colon else None


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise HostError(f"{text!r} is not a valid port: expected a number from 1 to 65535")
    return int(text)


def _name(text: str) -> str:
    if not text:
        raise HostError("the host name is missing: expected [user@]host[:port]")
    name = text if text.isascii() else _ascii_form(text)
    if not _NAME.fullmatch(name) or len(name) > MAX_TEXT:
        raise HostError(
            f"{text!r} is not a host name: expected letters, digits, '-', '_' and single dots"
            + (f"; {_computed(*match.groups())}" if (match := _RANGE.fullmatch(text)) else "")
        )
    if span := _SPAN.fullmatch(name):
        raise HostError(_computed(*span.groups()))
    if not name.strip("0123456789."):
        try:
            ipaddress.IPv4Address(name)
        except ValueError:
            hint = f"; a port follows its host and a colon: HOST:{name}" if name.isdecimal() else ""
            raise HostError(
                f"{text!r} is not an IPv4 address: expected four numbers from 0 to 255{hint}"
            ) from None
    return name


def _computed(before: str, first: str, last: str, after: str = "") -> str:
    """Return advice for a range of hosts."""
    form = f":0{len(first)}" if first.startswith("0") else ""
    form = f"[f'{before}{{i{form}}}{after}' for i in range({int(first)}, {int(last) + 1})]"
    return f"write a range as {before}[{first}-{last}]{after} in --hosts or a hostfile; in conf.py: HOSTS = {form}"


def _ascii_form(text: str) -> str:
    """Return the ASCII form of an internationalized DNS name (`xn--...`), which ssh and resolvers expect."""
    if not all(character.isalnum() or character in "-." for character in text):
        raise HostError(f"{text!r} is not a host name: expected letters, digits, '-' and single dots")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise HostError(f"{text!r} cannot be encoded for DNS ({error}); write its xn-- form") from None
