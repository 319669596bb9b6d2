# SPDX-License-Identifier: Apache-2.0
"""Resolves the route to a node: the hosts to log in to, in order, from HOSTS and the user's ssh configuration.

If OpenSSH 8.0 or newer is installed, `ssh -G` resolves the first host. The other hosts are resolved by config_reader,
which is much cheaper than a process per host, if it agrees with `ssh -G` about the first one and supports every line.
Otherwise `ssh -G` resolves each. `ssh -G` is not run if no line of the configuration has an effect.
"""

from __future__ import annotations

import functools
import os
import pwd
import re
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.config.values import home
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh import config_lines, config_reader, openssh_query
from paddle_cluster.ssh.config_lines import ALGORITHMS, ConfigLine, PlacedLine, without_tilde
from paddle_cluster.ssh.config_reader import DEFAULT_KEYS, LISTS, Options, expanded_hostname, seconds
from paddle_cluster.ssh.openssh_query import destination, included, jump_option
from paddle_cluster.ssh.reasons import KNOWN_HOSTS
from paddle_node.contract.classes import dataclass, regex, replace

MOST_HOPS = 16
SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_BOTH_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_TOKEN = regex("%(.?)")
_TOKEN_OR_VARIABLE = regex(r"%(.?)|\$\{([^}]*)\}")
_NEEDLESS_BRACKETS = regex(r"\[([^\]:]*)\]")  # `ssh -G` prints an IPv4 address of ProxyJump in brackets


class ExpansionError(ValueError):
    """Raised when a value has a token or a variable that cannot be expanded."""


@dataclass(frozen=True)
class HostConfig:
    """The settings of one login, as resolved from the configuration.

    Attributes:
        jump: jump hosts in the form of ProxyJump, or empty.
        proxy_command: the command that provides the connection, or empty.
        keys: the private key files to offer, in this order.
        missing_keys: missing key files that the configuration names, each with its line.
        certificates: the certificates for these keys.
        identities_only: whether keys of the agent count only if they are among `keys`.
        agent: the socket of the ssh agent, or empty.
        known_hosts: the user's files with host keys; new keys are added to the first.
        global_known_hosts: the system's files with host keys.
        revoked: the file of revoked host keys (RevokedHostKeys), or None.
        key_alias: the name under which known_hosts lists the host (HostKeyAlias), or empty.
        connect_timeout_s: ConnectTimeout in seconds, or None.
        alive_s: ServerAliveInterval in seconds, or 0.
        family: AddressFamily: "any", "inet" or "inet6".
        bind: the local address of the connection (BindAddress), or empty.
        algorithms: (keyword, algorithms) of each list that restricts those of the connection.
    """

    user: str
    host: str
    port: int
    jump: str = ""
    proxy_command: str = ""
    keys: tuple[Path, ...] = ()
    missing_keys: tuple[str, ...] = ()
    certificates: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str = ""
    known_hosts: tuple[Path, ...] = ()
    global_known_hosts: tuple[Path, ...] = ()
    revoked: Path | None = None
    key_alias: str = ""
    connect_timeout_s: float | None = None
    alive_s: float = 0.0
    family: str = "any"
    bind: str = ""
    algorithms: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def text(self) -> str:
        """The host's name in messages."""
        return f"{self.user}@{self.host}:{self.port}"


