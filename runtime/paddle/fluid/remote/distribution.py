# SPDX-License-Identifier: Apache-2.0
"""The distribution of a program: its servers, the keys of connections, and deadlines."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from paddle import graph
from paddle.endpoints import listed
from paddle.env import JobEnvironment
from paddle.errors import ConfigError
from paddle.fluid.errors import FluidError
from paddle.report_times import ReportTimes
from paddle_node.contract.classes import dataclass

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
WAITING = "@WAITING_FOR_NORM@"  # variable of a server: 1 between averaging gradients and clipping them
_log = logging.getLogger(__name__)

_DEADLINE = "FLAGS_rpc_deadline"
_DEADLINE_MS = 180_000.0

_LOOK_S = 0.8
_SHORTEST_S, _LONGEST_S = 0.1, 1.0
_AGAIN = 0.1  # of the time waited so far


@dataclass(frozen=True, slots=True)
class Distribution:
    """A trainer's rank, the number of trainers, and the servers.

    Attributes:
        trainer_id: rank of this trainer.
        trainers: number of trainers; 0 means use the servers' number.
        endpoints: "host:port" of all servers, the same list in every trainer.
        is_sync: whether a step waits for all trainers.
    """

    trainer_id: int
    trainers: int
    endpoints: tuple[str, ...]
    is_sync: bool = True


def distribution_of(program: graph.Program) -> Distribution:
    """Return the distribution defined by the operators of block 0, for programs from files or other processes.

    Raises:
        FluidError: the operators name several trainer ids.
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
        raise FluidError(
            f"all send operators of a program must have the same trainer_id, got {sorted(trainers)}"
        )
    return Distribution(min(trainers, default=0), 0, tuple(endpoints))


def serving_operator(program: graph.Program) -> graph.Operator | None:
    """Return the listen_and_serv operator of block 0, or None."""
    return next((op for op in program.global_block().ops if op.type == SERVING), None)


def received_names(program: graph.Program, servers: Container[str]) -> list[dict[str, list[str]]]:
    """Return the names that a run receives from these servers: one dict, endpoint -> names, per send_barrier.

    Values received after several barriers belong to the last one that waits for their server; without barriers there
    is one entry.
    """
    wanted: list[dict[str, list[str]]] = [{}]
    waited: dict[str, int] = {}
    barriers = 0
    for op in program.global_block().ops:
        if op.type == "send_barrier":
            endpoints = op.attrs["endpoints"]
            assert isinstance(endpoints, tuple)
            if not any(endpoint in servers for endpoint in endpoints):
                continue
            waited |= dict.fromkeys(endpoints, barriers)
            wanted += [{}] if barriers else []
            barriers += 1
        elif op.type == "recv":
            epmap, varnames = op.attrs["epmap"], op.attrs["varnames"]
            assert isinstance(epmap, tuple)
            assert isinstance(varnames, tuple)
            for name, endpoint in zip(varnames or op.outputs["Out"], epmap, strict=True):
                if endpoint not in servers:
                    continue
                names = wanted[waited.get(endpoint, 0)].setdefault(endpoint, [])
                if name not in names:
                    names.append(name)
    return wanted


def received_in_place(program: graph.Program) -> dict[tuple[str, str], str]:
    """Return the values that can be written to the scope on arrival: (endpoint, name on the server) -> variable.

    Values arrive before their recv operator, so no other operator may run in between.
    """
    block = program.global_block()
    ops = block.ops
    intact = {endpoint for op in ops if op.type == "recv" for endpoint in _texts(op, "epmap")}
    found: dict[tuple[str, str], str] = {}
    has_begun = False
    for op in ops:
        if op.type == "recv":
            outputs = op.outputs["Out"]
            for key in zip(_texts(op, "epmap"), _texts(op, "varnames") or outputs, outputs, strict=True):
                if key[0] in intact and block.reach(key[2]).persistable:
                    found.setdefault(key[:2], key[2])
        elif op.type == "send_barrier":
            intact.update(_texts(op, "endpoints"))
        elif has_begun:
            intact.clear()
        has_begun |= op.type in ("recv", "send_barrier")
    return found


def _texts(op: graph.Operator, name: str) -> tuple[str, ...]:
    value = op.attrs[name]
    assert isinstance(value, tuple)
    return value


def deadline_s() -> float:
    """Return the time in seconds that a trainer waits for a silent server, or a server for an absent trainer.

    Raises:
        ConfigError: FLAGS_rpc_deadline, which is in milliseconds, cannot be parsed.
    """
    text = os.environ.get(_DEADLINE, "").strip()
    try:
        wanted = float(text) if text else _DEADLINE_MS
    except ValueError:
        wanted = math.nan
    if not 0 < wanted < math.inf:
        raise ConfigError(
            f"environment variable {_DEADLINE}: expected a positive number of milliseconds, got {text!r}"
        )
    return wanted / 1000.0


def wait_for_ports(endpoints: Sequence[str]) -> None:
    """Wait without a deadline until a server listens on each "ip:port"; log the missing servers at intervals.

    Raises:
        ConfigError: an endpoint is not a valid address to connect to.
        KeyboardInterrupt: Ctrl+C was pressed.
    """
    from paddle.pserver.client.reachability import Sight, probe

    times, since, was_logged = ReportTimes(math.inf), time.strftime("%H:%M:%S"), False
    missing = dict.fromkeys(endpoints, "")
    while True:
        for endpoint in list(missing):
            found = probe(endpoint, is_encrypted=False, timeout_s=_LOOK_S)
            missing[endpoint] = found.text
            if found.sight not in (Sight.NOBODY, Sight.CLOSES):
                del missing[endpoint]
        if not missing:
            break
        if times.pass_moment():
            was_logged = True
            for text in dict.fromkeys(missing.values()):
                silent = listed(endpoint for endpoint, seen in missing.items() if seen == text)
                _log.warning(
                    "waiting for pserver %s since %s: %s (%s, without limit; wait_port=False skips this)",
                    silent,
                    since,
                    text,
                    times,
                )
        time.sleep(min(max(_AGAIN * times.waited_s, _SHORTEST_S), _LONGEST_S))
    if was_logged:
        _log.warning("all pservers are now listening, after %.0f s", times.waited_s)


def wire_keys(who: str) -> WireKeys | None:
    """Return the keys of the job, or None if connections are not encrypted; then also log a warning for `who`.

    Raises:
        ConfigError: the wire must be encrypted, but there is no job key.
    """
    from paddle.pserver.wire.keys import WireKeys  # heavy: ZeroMQ

    environment = JobEnvironment.read()
    if environment.wire == "curve" and not environment.job_key:
        raise ConfigError("PADDLE_WIRE=curve needs the job's key: set PADDLE_JOB_KEY, or PADDLE_WIRE=plain")
    if environment.wire == "plain" or not environment.job_key:
        _log.warning(
            "%s: connections are not encrypted: any process that can reach the servers can read and change "
            "parameters; to encrypt them, set the same PADDLE_JOB_KEY for all processes",
            who,
        )
        return None
    return WireKeys.of(environment.job_key)
