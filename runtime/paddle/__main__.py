# SPDX-License-Identifier: Apache-2.0
"""The `paddle` command, `python -m paddle`: trains configuration files, starts parameter servers and launchers."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from paddle import glog, version
from paddle.command_parser import PROGRAM
from paddle.distributed import launch, launch_ps, launch_v2
from paddle.env import JobEnvironment
from paddle.errors import PaddleError
from paddle.flags import describe
from paddle_node.contract.flags import PSERVER_FLAGS, TRAIN_FLAGS

_USAGE = """usage: paddle [--help] [<args>]
These are common paddle commands used in various situations:
    train             Train or test a configuration file
    merge_model       Put a configuration and its parameters into one file
    pserver           Start a parameter server
    version           Print paddle version
    dump_config       Print the network that a configuration file declares
    make_diagram      Draw the network of a configuration file
    tables            List, export and import growing tables
    serve             Answer lookups of a job's growing tables over HTTP
    pserver-leave     Inform parameter servers that this trainer has left
    launch            Start one process of a script for each device of this machine
    launch_ps         Start parameter servers and trainers of a script on this machine
    launch_v2         Start a parameter server and a trainer of a v2 job on this machine

'paddle train --help' lists the flags of train; pserver, launch, launch_ps and launch_v2 accept --help, too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a `paddle` command line, by default this process's; return 0 on success, 1 on failure or refusal."""
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in _COMMANDS:
        return _COMMANDS[command](rest)
    if command == "usage":
        sys.stderr.write("paddle: the command 'usage' is not available: no usage statistics are collected\n")
        return 1
    _say(_USAGE)
    if command == "--help":
        return 0
    sys.stderr.write(f"paddle: unknown command {command!r}; run a training script with `python train.py`\n")
    return 1


def _version(arguments: Sequence[str]) -> int:
    _say(version.describe())
    return 0


def _pserver(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-help" in arguments:
        _say("usage: paddle pserver [--flag=value ...]\n" + describe(PSERVER_FLAGS))
        return 0
    log = glog.open_log(glog.PSERVER, echo=True)
    try:
        gc.disable()
        # zmq loads here, so that `paddle version` works without it.
        from paddle.pserver import command

        gc.freeze()  # modules last as long as the server: the collector and the exit need not traverse them
        gc.enable()
        return command.run(arguments, JobEnvironment.read())
    except PaddleError as error:
        log.error("%s", error)
        return 1
    except KeyboardInterrupt:
        return 0


def _train(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-help" in arguments:
        _say("usage: paddle train --config=FILE [--flag=value ...]\n" + describe(TRAIN_FLAGS))
        return 0
    environment = JobEnvironment.read()
    is_shown = bool(environment.endpoints) and environment.trainer_id == 0  # on the screen of the job
    log = glog.open_log(glog.TRAINER, environment, echo=is_shown)
    try:
        # numpy loads here, so that `paddle version` works without it.
        from paddle.trainer import command

        return command.run(arguments, environment, log)
    except PaddleError as error:
        log.error("%s", error)
        return 1


def _of_module(name: str) -> Callable[[Sequence[str]], int]:
    """Return a command that runs a module's `main`; the module is imported when the command runs."""

    def run(arguments: Sequence[str]) -> int:
        try:
            done: int = importlib.import_module(name).main(arguments)
        except PaddleError as error:
            sys.stderr.write(f"{PROGRAM}: {error}\n")
            return 1
        except KeyboardInterrupt:
            return 130
        return done

    return run


def _pserver_leave(arguments: Sequence[str]) -> int:
    log = glog.open_log(glog.PSERVER, echo=True)
    try:
        from paddle.pserver import leave

        return leave.run(JobEnvironment.read())
    except PaddleError as error:
        log.error("%s", error)
        return 1


_COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = MappingProxyType(
    {
        "version": _version,
        "train": _train,
        "merge_model": _of_module("paddle.utils.merge_model"),
        "dump_config": _of_module("paddle.utils.dump_config"),
        "make_diagram": _of_module("paddle.utils.make_model_diagram"),
        "pserver": _pserver,
        "tables": _of_module("paddle.pserver.tables_command"),
        "serve": _of_module("paddle.pserver.serve"),
        "pserver-leave": _pserver_leave,
        "launch": launch.main,
        "launch_ps": launch_ps.main,
        "launch_v2": launch_v2.main,
    }
)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
