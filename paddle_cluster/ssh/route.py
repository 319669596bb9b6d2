# SPDX-License-Identifier: Apache-2.0
"""The route to a node: the hosts to log in to, in order, from HOSTS and the user's ssh config.

If OpenSSH 8.0 or newer is installed, `ssh -G` resolves each host. It is not run if no line of the configuration has an
effect.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh import config_lines, config_reader, openssh_query
from paddle_cluster.ssh.config_lines import ConfigLine, PlacedLine
from paddle_cluster.ssh.config_reader import Options
from paddle_cluster.ssh.host_config import HostConfig, host_config, local_user
from paddle_cluster.ssh.openssh_query import USER_KNOWN_HOSTS, destination, included, jump_option

MOST_HOPS = 16


class Routes:
    """Routes to nodes; each host is resolved one time. Thread-safe."""

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._lines: list[PlacedLine] | None = None
        self._key_lines: dict[str, ConfigLine] = {}
        self._found: dict[tuple[Host, str], Future[HostConfig]] = {}

    def to(self, node: Host) -> tuple[HostConfig, ...]:
        """The logins to make, the last one at the node itself; blocks while `ssh -G` runs.

        Raises:
            ConnectError: `ssh` refuses the configuration.
            OSError, ValueError: the configuration cannot be read.
        """
        settings = self._settings
        hops = [self._resolved(node, node, "".join(jump_option(settings.jump, node)))]
        while hops[0].jump:
            *before, last = hops[0].jump.split(",")
            if len(hops) > MOST_HOPS:
                raise ConnectError(node.text, f"its jump hosts form a loop: {hops[0].text}.")
            way = f"ProxyJump={','.join(before)}" if before else ""
            hops.insert(0, self._resolved(parse_host(last), node, way))
        for at, hop in enumerate(hops):
            own = settings.key_of(node) if at == len(hops) - 1 else None
            keys = filter(None, (own, *settings.identity_files, *hop.keys))
            hops[at] = replace(hop, keys=tuple(dict.fromkeys(keys)))
        if settings.known_hosts != Path(USER_KNOWN_HOSTS).expanduser():
            hops = [replace(hop, known_hosts=(settings.known_hosts, *hop.known_hosts)) for hop in hops]
        return tuple(hops)

    def _resolved(self, host: Host, node: Host, way: str) -> HostConfig:
        with self._lock:
            if self._lines is None:
                self._lines = config_lines.all_lines(self._settings.config)
                self._key_lines = config_lines.key_lines(self._lines)
            found = self._found.get((host, way))
            is_first = found is None
            if found is None:
                found = self._found[host, way] = Future()
        if is_first:
            try:
                found.set_result(host_config(host, self._options(host, node, way), self._key_lines))
            except BaseException as error:  # noqa: BLE001 - all who wait get it, whatever it is
                with self._lock:
                    del self._found[host, way]  # the next one asks again
                found.set_exception(error)
        try:
            return found.result()
        except ConnectError as error:  # it names the node that was first
            raise ConnectError(node.text, error.reason, error.hint) from error

    def _options(self, host: Host, node: Host, way: str) -> Options:
        preset = {"user": host.user or "", "port": str(host.port or ""), "proxyjump": way.partition("=")[2]}
        preset = {name: value for name, value in preset.items() if value}
        assert self._lines is not None
        if not config_lines.has_effect(self._lines):
            return {name: [value] for name, value in preset.items()}
        config = self._settings.config
        if not openssh_query.is_usable():
            return config_reader.read(self._lines, host, local_user(), preset)
        words = ["-T", *(["-o", way] if way else []), *destination(host)]
        if config_lines.is_own(config):
            return openssh_query.ask(words, node.text)
        with openssh_query.readable("".join(f"{line}\n" for line in included(config))) as path:
            return openssh_query.ask(["-F", path, *words], node.text)