@functools.cache
def local_user() -> str:
    """Return the name of this process's user; like `ssh`, ignore $USER."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())


def host_config(host: Host, options: Options, key_lines: Mapping[str, ConfigLine]) -> HostConfig:
    """Build the settings of one login from resolved options.

    Args:
        options: the options as printed by `ssh -G`; missing ones have their defaults.
        key_lines: the configuration's line for each key file, to report a missing one.

    Raises:
        ExpansionError: a value cannot be expanded.
    """

    def one(name: str, default: str = "") -> str:
        value = options.get(name, [default])[0]
        return default if value.lower() == "none" else value

    name = expanded_hostname(one("hostname", host.name), host.name).lower()
    user, port = one("user") or host.user or local_user(), int(one("port", str(host.port or 22)))
    alias = one("hostkeyalias").lower()
    expand = _Expansion(
        {
            "%": "%",
            "h": name,
            "n": host.name,
            "p": str(port),
            "r": user,
            "k": alias or host.name,
            "d": str(home()),
            "i": str(os.getuid()),
            "u": local_user(),
            "l": socket.gethostname(),
            "L": socket.gethostname().partition(".")[0],
        }
    )
    named = options.get("identityfile", [f"~/.ssh/{key}" for key in DEFAULT_KEYS])
    keys = {key: expand.path(key) for key in named if key.lower() != "none"}
    lists = {
        option: tuple(expand.known_hosts(text) for text in options.get(option, default) if text != "none")
        for option, default in zip(LISTS, (_BOTH_KNOWN_HOSTS, SYSTEM_KNOWN_HOSTS), strict=True)
    }
    agent = one("identityagent", "SSH_AUTH_SOCK") if options.get("identityagent") != ["none"] else ""
    timeout = one("connecttimeout")
    return HostConfig(
        user=user,
        host=name,
        port=port,
        jump=_NEEDLESS_BRACKETS.sub(r"\1", one("proxyjump")),
        proxy_command=expand(one("proxycommand"), _TOKEN),
        keys=tuple(dict.fromkeys(path for path in keys.values() if path.is_file())),
        missing_keys=tuple(
            f"{path} does not exist (IdentityFile, {line.path} line {line.number})"
            for key, path in keys.items()
            if (line := key_lines.get(key)) is not None and not path.exists()
        ),
        certificates=tuple(
            expand.path(text) for text in options.get("certificatefile", []) if text != "none"
        ),
        identities_only=one("identitiesonly") == "yes",
        agent=expand.agent(agent),
        known_hosts=lists["userknownhostsfile"],
        global_known_hosts=lists["globalknownhostsfile"],
        revoked=expand.known_hosts(revoked) if (revoked := one("revokedhostkeys")) else None,
        key_alias=alias,
        connect_timeout_s=float(seconds(timeout)) or None if timeout else None,
        alive_s=float(seconds(one("serveraliveinterval", "0"))),
        family=one("addressfamily", "any").lower(),
        bind=one("bindaddress"),
        algorithms=tuple((name, tuple(one(name).split(","))) for name in ALGORITHMS if options.get(name)),
    )


class _Expansion:
    """Replaces tokens (%h), variables (${HOME}) and ~ in the values of one host."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = tokens

    def __call__(self, text: str, form: re.Pattern[str] = _TOKEN_OR_VARIABLE) -> str:
        return form.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        if found[0][0] == "%":
            if found[1] not in self._tokens:
                raise ExpansionError(f"the token {found[0]} of {found.string} is not supported")
            return self._tokens[found[1]]
        if found[2] not in os.environ:
            raise ExpansionError(f"{found.string}: the environment has no variable {found[2]}")
        return os.environ[found[2]]

    def path(self, text: str) -> Path:
        """Return the file that a value names."""
        return Path(self(without_tilde(text)))

    def known_hosts(self, text: str) -> Path:
        """Return the known_hosts file that a value names; newer versions of `ssh` print these names expanded."""
        plain = without_tilde(text)
        if "%" not in plain and "$" not in plain:
            return Path(plain)
        try:
            return Path(plain) if Path(plain).exists() else self.path(text)
        except ExpansionError:
            return Path(plain)

    def agent(self, text: str) -> str:
        """Return the socket that IdentityAgent names: a path, or a variable that contains one."""
        if text == "SSH_AUTH_SOCK" or (text.startswith("$") and not text.startswith("${")):
            return os.environ.get(text.removeprefix("$"), "")
        return str(self.known_hosts(text)) if text else ""


