# SPDX-License-Identifier: Apache-2.0
"""``paddle.init``: the device, seed, trainer ID and parameter servers of this process.

Arguments take precedence over ``PADDLE_INIT_*``. A script that never calls ``init`` gets the environment's values and
the defaults.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping

from paddle.backend import Device
from paddle.endpoints import endpoint_of, host_of, listed
from paddle.env import JobEnvironment
from paddle.errors import FlagError
from paddle.flags import read_flags
from paddle.graph.operator import script_line, warn_script
from paddle.ops.base.threads import COMPUTE
from paddle.v2.errors import UsageError
from paddle_node.contract.classes import dataclass, replace
from paddle_node.contract.flags import INIT_FLAGS, Value

_log = logging.getLogger(__name__)

_WHERE = ("port", "ports_num", "ports_num_for_sparse", "pservers")
_WITHOUT_EFFECT: Mapping[str, str] = {
    "average_test_period": "tests use the current values, not their averages",
    "diy_beam_search_prob_so": "beam_search computes the probabilities itself",
    "prev_batch_state": "recurrent layers start every batch with zeros",
}
"""Accepted flags without effect -> what happens instead, where the original's results differ."""


@dataclass(frozen=True)
class Settings:
    """The settings of this process, as resolved from the arguments of ``init`` and the environment.

    ``num_trainers`` is the flag num_gradient_servers. Endpoints are "ip:port", node-major, then port. ``ports`` are the
    numbers of dense and sparse ports that each server must have; None if the launcher gave the endpoints.
    """

    use_gpu: bool
    gpu_id: int
    trainer_count: int
    seed: int
    trainer_id: int
    num_trainers: int
    endpoints: tuple[str, ...]
    sparse_endpoints: tuple[str, ...]
    ports: tuple[int, int] | None
    log_period: int
    environment: JobEnvironment

    @property
    def device(self) -> str:
        """The name of the device on which networks are computed."""
        return f"gpu:{self.gpu_id}" if self.use_gpu else "cpu"


def resolve(given: Mapping[str, object], environment: JobEnvironment) -> Settings:
    """Merge arguments, environment and defaults.

    Raises:
        FlagError: a name is unknown or a value cannot be read.
        UsageError: parallel_nn is requested, or IDs and counts contradict each other or the launcher's job.
    """
    if given.get("parallel_nn"):
        raise UsageError("parallel_nn is not supported: a layer cannot be assigned its own device")
    from_env = _read_environment(environment)
    flags = read_flags(INIT_FLAGS, {**environment.init_flags, **given})
    if environment.job_id and environment.endpoints:
        flags = _of_job(flags, from_env, environment)
    for name, instead in _WITHOUT_EFFECT.items():
        if flags[name]:
            _log.warning("flag %s=%s has no effect: %s", name, flags[name], instead)
    trainer_id, trainers = int(flags["trainer_id"]), int(flags["num_gradient_servers"])
    if trainer_id >= trainers:
        source = "" if "trainer_id" in given else " from PADDLE_INIT_TRAINER_ID"
        raise UsageError(
            f"paddle.init {script_line()}: trainer_id: expected 0 to {trainers - 1} with num_gradient_servers="
            f"{trainers}, got {trainer_id}{source}"
        )
    published = environment.endpoints and all(flags[name] == from_env[name] for name in _WHERE)
    if published:
        environment.check_servers()
    port, ports, sparse = (int(flags[name]) for name in ("port", "ports_num", "ports_num_for_sparse"))
    hosts = _hosts(str(flags["pservers"]), port)
    return Settings(
        use_gpu=bool(flags["use_gpu"]),
        gpu_id=int(flags["gpu_id"]),
        trainer_count=int(flags["trainer_count"]),
        seed=int(flags["seed"]) or int(time.time()),
        trainer_id=trainer_id,
        num_trainers=trainers,
        endpoints=environment.endpoints if published else _endpoints(hosts, port, ports),
        sparse_endpoints=environment.sparse_endpoints
        if published
        else _endpoints(hosts, port + ports, sparse),
        ports=None if published else (ports, sparse),
        log_period=int(flags["log_period"]),
        environment=environment,
    )


