# SPDX-License-Identifier: Apache-2.0
"""Determines the endpoints and encryption of a job's servers, from arguments or else from the job's environment."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle_node.contract.classes import dataclass, field


@dataclass(frozen=True, slots=True)
class JobServers:
    """The endpoints of a job's servers, the job's secret, and the wire type."""

    endpoints: tuple[str, ...]
    sparse_endpoints: tuple[str, ...]
    wire: str
    job_key: str | None = field(repr=False)

    @classmethod
    def find(
        cls,
        who: str,
        job: JobEnvironment,
        endpoints: Sequence[str] | None,
        sparse_endpoints: Sequence[str] | None,
        job_key: str | None,
        wire: str | None,
    ) -> JobServers:
        """Return the given servers; an argument that is None is read from the job's environment.

        Args:
            who: name of the calling class, for error messages.
            job: the environment.

        Raises:
            ConfigError: the servers' endpoints are not given anywhere, or the environment contains an invalid endpoint.
        """
        for name, given in (("endpoints", endpoints), ("sparse_endpoints", sparse_endpoints)):
            if isinstance(given, str):
                raise ConfigError(
                    f"paddle.pserver.{who}: {name}: expected a list of 'ip:port', got the string {given!r}; write "
                    f"{name}={given.split(',')!r}"
                )
        if endpoints is None:
            job.check_servers()
            endpoints = job.endpoints
            sparse_endpoints = job.sparse_endpoints if sparse_endpoints is None else sparse_endpoints
        if not endpoints:
            raise ConfigError(
                f"paddle.pserver.{who}: no server is known. Give endpoints=['<ip>:<port>', ...] (a command: "
                "--servers=HOST:PORT,...), or run the program with paddle.py, which sets PADDLE_PSERVERS_IP_PORT_LIST "
                "(--mode=collective starts no servers)"
            )
        key = job.job_key if job_key is None else job_key
        wire = wire or job.wire or ("curve" if key else "plain")
        return cls(tuple(endpoints), tuple(sparse_endpoints or ()), wire, key)


def positive(name: str, seconds: float) -> float:
    """Return a timeout in seconds after checking it. Raises ConfigError if it is not a positive number."""
    if not seconds > 0:
        raise ConfigError(f"{name}: expected more than 0 seconds, got {seconds}")
    return seconds
