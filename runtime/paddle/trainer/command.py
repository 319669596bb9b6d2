# SPDX-License-Identifier: Apache-2.0
"""`paddle train`: reads flags and a configuration, and runs the job that they request."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from logging import Logger
from pathlib import Path

from paddle.env import JobEnvironment
from paddle.errors import FlagError
from paddle.flags import parse_arguments, read_flags
from paddle.trainer import pass_directory
from paddle.trainer.config_parser import parse_config
from paddle.trainer.jobs import JOBS
from paddle.trainer.session import Session
from paddle.v2 import settings
from paddle.v2.errors import UsageError
from paddle_node.contract.flags import INIT_FLAGS, PSERVER_FLAGS, TRAIN_FLAGS, Value

# flags that the launcher sets, regardless of the command line
_OF_THE_JOB = frozenset(
    ["nics", "num_gradient_servers", "port", "ports_num", "ports_num_for_sparse", "pservers", "trainer_id"]
)
_FOR_DEVICES = frozenset(
    ["parallel_nn"]
)  # layers have no devices here, so configurations with them run as others do


def run(arguments: Sequence[str], environment: JobEnvironment, log: Logger) -> int:
    """Run `paddle train` with the given arguments; return the exit code.

    Raises:
        PaddleError: a flag, the configuration or the data is invalid, or training failed.
    """
    given = _given(arguments, environment)
    flags = read_flags(TRAIN_FLAGS, given)
    if flags["version"]:
        sys.stdout.write(pass_directory.version_block())
        return 0
    log.info("commandline: paddle train %s", "".join(f"{each} " for each in arguments))
    job = JOBS.get(str(flags["job"]))
    if job is None:
        raise FlagError(f"flag --job: expected {', '.join(JOBS)}, got {flags['job']!r}")
    _check(flags)
    if not flags["config"]:
        raise FlagError("flag --config is missing: give the configuration file, --config=trainer_config.py")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    settings.init(
        **{name: text for name, text in given.items() if name in INIT_FLAGS and name not in _FOR_DEVICES}
    )
    config = parse_config(str(flags["config"]), str(flags["config_args"]))
    session = Session(config, flags, log)
    _load(session, flags)
    with _own_pserver(flags, environment):
        job(session, log, is_local=bool(flags["local"]))
    return 0


def _given(arguments: Sequence[str], environment: JobEnvironment) -> dict[str, object]:
    """Return the flags set by environment and command line; in a launcher's job, they select its servers."""
    given: dict[str, object] = {**environment.init_flags}
    in_job = bool(environment.endpoints)
    if in_job:
        given.setdefault("local", False)
    texts = parse_arguments(TRAIN_FLAGS, arguments)
    given |= {name: text for name, text in texts.items() if not (in_job and name in _OF_THE_JOB)}
    return given


def _check(flags: Mapping[str, Value]) -> None:
    if flags["distribute_test"] and int(flags["num_gradient_servers"]) > 1:
        raise FlagError(
            f"flag --distribute_test: the tests of {flags['num_gradient_servers']} trainers are not "
            "merged; omit the flag and test all data in one process: --job=test "
            "--num_gradient_servers=1"
        )
    for name in ("feat_file", "predict_file"):
        if flags[name] and flags["job"] != "test":
            raise FlagError(f"flag --{name} needs --job=test, got --job={flags['job']}")


@contextlib.contextmanager
def _own_pserver(flags: Mapping[str, Value], environment: JobEnvironment) -> Iterator[None]:
    """With --start_pserver, run a parameter server together with this trainer until no trainer needs it."""
    if not flags["start_pserver"] or flags["local"] or environment.endpoints:
        yield
        return
    given = {name: flags[name] for name in PSERVER_FLAGS if name in _OF_THE_JOB and flags[name] != ""}
    argv = [sys.executable, "-P", "-m", "paddle", "pserver", *(f"--{name}={given[name]}" for name in given)]
    process = subprocess.Popen(argv)
    try:
        yield
        process.send_signal(signal.SIGUSR1)
        process.wait()
    finally:
        process.terminate()
        process.wait()


def _load(session: Session, flags: Mapping[str, Value]) -> None:
    """Load the initial parameters that the flags select."""
    start = int(flags["start_pass"])
    if flags["init_model_path"]:
        session.load(Path(str(flags["init_model_path"])))
    elif start:
        folder = str(flags["save_dir"]) or pass_directory.SAVE_DIR
        before = pass_directory.pass_directory(folder, start - 1)
        if not (before / pass_directory.DONE).is_file():
            raise UsageError(
                f"--start_pass={start} needs {before}, which is missing or incomplete: choose a different "
                "--start_pass, or give --init_model_path"
            )
        session.load(before)