def init(**arguments: object) -> None:
    """Set up this process. All flags of the original's trainer are accepted; unknown flags are errors.

    Args:
        **arguments: flags such as use_gpu, trainer_count, seed, port, ports_num, ports_num_for_sparse,
            num_gradient_servers, trainer_id, pservers. `paddle_node/contract/flags.py` has the full table.
            trainer_count is the number of threads that share the work of large operators. A batch is not split: costs,
            gradients, batch_norm's statistics and dropout masks are bitwise equal to those of one thread. In the
            original, each thread took a contiguous part of the batch, with separate statistics and masks, and the
            gradients were summed. Without batch_norm and dropout, the results differ only by rounding.

    Raises:
        DeviceError: use_gpu is set, but the GPU does not exist.
    """
    used, given = _state.used, resolve(arguments, JobEnvironment.read())
    if used is not None and replace(used, seed=0) != replace(
        given, seed=int(str(arguments.get("seed") or 0))
    ):
        warn_script(
            "paddle.init was called after the network was trained or its parameters were created with other settings: "
            "call it first"
        )
    _state.settings, _state.used = given, None
    Device(_state.settings.device).check()
    if _state.settings.trainer_count > 1:  # scripts pass 1 without meaning a number of threads
        COMPUTE.resize(_state.settings.trainer_count)


def current() -> Settings:
    """Return the settings of the last ``init`` call or, without one, the environment's settings and the defaults."""
    if _state.settings is None:
        _state.settings = _state.used = resolve({}, JobEnvironment.read())
    return _state.settings


class _State:
    """The settings that `init` resolved: one set per process, since scripts call `init` and pass nothing on."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.used: Settings | None = None  # the defaults, if the script used them without calling `init`


_state = _State()


def _of_job(
    flags: Mapping[str, Value], from_env: Mapping[str, Value], environment: JobEnvironment
) -> dict[str, Value]:
    """Return the flags, with the job's servers where the script gives the defaults of `init` for other ones.

    Raises:
        UsageError: arguments contradict the job.
    """
    decided = [
        name for name in ("num_gradient_servers", "trainer_id", *_WHERE) if name in environment.init_flags
    ]
    job = {name: from_env[name] for name in decided}
    other = [name for name in decided if _comparable(flags[name]) != _comparable(job[name])]
    names = ", ".join(f"{name}=" for name in other)
    values = ", ".join(f"{name} is {_short(job[name])}, not {flags[name]}" for name in other)
    if any(name not in _WHERE or flags[name] != INIT_FLAGS[name].default for name in other):
        raise UsageError(
            f"paddle.init {script_line()}: leave out {names}, which the job sets: its {values}. To divide the data, "
            "read PADDLE_INIT_TRAINER_ID and PADDLE_INIT_NUM_GRADIENT_SERVERS from os.environ"
        )
    if other:
        warn_script(f"paddle.init: leave out {names}. The job's values are used: its {values}")
    return {**flags, **job}


def _comparable(value: Value) -> Value:
    return value.replace(" ", "") if isinstance(value, str) else value


def _short(value: Value) -> str:
    return listed(str(value).split(","))


def _read_environment(environment: JobEnvironment) -> dict[str, Value]:
    try:
        return read_flags(INIT_FLAGS, environment.init_flags)
    except FlagError as error:
        names = [name for name in environment.init_flags if re.search(rf"\b{re.escape(name)}\b", str(error))]
        variables = ", ".join(f"PADDLE_INIT_{name.upper()}" for name in names)
        raise FlagError(f"environment variable {variables}: {error}") from error


def _endpoints(hosts: list[str], port: int, count: int) -> tuple[str, ...]:
    return tuple(endpoint_of(host, port + offset) for host in hosts for offset in range(count))


def _hosts(text: str, port: int) -> list[str]:
    ports = f"port=..., which applies to all servers (now {port})"
    given = [each.strip() for each in text.split(",") if each.strip()]
    return [host_of(each, "flag --pservers:", ports=ports) for each in given]
