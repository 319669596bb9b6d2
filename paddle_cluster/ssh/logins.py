# SPDX-License-Identifier: Apache-2.0
"""The base class of both SSH clients: key checks, retries for busy servers, and the command to run on the node."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.bootstrap import Bootstrap, agent_bootstrap, reconnect_bootstrap
from paddle_cluster.connection.carrier import Stream
from paddle_cluster.errors import ConnectError

STEPS_OF_A_LOGIN = 4  # name, TCP, handshake, authentication
RETRY_S = (
    0.1,
    0.4,
)  # the minimum and maximum pause before the second attempt at a busy server; doubled for each further one
LONGEST_RETRY_S = 2.0


class TurnedAwayError(Exception):
    """Raised when the server rejects a login that it may accept a moment later (MaxStartups)."""

    def __init__(self, error: ConnectError) -> None:
        super().__init__(str(error))
        self.error = error


class Logins(ABC):
    """The base class of SSH clients, which log in to nodes and start agents there. Thread-safe."""

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings

    def connect(self, host: Host, python: str) -> Stream:
        """Log in to a node and start an agent there; blocks for at most a few times `connect_timeout_s`.

        Args:
            python: the job's interpreter; it runs the agent if the node's python3 is missing or too old.

        Raises:
            ConnectError: the node cannot be reached; the error states the reason and a remedy.
        """
        self.check_keys(host)
        deadline = time.monotonic() + self._settings.connect_timeout_s
        least_s, most_s = RETRY_S
        while True:
            try:
                return self._log_in(host, python, agent_bootstrap(), is_fresh=False)
            except TurnedAwayError as busy:
                import random  # servers are rarely busy

                # jitter, so that rejected clients do not all retry at the same time
                wait_s = random.uniform(least_s, most_s)  # noqa: S311
                if time.monotonic() + wait_s >= deadline:
                    raise busy.error from busy.__cause__
                time.sleep(wait_s)
                most_s = min(2 * most_s, LONGEST_RETRY_S)

    def reconnect(self, host: Host, python: str) -> Stream:
        """Log in once to a node whose agent is running, and start the command that passes the connection to it.

        Raises:
            ConnectError: the node cannot be reached now.
        """
        self.check_keys(host)
        try:
            return self._log_in(host, python, reconnect_bootstrap(), is_fresh=True)
        except TurnedAwayError as busy:
            raise busy.error from busy.__cause__

    @abstractmethod
    def _log_in(self, host: Host, python: str, bootstrap: Bootstrap, is_fresh: bool) -> Stream:
        """Log in and start a command; raises ConnectError, or TurnedAwayError.

        Args:
            is_fresh: whether to use a new connection: an existing one may be the one that was lost.
        """

    def close(self) -> None:  # noqa: B027 - logins on threads of this process end by their own timeouts
        """Stop the logins in progress; connections that are established stay open."""

    @abstractmethod
    def route(self, host: Host) -> tuple[str, ...]:
        """Return the route to a node without connecting: jump hosts or the ProxyCommand, then its user@address:port.

        Raises:
            ConnectError: a key does not exist, or the ssh config cannot be read.
        """

    def check_keys(self, host: Host) -> None:
        """Raise ConnectError unless the private keys that conf.py names for a node exist."""
        own = self._settings.key_of(host)
        for path in filter(None, (own, *self._settings.identity_files)):
            if not path.is_file():
                setting = "HOST_SETTINGS" if path == own else "SSH_IDENTITY_FILES"
                raise ConnectError(host.text, f"the private key {path} does not exist.", f"See {setting}.")