class Routes:
    """The resolved routes to nodes; each host is resolved only once. Thread-safe."""

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._lines: list[PlacedLine] | None = None
        self._key_lines: dict[str, ConfigLine] = {}
        self._without_effect: frozenset[str] = (
            frozenset()
        )  # algorithms that `ssh -G` prints, but no line names
        self._found: dict[tuple[Host, str], Future[HostConfig]] = {}
        self._comparing = threading.Lock()
        self._agrees: bool | None = None  # whether `ssh -G` gave the first host the result of config_reader

    def to(self, node: Host) -> tuple[HostConfig, ...]:
        """Return the logins on the route, ending with the node's own; blocks while `ssh -G` runs.

        Raises:
            ConnectError: `ssh` rejects the configuration.
            OSError, ValueError: the configuration cannot be read.
        """
        settings = self._settings
        hops = [self._resolved(node, node, "".join(jump_option(settings.jump, node)))]
        while hops[0].jump:
            *before, last = hops[0].jump.split(",")
            if len(hops) > MOST_HOPS:
                raise ConnectError(
                    node.text,
                    f"the jump hosts form a loop: {hops[0].text}.",
                    "Exclude them from their own ProxyJump, as in `Host * !gate`, or set SSH_JUMP in conf.py.",
                )
            way = f"ProxyJump={','.join(before)}" if before else ""
            hops.insert(0, self._resolved(parse_host(last), node, way))
        for at, hop in enumerate(hops):
            own = settings.key_of(node) if at == len(hops) - 1 else None
            keys = filter(None, (own, *settings.identity_files, *hop.keys))
            hops[at] = replace(hop, keys=tuple(dict.fromkeys(keys)))
        if settings.known_hosts != KNOWN_HOSTS:
            hops = [replace(hop, known_hosts=(settings.known_hosts, *hop.known_hosts)) for hop in hops]
        return tuple(hops)

    def _resolved(self, host: Host, node: Host, way: str) -> HostConfig:
        with self._lock:
            if self._lines is None:
                self._lines = config_lines.all_lines(self._settings.config)
                self._key_lines = config_lines.key_lines(self._lines)
                self._without_effect = frozenset(ALGORITHMS) - config_lines.named_algorithms(self._lines)
            found = self._found.get((host, way))
            is_first = found is None
            if found is None:
                found = self._found[host, way] = Future()
        if is_first:
            try:
                found.set_result(self._resolve(host, node, way))
            except BaseException as error:  # noqa: BLE001 - all who wait get it, whatever it is
                with self._lock:
                    del self._found[host, way]  # the next thread asks again
                found.set_exception(error)
        try:
            return found.result()
        except ConnectError as error:  # it names the first node that asked
            raise ConnectError(node.text, error.reason, error.hint) from error

    def _resolve(self, host: Host, node: Host, way: str) -> HostConfig:
        preset = {"user": host.user or "", "port": str(host.port or ""), "proxyjump": way.partition("=")[2]}
        preset = {name: value for name, value in preset.items() if value}
        assert self._lines is not None
        if not config_lines.has_effect(self._lines):
            return self._config(host, {name: [value] for name, value in preset.items()})
        try:
            own = self._config(host, config_reader.read(self._lines, host, local_user(), preset))
        except ValueError:
            if not openssh_query.is_usable():
                raise
            return self._config(host, self._query(host, node, way))
        with self._comparing:
            if self._agrees is None and openssh_query.is_usable():
                self._agrees = False  # also if it fails: then the other hosts ask in parallel
                asked = self._config(host, self._query(host, node, way))
                self._agrees = own == asked
                return asked
        return self._config(host, self._query(host, node, way)) if self._agrees is False else own

    def _config(self, host: Host, options: Options) -> HostConfig:
        effective = {name: found for name, found in options.items() if name not in self._without_effect}
        return host_config(host, effective, self._key_lines)

    def _query(self, host: Host, node: Host, way: str) -> Options:
        words = ["-T", *(["-o", way] if way else []), *destination(host)]
        config = self._settings.config
        if config_lines.is_own(config):
            return openssh_query.ask(words, node.text)
        with openssh_query.readable("".join(f"{line}\n" for line in included(config))) as path:
            return openssh_query.ask(["-F", path, *words], node.text)
