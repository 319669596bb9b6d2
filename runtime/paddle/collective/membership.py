# SPDX-License-Identifier: Apache-2.0
"""The membership of a process in a collective job: its rank, the other ranks, and their shared secret."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Self

from paddle.endpoints import check_endpoints
from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle_node.contract.classes import dataclass, field

_log = logging.getLogger(__name__)

TIMEOUT_S = 300.0
_LONGEST_S = 2_000_000.0  # poll takes milliseconds as an int of 32 bits
_TIMEOUT_NAME = "PADDLE_COLLECTIVE_TIMEOUT_S"
_WAY_NAME = "PADDLE_COLLECTIVE_WAY"
WAYS = ("auto", "tcp", "mpi")


@dataclass(frozen=True)
class Membership:
    """The rank of this process, the endpoints of all ranks, and their shared secret.

    Attributes:
        endpoints: "ip:port" of every rank; the rendezvous is at rank 0's.
        secret: 32 bytes that only the ranks of this job know; None disables authentication.
        sealed: whether connections between nodes are encrypted.
        timeout_s: how long ranks wait for each other.
        way: the transport: "auto", "tcp" (no shared memory), or "mpi".
        node: an ID of the node; ranks with the same ID share memory. If empty, the ID is detected.
    """

    rank: int
    endpoints: tuple[str, ...]
    secret: bytes | None = field(default=None, repr=False)
    sealed: bool = False
    timeout_s: float = TIMEOUT_S
    way: str = "auto"
    node: str = ""

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.endpoints)

    def name(self, rank: int) -> str:
        """Return a rank's name for messages."""
        return f"rank {rank} ({self.endpoints[rank]})"

    @classmethod
    def of(
        cls,
        rank: int,
        endpoints: Sequence[str],
        *,
        job_key: str | None = None,
        wire: str = "",
        timeout_s: float = TIMEOUT_S,
        way: str = "auto",
        node: str = "",
    ) -> Self:
        """Validate the values and return the membership; see the class for the attributes.

        Args:
            job_key: the job's secret, from which the ranks' secret is derived.
            wire: "curve" (encrypted), "plain", or empty: encrypted if there is a key.

        Raises:
            ConfigError: the values contradict each other.
        """
        check_endpoints(endpoints, "trainers: endpoint")
        if not 0 <= rank < len(endpoints):
            raise ConfigError(f"rank: expected 0 to {len(endpoints) - 1}, got {rank}")
        if wire == "curve" and job_key is None:
            raise ConfigError(
                "wire is 'curve', which needs a job key: set PADDLE_JOB_KEY, or PADDLE_WIRE=plain"
            )
        if not 0 < timeout_s <= _LONGEST_S:
            raise ConfigError(
                f"timeout_s: expected more than 0 and at most {_LONGEST_S:.0f}, got {timeout_s}"
            )
        if way not in WAYS:
            raise ConfigError(f"way: expected one of {', '.join(WAYS)}, got {way!r}")
        if job_key is None and len(endpoints) > 1:
            _log.warning("no PADDLE_JOB_KEY: ranks are not authenticated, and nothing is encrypted")
        secret = (
            hashlib.blake2b(job_key.encode(), digest_size=32, person=b"collective").digest()
            if job_key
            else None
        )
        sealed = secret is not None and wire != "plain"
        return cls(rank, tuple(endpoints), secret, sealed, timeout_s, way, node)

    @classmethod
    def of_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        rank: int | None = None,
        endpoints: Sequence[str] = (),
    ) -> Self:
        """Return the membership that the launcher's environment variables define; arguments override them.

        Raises:
            ConfigError: a value is missing or contradicts another.
        """
        env = os.environ if environ is None else environ
        job = JobEnvironment.read(env)
        everyone = tuple(endpoints) or job.trainer_endpoints
        if not everyone:
            raise ConfigError(
                "PADDLE_TRAINER_ENDPOINTS is not set, so the other ranks are unknown; start the "
                "script with paddle.py or python -m paddle.distributed.launch"
            )
        if not endpoints:
            check_endpoints(everyone, "environment variable PADDLE_TRAINER_ENDPOINTS: endpoint")
        return cls.of(
            _rank(job, everyone) if rank is None else rank,
            everyone,
            job_key=job.job_key,
            wire=job.wire,
            timeout_s=_seconds(env.get(_TIMEOUT_NAME, "")),
            way=env.get(_WAY_NAME, "") or "auto",
        )


def _rank(job: JobEnvironment, endpoints: tuple[str, ...]) -> int:
    if job.trainer_id is not None:
        return job.trainer_id
    if job.current_endpoint not in endpoints:
        raise ConfigError(
            f"PADDLE_TRAINER_ID is not set, and PADDLE_CURRENT_ENDPOINT {job.current_endpoint!r} "
            f"is not among {', '.join(endpoints)}: set PADDLE_TRAINER_ID to this trainer's index in this list"
        )
    return endpoints.index(job.current_endpoint)


def _seconds(text: str) -> float:
    try:
        return float(text) if text else TIMEOUT_S
    except ValueError:
        raise ConfigError(
            f"environment variable {_TIMEOUT_NAME}: expected a number of seconds, got {text!r}"
        ) from None
