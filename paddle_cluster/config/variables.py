# SPDX-License-Identifier: Apache-2.0
"""The variables that the user gives to processes: from <package>/.env, HOST_SETTINGS, --env_file and --env.

The last one wins.

Their values may be secret. They leave this module for one place only, the environment of the job's processes;
everything else sees names. RESERVED has the names that belong to the job, and why nobody else may set them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from paddle_cluster.config import env_file
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.errors import ConfError

WORKSPACE_FILE = ".env"
LONGEST = 131_071  # bytes of NAME=VALUE: Linux takes no longer string in an environment
MOST = 1 << 20  # bytes of all: half of what Linux gives arguments and environment with an 8 MiB stack
ALL_GPUS = "all"

_DATA = "PADDLE_DATA_HOME"
_GPUS = "CUDA_VISIBLE_DEVICES"
_PATH = "PYTHONPATH"

_MARKS = """
    PADDLE_JOB_ID PADDLE_JOB_DIR PADDLE_JOB_KEY PADDLE_NODE_ID PADDLE_PROC PADDLE_REPORT_FD PADDLE_RESTART_COUNT
    PADDLE_STACKS_SIGNAL
"""
_RANKS = """
    RANK LOCAL_RANK NODE_RANK WORLD_SIZE LOCAL_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
    OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_NODE_RANK PADDLE_TRAINER_ID
    PADDLE_TRAINERS_NUM PADDLE_TRAINERS TRAINING_ROLE PADDLE_TRAINING_ROLE PADDLE_CLUSTER_TRAIN
"""
_PLACES = """
    MASTER_ADDR MASTER_PORT POD_IP PADDLE_CURRENT_IP PADDLE_CURRENT_ENDPOINT PADDLE_TRAINER_ENDPOINTS
    PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PSERVERS_SPARSE_IP_PORT_LIST PADDLE_PSERVERS PADDLE_PSERVER_IPS
    PADDLE_PORT PADDLE_PSERVER_PORT PADDLE_PSERVER_EPS PSERVERS SERVER_ENDPOINT TRAINERS
"""
_LOGS = "GLOG_logtostderr GLOG_log_dir"

_REASONS = {
    _MARKS: "the launcher finds and authenticates the job's processes by it",
    _RANKS: "it follows from PSERVERS, TRAINERS and --nproc_per_node, and a second value would part the trainers",
    _PLACES: "the launcher sets it from the nodes' addresses, PADDLE_NIC and the free ports",
    _LOGS: "the logs are collected from where it points",
    "PADDLE_CHECKPOINT_DIR": "give --keep_as=NAME, or another variable, for a directory of your own",
    "PADDLE_WIRE": "give --wire instead",
    "PADDLE_PYTHON": "set PYTHON or HOST_SETTINGS in conf.py instead",
}

RESERVED: Mapping[str, str] = MappingProxyType(
    {name: reason for names, reason in _REASONS.items() for name in names.split()}
)
"""Name -> why it is the job's."""

_INIT = "PADDLE_INIT_"


class Variables:
    """Names with values that are shown nowhere."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._values))

    @property
    def rules_gpus(self) -> bool:
        """Whether the user says which GPUs a process sees."""
        return _GPUS in self._values

    @property
    def all_gpus(self) -> bool:
        """Whether every process is to see all GPUs of its machine."""
        return self._values.get(_GPUS) == ALL_GPUS

    @property
    def gpus(self) -> int:
        """How many GPUs a process sees by what the user says."""
        return len(self._values.get(_GPUS, "").replace(",", " ").split())

    def revealed(self, python_path: str) -> dict[str, str]:
        """For the environment of a process, and nothing else.

        Args:
            python_path: what comes before the user's PYTHONPATH.
        """
        values = dict(self._values)
        if self.all_gpus:
            del values[_GPUS]  # unset is how all are seen
        if values.get(_PATH):
            values[_PATH] = f"{python_path}:{values[_PATH]}"
        elif _PATH in values:
            values[_PATH] = python_path
        return values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variables) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Variables({', '.join(f'{name}=***' for name in self.names)})"


def read(
    arguments: Arguments,
    environ: Mapping[str, str],
    is_local: bool,
    own: Mapping[int, Sequence[tuple[str, str, str]]] = MappingProxyType({}),
) -> tuple[Variables, dict[int, Variables]]:
    """Puts the sources together.

    Args:
        is_local: the nodes are this machine, so that where data sets lie holds for them too.
        own: node id -> (name, value, where) of variables for the processes of that node alone.

    Returns:
        The variables for all processes; by node id those for the processes of nodes with variables of their own.

    Raises:
        ConfError: a file or a variable is wrong; the message tells where, and no value.
    """
    beside = (
        [(_DATA, os.path.abspath(os.path.expanduser(environ[_DATA])), _DATA)]
        if is_local and environ.get(_DATA)
        else []
    )
    for path in _workspace_file(arguments):
        beside += env_file.read(path, str(path))
    given = list(_given(arguments, environ))
    return _checked([*beside, *given]), {
        node_id: _checked([*beside, *found, *given]) for node_id, found in own.items() if found
    }


def _checked(found: Sequence[tuple[str, str, str]]) -> Variables:
    """Variables from (name, value, where) each, in their order."""
    values, sizes = dict[str, str](), dict[str, int]()
    for name, value, where in found:
        problem = refusal(name)
        if problem:
            raise ConfError(where, f"{name} cannot be given: {problem}")
        size = len(os.fsencode(f"{name}={value}"))
        if size > LONGEST:
            raise ConfError(where, f"{name}: expected at most {LONGEST} bytes with its name, got {size}")
        values[name], sizes[name] = value, size
        if sum(sizes.values()) > MOST:
            raise ConfError(
                where,
                f"{name}: expected at most {MOST} bytes for all variables together, got more; put data into files",
            )
    return Variables(values)


def files(arguments: Arguments) -> tuple[Path, ...]:
    """The files that are read; they never travel to the nodes."""
    return (*_workspace_file(arguments), *arguments["env_file"])


def _workspace_file(arguments: Arguments) -> tuple[Path, ...]:
    package = arguments["job_dispatch_package"]
    return (package / WORKSPACE_FILE,) if package and (package / WORKSPACE_FILE).is_file() else ()


def _given(arguments: Arguments, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for path in arguments["env_file"]:
        yield from env_file.read(path, str(path))
    for text in arguments["env"]:
        yield _of_option(text, environ)


def _of_option(text: str, environ: Mapping[str, str]) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    if env_file.NAME.fullmatch(name) is None:
        hint = "" if equals else " (is it a value without its NAME=?)"
        got = f"got {name[:80]!r}" if equals else f"got {len(text)} characters that are none"
        raise ConfError(
            "--env", f"expected NAME or NAME=VALUE with a name of letters, digits and _, {got}{hint}"
        )
    if equals:
        return name, value, f"--env {name}"
    if name not in environ:
        raise ConfError(
            f"--env {name}",
            f"{name} is not in your environment; export it first, or give the value: --env {name}=VALUE",
        )
    return name, environ[name], f"--env {name}"


def refusal(name: str) -> str:
    """Why a user may not set this variable, or nothing."""
    if name.startswith(_INIT):
        return f"give the flag --{name.removeprefix(_INIT).lower()}=VALUE instead"
    return RESERVED.get(name, "")
