# SPDX-License-Identifier: Apache-2.0
"""The `paddle` command: `python -m paddle version | pserver | launch | train`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from paddle import glog, version
from paddle.distributed import launch, launch_ps
from paddle.env import JobEnvironment
from paddle.errors import PaddleError
from paddle.flags import PSERVER_FLAGS, describe

_USAGE = """usage: paddle [--help] [<args>]
These are common paddle commands used in various situations:
    train             Start a paddle_trainer
    merge_model       Merge a trained model's parameters and configuration into one file
    pserver           Start a parameter server
    launch            Start one process of a script for each device of this machine
    launch_ps         Start parameter servers and trainers of a script on this machine
    version           Print paddle version
    dump_config       Print a trainer configuration
    make_diagram      Draw a model as a graph

'paddle train --help' 'paddle merge_model --help' 'paddle pserver --help' list the flags of each command."""

_NOT_HERE = "paddle {0}: not available yet; write the job with paddle.v2 and start it as `python train.py`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit code: 0 done, 1 failed or refused."""
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in _COMMANDS:
        return _COMMANDS[command](rest)
    _say(_USAGE)
    return 0 if command == "--help" else 1


def _version(arguments: Sequence[str]) -> int:
    _say(version.describe())
    return 0


def _pserver(arguments: Sequence[str]) -> int:
    if "--help" in arguments or "-help" in arguments:
        _say("usage: paddle pserver [--flag=value ...]\n" + describe(PSERVER_FLAGS))
        return 0
    log = glog.open_log(glog.PSERVER, echo=True)
    try:
        # zmq loads here, so that `paddle version` works without it.
        from paddle.pserver import command

        return command.run(arguments, JobEnvironment.read())
    except PaddleError as error:
        log.error("%s", error)
        return 1
    except KeyboardInterrupt:
        return 0


def _pserver_leave(arguments: Sequence[str]) -> int:
    log = glog.open_log(glog.PSERVER, echo=True)
    try:
        from paddle.pserver import leave

        return leave.run(JobEnvironment.read())
    except PaddleError as error:
        log.error("%s", error)
        return 1


def _absent(command: str) -> Callable[[Sequence[str]], int]:
    def refuse(arguments: Sequence[str]) -> int:
        sys.stderr.write(_NOT_HERE.format(command) + "\n")
        return 1

    return refuse


_COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = MappingProxyType(
    {
        "version": _version,
        "pserver": _pserver,
        "pserver-leave": _pserver_leave,
        "launch": launch.main,
        "launch_ps": launch_ps.main,
        **{name: _absent(name) for name in ("train", "merge_model", "dump_config", "make_diagram")},
    }
)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
