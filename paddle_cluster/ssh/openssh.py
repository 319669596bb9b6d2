# SPDX-License-Identifier: Apache-2.0
"""Byte streams to agents over the user's own `ssh`: a process for each node, and all that ~/.ssh/config can say.

Host keys are always verified, on jump hosts too. Nobody is ever asked for anything. A login that fails is told in
the words of `paddle_cluster.ssh.reasons`, as those of the library are.
"""

from __future__ import annotations

import threading

from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_cluster.connection.shell import agent_command
from paddle_cluster.ssh import openssh_options as options
from paddle_cluster.ssh.config_reader import Options
from paddle_cluster.ssh.logins import STEPS_OF_A_LOGIN, Logins, TurnedAwayError
from paddle_cluster.ssh.openssh_query import ask, not_started, readable
from paddle_cluster.ssh.openssh_stream import OpenSshStream
from paddle_cluster.ssh.openssh_words import FailedLogin, explain


class OpenSshLogins(Logins):
    """All logins of a job; any thread may log in."""

    def __init__(self, settings: SshSettings) -> None:
        super().__init__(settings)
        self._config = options.config_text(settings, is_fresh=False)
        self._fresh_config = options.config_text(settings, is_fresh=True)
        self._under_way: set[OpenSshStream] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """End the logins under way; those that succeeded stay."""
        with self._lock:
            self._is_closed = True
            for stream in self._under_way:
                stream.interrupt()

    def route(self, host: Host) -> tuple[str, ...]:
        """As `ssh -G` resolves it."""
        self.check_keys(host)
        found = self._options_of(host)
        (command,), (jumps,) = found.get("proxycommand", ["none"]), found.get("proxyjump", ["none"])
        via = [] if command == "none" else [command]
        for jump in [] if jumps == "none" else jumps.split(","):
            via.append(_login_of(self._options_of(parse_host(jump), host)))
        return (*via, _login_of(found))

    def _options_of(self, host: Host, node: Host | None = None) -> Options:
        with readable(self._config) as config:
            # a jump host has its own route: conf.py's is to the node
            settings = self._settings
            words = options.argv(settings, config, host, jump=settings.jump if node is None else "")
            return ask(words[1:], (node or host).text)

    def _log_in(self, host: Host, python: str, bootstrap: Bootstrap, is_fresh: bool) -> OpenSshStream:
        limit_s = STEPS_OF_A_LOGIN * self._settings.connect_timeout_s
        attempt = FailedLogin(host.text, self._settings.connect_timeout_s)
        with readable(self._fresh_config if is_fresh else self._config) as config:
            argv = options.argv(
                self._settings, config, host, agent_command(bootstrap, python), jump=self._settings.jump
            )
            try:
                stream = OpenSshStream(argv, bootstrap)
            except OSError as error:
                raise not_started(host.text, error) from error
            try:
                if self._wait_for(stream, limit_s):
                    return stream
            except TimeoutError:
                attempt = FailedLogin(host.text, self._settings.connect_timeout_s, limit_s)
                stream.interrupt()
            except BaseException:
                stream.interrupt()
                stream.end()
                raise
            stream.end()
        explained, is_busy = explain(stream.words, attempt)
        raise TurnedAwayError(explained) if is_busy and not self._is_closed else explained

    def _wait_for(self, stream: OpenSshStream, limit_s: float) -> bool:
        with self._lock:
            self._under_way.add(stream)
            if self._is_closed:
                stream.interrupt()
        try:
            return stream.wait_for_login(limit_s)
        finally:
            with self._lock:
                self._under_way.discard(stream)


def _login_of(found: Options) -> str:
    """Who logs in where."""
    return f"{found['user'][0]}@{found['hostname'][0]}:{found['port'][0]}"
