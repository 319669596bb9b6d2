# SPDX-License-Identifier: Apache-2.0
"""The environment that the launcher gives a process, read once into a frozen value.

Nothing else in the runtime reads what the launcher set; what only a user sets is read where it is used, such as
PADDLE_DATA_HOME. docs/design.md section 4 is the list of names. Every name may be missing: a process started by
hand has none of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from paddle.endpoints import check_endpoints
from paddle.errors import ConfigError
from paddle.flags import parse_bool

GLOG_MAX_LOG_SIZE = 1800  # glog's own default, megabytes
_SERVERS, _SPARSE_SERVERS = "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST"
_INIT_PREFIX = "PADDLE_INIT_"


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """What the launcher said about this process and its job.

    Attributes:
        job_key: secret of the job, 64 hex digits; the keys of the wire are derived from it. Never logged.
        wire: "curve", "plain", or empty when nobody decided.
        role: "TRAINER", "PSERVER" or empty.
        trainer_id: rank of this trainer, or None.
        restart_count: how often this process was started again.
        pserver_patience_s: how long a parameter server may be gone, since somebody starts it again.
        pserver_state_dir: where the server of a program keeps its state for its next process, or empty.
        endpoints: "ip:port" of each server port for dense parameters, node-major, then port.
        sparse_endpoints: the same for sparse parameters.
        init_flags: PADDLE_INIT_* without the prefix, lower-cased, as text.
        pserver_metrics_port: where Prometheus finds a pserver on its own machine, or None.
        report_fd: descriptor of the pipe to the agent, or None.
        glog_to_stderr: None when GLOG_logtostderr is not set.
        glog_log_dir: folder for log files, or None.
        glog_max_log_size: megabytes of a log file before the next is begun.
    """

    job_id: str = ""
    job_dir: Path | None = None
    node_id: int | None = None
    job_key: str | None = field(default=None, repr=False)
    wire: str = ""
    cluster_train: bool = False
    role: str = ""
    pod_ip: str = ""
    current_endpoint: str = ""
    trainer_id: int | None = None
    num_trainers: int | None = None
    restart_count: int = 0
    pserver_patience_s: int = 0
    pserver_state_dir: str = ""
    trainer_endpoints: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    sparse_endpoints: tuple[str, ...] = ()
    init_flags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    pserver_metrics_port: int | None = None
    report_fd: int | None = None
    glog_to_stderr: bool | None = None
    glog_log_dir: Path | None = None
    glog_max_log_size: int = GLOG_MAX_LOG_SIZE

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> JobEnvironment:
        """Read `environ`, by default that of this process.

        Raises:
            ConfigError: a variable holds what cannot be read; the message names it.
        """
        env = os.environ if environ is None else environ
        job_dir, log_dir = env.get("PADDLE_JOB_DIR"), env.get("GLOG_log_dir")
        return cls(
            job_id=env.get("PADDLE_JOB_ID", ""),
            job_dir=Path(job_dir) if job_dir else None,
            node_id=_number(env, "PADDLE_NODE_ID"),
            job_key=env.get("PADDLE_JOB_KEY") or None,
            wire=_word(env, "PADDLE_WIRE", ("", "curve", "plain")),
            cluster_train=bool(_truth(env, "PADDLE_CLUSTER_TRAIN")),
            role=_word(env, "TRAINING_ROLE", ("", "TRAINER", "PSERVER")),
            pod_ip=env.get("POD_IP", ""),
            current_endpoint=env.get("PADDLE_CURRENT_ENDPOINT", ""),
            trainer_id=_number(env, "PADDLE_TRAINER_ID"),
            num_trainers=_number(env, "PADDLE_TRAINERS_NUM"),
            restart_count=_number(env, "PADDLE_RESTART_COUNT") or 0,
            pserver_patience_s=_number(env, "PADDLE_PSERVER_PATIENCE_S") or 0,
            pserver_state_dir=env.get("PADDLE_PSERVER_STATE_DIR", ""),
            trainer_endpoints=_list(env, "PADDLE_TRAINER_ENDPOINTS"),
            endpoints=_list(env, _SERVERS),
            sparse_endpoints=_list(env, _SPARSE_SERVERS),
            init_flags=MappingProxyType(
                {
                    name.removeprefix(_INIT_PREFIX).lower(): text
                    for name, text in env.items()
                    if name.startswith(_INIT_PREFIX)
                }
            ),
            pserver_metrics_port=_number(env, "PADDLE_PSERVER_METRICS_PORT"),
            report_fd=_number(env, "PADDLE_REPORT_FD"),
            glog_to_stderr=_truth(env, "GLOG_logtostderr"),
            glog_log_dir=Path(log_dir) if log_dir else None,
            glog_max_log_size=max(1, _number(env, "GLOG_max_log_size") or GLOG_MAX_LOG_SIZE),
        )

    def check_servers(self) -> None:
        """Check the endpoints of servers, before anybody connects to them.

        Raises:
            ConfigError: one is none; the message names the variable.
        """
        check_endpoints(self.endpoints, f"environment variable {_SERVERS}: endpoint")
        check_endpoints(self.sparse_endpoints, f"environment variable {_SPARSE_SERVERS}: endpoint")


def compute_threads(environ: Mapping[str, str] | None = None) -> int:
    """Return on how many threads to compute: the first number in OMP_NUM_THREADS, else the cores of this process."""
    env = os.environ if environ is None else environ
    asked = env.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0))


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


def _word(env: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    text = env.get(name, "").strip()
    if text not in words:
        expected = " or ".join(word for word in words if word)
        raise ConfigError(f"environment variable {name}: expected {expected}, got {text!r}")
    return text


def _list(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A list; that of thousands of nodes is longer than a variable can be: it is in the file that NAME_FILE names."""
    text, path = env.get(name, ""), env.get(f"{name}_FILE")
    if not text and path:
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"environment variable {name}_FILE: {path!r} cannot be read as a list: {error}"
            ) from None
    return tuple(word.strip() for word in text.split(",") if word.strip())
