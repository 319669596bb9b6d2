# SPDX-License-Identifier: Apache-2.0
"""What a program says of the servers it talks to, and how: with which keys, how long it waits."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddle import graph
from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle.fluid.errors import FluidError

if TYPE_CHECKING:
    from paddle.pserver.wire.keys import WireKeys


SENDING = (
    "send",
    "send_barrier",
    "recv",
    "fetch_barrier",
    "prefetch",
    "distributed_lookup_table",
    "checkpoint_notify",
)
SERVING = "listen_and_serv"
_log = logging.getLogger(__name__)

_DEADLINE = "FLAGS_rpc_deadline"
_DEADLINE_MS = 180_000.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """A trainer's place among trainers and servers.

    Attributes:
        trainer_id: rank of this trainer.
        trainers: how many there are; 0: as many as the servers say.
        endpoints: "host:port" of all servers, the same list in every trainer.
    """

    trainer_id: int
    trainers: int
    endpoints: tuple[str, ...]


def distribution_of(program: graph.Program) -> Distribution:
    """Return what the operators of block 0 say; for programs that no transpiler made, or that were read from files.

    Raises:
        FluidError: they name several trainer ids.
    """
    trainers: set[int] = set()
    endpoints: dict[str, None] = {}
    for op in program.global_block().ops:
        if op.type in SENDING:
            for attr in ("epmap", "endpoints"):
                named = op.attrs.get(attr, ())
                assert isinstance(named, tuple)
                endpoints.update(dict.fromkeys(named))
            trainers.add(int(str(op.attrs.get("trainer_id", 0))))
    if len(trainers) > 1:
        raise FluidError(f"operators of one program name several trainers: {sorted(trainers)}")
    return Distribution(min(trainers, default=0), 0, tuple(endpoints))


def received_names(program: graph.Program) -> Mapping[str, tuple[str, ...]]:
    """Return which values a run receives: endpoint -> names, in the order of the operators."""
    wanted: dict[str, dict[str, None]] = {}
    for op in program.global_block().ops:
        if op.type == "recv":
            epmap, varnames = op.attrs["epmap"], op.attrs["varnames"]
            assert isinstance(epmap, tuple)
            assert isinstance(varnames, tuple)
            for name, endpoint in zip(varnames or op.outputs["Out"], epmap, strict=True):
                wanted.setdefault(endpoint, {})[name] = None
    return {endpoint: tuple(names) for endpoint, names in wanted.items()}


def deadline_s() -> float:
    """Return how long a trainer waits for a silent server, and a server for an absent trainer.

    Raises:
        ConfigError: FLAGS_rpc_deadline, which is in milliseconds, cannot be read.
    """
    text = os.environ.get(_DEADLINE, "").strip()
    try:
        wanted = float(text) if text else _DEADLINE_MS
    except ValueError:
        wanted = math.nan
    if not 0 < wanted < math.inf:
        raise ConfigError(f"environment variable {_DEADLINE}: expected milliseconds above 0, got {text!r}")
    return wanted / 1000.0


def wire_keys(who: str) -> WireKeys | None:
    """Return the keys of the job, or None where the wire is plain; then `who` is warned.

    Raises:
        ConfigError: the wire is to be encrypted, and there is no job key.
    """
    from paddle.pserver.wire.keys import WireKeys  # heavy: ZeroMQ

    environment = JobEnvironment.read()
    if environment.wire == "curve" and not environment.job_key:
        raise ConfigError("PADDLE_WIRE=curve needs the job's key: set PADDLE_JOB_KEY, or PADDLE_WIRE=plain")
    if environment.wire == "plain" or not environment.job_key:
        _log.warning("%s: THE WIRE IS PLAIN: whoever reaches the servers can read and change parameters", who)
        return None
    return WireKeys.of(environment.job_key)
