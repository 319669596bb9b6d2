# SPDX-License-Identifier: Apache-2.0
"""The environment variables that the launcher sets for a process, read into a frozen record.

No other module of the runtime reads variables of the launcher; variables that only users set are read where they are
used, such as PADDLE_DATA_HOME. docs/design.md section 4 lists the names. All of them are optional: a process started by
hand has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddle.endpoints import check_endpoints
from paddle.errors import ConfigError, did_you_mean
from paddle_node.contract import names
from paddle_node.contract.classes import dataclass, field, fields
from paddle_node.contract.flags import parse_bool

GLOG_MAX_LOG_SIZE = 1800  # glog's own default, megabytes
_SERVERS, _SPARSE_SERVERS = "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST"
_INIT_PREFIX = "PADDLE_INIT_"


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"environment variable {name}: expected a whole number, got {text!r}")
    return int(text)


def _truth(env: Mapping[str, str], name: str) -> bool | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        return parse_bool(text)
    except ValueError as error:
        raise ConfigError(f"environment variable {name}: {error}") from None


def _text(env: Mapping[str, str], name: str) -> str | None:
    return env.get(name) or None


def _path(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def _one_of(*words: str) -> Callable[[Mapping[str, str], str], str | None]:
    def word(env: Mapping[str, str], name: str) -> str | None:
        text = env.get(name, "").strip()
        if text and text not in words:
            hint = did_you_mean(text.upper(), words)
            raise ConfigError(
                f"environment variable {name}: expected {' or '.join(words)}, got {text!r}{hint}"
            )
        return text or None

    return word


def _beginning_with(env: Mapping[str, str], prefix: str) -> Mapping[str, str]:
    found = {name: text for name, text in env.items() if name.startswith(prefix)}
    return MappingProxyType({name.removeprefix(prefix).lower(): text for name, text in found.items()})


def _megabytes(env: Mapping[str, str], name: str) -> int | None:
    return max(1, _number(env, name) or GLOG_MAX_LOG_SIZE)


def _list(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return a list; if thousands of nodes make it too long for a variable, it is in the file that NAME_FILE names."""
    text, path = env.get(name, ""), env.get(f"{name}_FILE")
    if not text and path:
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
            raise ConfigError(
                f"environment variable {name}_FILE: cannot read the list in {path!r}: {why}"
            ) from None
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _variable(
    name: str, parse: Callable[[Mapping[str, str], str], Any], default: Any = None, **more: Any
) -> Any:
    """Declare a field that is read from a variable; its value is `default` if that is missing or empty."""
    return field(default_factory=lambda: default, metadata={"name": name, "parse": parse}, **more)


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """The launcher's variables about this process and its job.

    Attributes:
        job_key: secret of the job, 64 hex digits; the keys of the wire are derived from it. Never logged.
        wire: "curve", "plain", or empty if not set.
        role: "TRAINER", "PSERVER" or empty.
        trainer_id: rank of this trainer, or None.
        restart_count: number of restarts of this process so far.
        pserver_patience_s: seconds for which a parameter server may be unreachable while it restarts.
        pserver_state_dir: folder in which the server of a program saves its state for the process that replaces it, or
            empty.
        endpoints: "ip:port" of each server port for dense parameters, node-major, then port.
        sparse_endpoints: "ip:port" of each server for sparse parameters.
        server_hosts, server_ports: hosts of servers and their ports, one port for all or one for each host; scripts
            of Fluid 1.5 join the two.
        training_role, trainers, pserver_ips, pserver_port, trainer_ips, current_ip: the role, the number of trainers,
            the servers, the trainers of a job without servers, and this node, under the names of Fluid's quick start.
        init_flags: PADDLE_INIT_* without the prefix, lower-cased, as text.
        pserver_metrics_port: port of a pserver's Prometheus metrics on its own machine, or None.
        report_fd: descriptor of the pipe to the agent, or None.
        report_pipe: "device:inode" of that pipe, or empty to accept any file.
        glog_to_stderr: None when GLOG_logtostderr is not set.
        glog_log_dir: folder for log files, or None.
        glog_max_log_size: maximum size of a log file in megabytes.
    """

    job_id: str = _variable(names.JOB_ID, _text, "")
    job_dir: Path | None = _variable(names.JOB_DIR, _path)
    node_id: int | None = _variable(names.NODE_ID, _number)
    job_key: str | None = _variable(names.JOB_KEY, _text, repr=False)
    wire: str = _variable(names.WIRE, _one_of("curve", "plain"), "")
    cluster_train: bool = _variable("PADDLE_CLUSTER_TRAIN", _truth, False)
    role: str = _variable("TRAINING_ROLE", _one_of("TRAINER", "PSERVER"), "")
    pod_ip: str = _variable("POD_IP", _text, "")
    current_endpoint: str = _variable("PADDLE_CURRENT_ENDPOINT", _text, "")
    trainer_id: int | None = _variable("PADDLE_TRAINER_ID", _number)
    num_trainers: int | None = _variable("PADDLE_TRAINERS_NUM", _number)
    restart_count: int = _variable(names.RESTART_COUNT, _number, 0)
    pserver_patience_s: int = _variable("PADDLE_PSERVER_PATIENCE_S", _number, 0)
    pserver_state_dir: str = _variable("PADDLE_PSERVER_STATE_DIR", _text, "")
    trainer_endpoints: tuple[str, ...] = _variable("PADDLE_TRAINER_ENDPOINTS", _list, ())
    endpoints: tuple[str, ...] = _variable(_SERVERS, _list, ())
    sparse_endpoints: tuple[str, ...] = _variable(_SPARSE_SERVERS, _list, ())
    server_hosts: tuple[str, ...] = _variable("PADDLE_PSERVERS", _list, ())
    server_ports: tuple[str, ...] = _variable("PADDLE_PORT", _list, ())
    training_role: str = _variable("PADDLE_TRAINING_ROLE", _one_of("TRAINER", "PSERVER"), "")
    trainers: str = _variable("PADDLE_TRAINERS", _text, "")
    pserver_ips: tuple[str, ...] = _variable("PADDLE_PSERVER_IPS", _list, ())
    pserver_port: str = _variable("PADDLE_PSERVER_PORT", _text, "6174")
    trainer_ips: tuple[str, ...] = _variable("PADDLE_TRAINER_IPS", _list, ())
    current_ip: str = _variable("PADDLE_CURRENT_IP", _text, "")
    init_flags: Mapping[str, str] = _variable(_INIT_PREFIX, _beginning_with, MappingProxyType({}))
    pserver_metrics_port: int | None = _variable("PADDLE_PSERVER_METRICS_PORT", _number)
    report_fd: int | None = _variable(names.REPORT_FD, _number)
    report_pipe: str = _variable(names.REPORT_PIPE, _text, "")
    glog_to_stderr: bool | None = _variable("GLOG_logtostderr", _truth)
    glog_log_dir: Path | None = _variable("GLOG_log_dir", _path)
    glog_max_log_size: int = _variable("GLOG_max_log_size", _megabytes, GLOG_MAX_LOG_SIZE)

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> JobEnvironment:
        """Parse the launcher's variables in `environ`, by default those of this process.

        Raises:
            ConfigError: a variable cannot be parsed; the message names it.
        """
        env = os.environ if environ is None else environ
        found = {each.name: each.metadata["parse"](env, each.metadata["name"]) for each in fields(cls)}
        return cls(**{name: value for name, value in found.items() if value is not None})

    def check_servers(self) -> None:
        """Check the endpoints of servers, before any connection attempt.

        Raises:
            ConfigError: an endpoint is invalid; the message names the variable.
        """
        check_endpoints(self.endpoints, f"environment variable {_SERVERS}: endpoint")
        check_endpoints(self.sparse_endpoints, f"environment variable {_SPARSE_SERVERS}: endpoint")


def compute_threads(environ: Mapping[str, str] | None = None) -> int:
    """Return the number of computing threads: the first number in OMP_NUM_THREADS, or this process's cores."""
    env = os.environ if environ is None else environ
    asked = env.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0))
