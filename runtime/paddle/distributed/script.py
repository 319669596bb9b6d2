# SPDX-License-Identifier: Apache-2.0
"""The code that all launchers share: flags, environment, logs, and starting processes."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paddle.distributed import keeper
from paddle.distributed.keeper import Worker, dying_with
from paddle.distributed.nodes import Nodes
from paddle.errors import ConfigError
from paddle_node.contract import names
from paddle_node.contract.flags import parse_bool

Plan = Callable[[argparse.Namespace, Mapping[str, str]], list[Worker]]
_USAGE = 2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NOT_HANDED_ON = (
    names.REPORT_FD,
    names.REPORT_PIPE,
    names.STACKS_SIGNAL,
)  # an agent gives them to one process
_KEY_BYTES = 32
_NO_FLAGS = ("training_script", "training_script_args")


def launch(module: str, flags: argparse.ArgumentParser, plan: Plan, arguments: Sequence[str] | None) -> int:
    """Start the processes of a launcher and wait for them; return the exit code, or 2 if nothing was started.

    Args:
        module: the launcher's name for `python -m`.
        flags: the launcher's parser.
        plan: returns the processes to start, given the parsed flags and the environment.
        arguments: the command line; None takes that of this process.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    given = parse(flags, words)
    try:
        workers = plan(given, os.environ)
    except ConfigError as error:
        keeper.say(str(error))
        return _USAGE
    if given.parent is not None:
        dying_with(given.parent)()
    if warning := _misplaced(module, given, words):
        keeper.say(f"WARNING: {warning}")
    return keeper.run(workers)


def parser(module: str, summary: str) -> argparse.ArgumentParser:
    """Return a launcher's argument parser, which accepts no abbreviated flags.

    Its errors advise to put unknown flags after the script's name.
    """
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=summary, allow_abbrev=False, add_help=True
    )


def add_nodes(flags: argparse.ArgumentParser) -> None:
    """Add the flags that name the nodes to a launcher's parser."""
    flags.add_argument(
        "--cluster_node_ips", metavar="IP,IP", help="addresses of all nodes (PADDLE_TRAINERS, or this node)"
    )
    flags.add_argument("--node_ip", metavar="IP", help="the address of this node (POD_IP)")


def add_common(flags: argparse.ArgumentParser, log_dir: str) -> None:
    """Add the flags that all launchers accept to a parser; call this last.

    Args:
        log_dir: the default of --log_dir.
    """
    flags.add_argument(
        "--print_config", type=_truth, default=True, metavar="BOOL", help="print what is started (True)"
    )
    flags.add_argument(
        "--log_dir",
        default=log_dir,
        metavar="DIR",
        help=f"directory of logs; empty: print to the screen ({log_dir})",
    )
    flags.add_argument("--parent", type=_pid, metavar="PID", help="exit when the parent process exits")
    flags.add_argument("training_script", help="the script to run")
    flags.add_argument("training_script_args", nargs=argparse.REMAINDER, help="arguments of the script")


def parse(flags: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse a launcher's command line; arguments after the script's name are passed on unchanged.

    Some versions of argparse would drop a `--` from the script's arguments.
    """
    given = flags.parse_args(words)
    left: Sequence[str] = given.training_script_args
    for at, word in enumerate(words):
        after = list(words[at + 1 :])
        if word == given.training_script and [each for each in after if each != "--"] == [
            each for each in left if each != "--"
        ]:
            given.training_script_args = after
            break
    return given


def argv(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the command of every process. Raises ConfigError if the script does not exist."""
    script: str = given.training_script
    if not Path(script).is_file():
        raise ConfigError(
            f"no such script: {script}; put the launcher's flags before it and the script's flags after it"
        )
    arguments: Sequence[str] = given.training_script_args
    return (sys.executable, "-u", script, *arguments)


def environment(environ: Mapping[str, str], nodes: Nodes, processes: int) -> dict[str, str]:
    """Return the environment that this node's processes share: the user's, with the job's variables.

    Args:
        processes: the number of processes, which share the cores.
    """
    env = {name: text for name, text in environ.items() if name not in _NOT_HANDED_ON}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name in _THREADS:
        env.setdefault(name, str(max(1, cores // processes)))
    env.setdefault(
        "OPENBLAS_THREAD_TIMEOUT", "14"
    )  # idle threads sleep after 2^14 cycles; the default is 2^26
    if len(nodes.addresses) == 1:  # several launchers do not have each other's keys
        env.setdefault(names.JOB_KEY, secrets.token_hex(_KEY_BYTES))
    return env | {"POD_IP": nodes.own, "PADDLE_CURRENT_IP": nodes.own}


def log_folder(text: str) -> Path | None:
    """Return the log folder, which is created if missing; None if output goes to the terminal.

    Raises:
        ConfigError: the folder cannot be created.
    """
    if not text:
        return None
    folder = Path(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--log_dir: cannot create {folder}: {error.strerror}") from error
    return folder


def _pid(text: str) -> int:
    """Parse --parent_pid. Only the parent's ID is accepted, because the exit of other processes cannot be detected."""
    if text != str(os.getppid()):
        raise argparse.ArgumentTypeError(
            f"expected the PID of the parent process, {os.getppid()}, got {text!r}; the original parent may have exited"
        )
    return int(text)


def _truth(text: str) -> bool:
    try:
        return parse_bool(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _misplaced(module: str, given: argparse.Namespace, arguments: Sequence[str]) -> str:
    """Return a warning about launcher flags after the script's name; empty if there are none.

    The script may have a flag of the same name, so the flags stay the script's. There is no warning if a flag is given
    in both places, or if `--` precedes the script's flags.
    """
    own: list[str] = given.training_script_args
    before = list(arguments[: len(arguments) - len(own) - 1])
    names = {f"--{name}" for name in vars(given) if name not in _NO_FLAGS}
    wanted = names - {word.partition("=")[0] for word in before}
    flags, rest = _split(own, wanted)
    if not flags:
        return ""
    moved = shlex.join([*before, *flags, given.training_script, *rest])
    return (
        f"{shlex.join(flags)} comes after {given.training_script}, so it is passed to the "
        f"script and the launcher ignores it. If it is for the launcher: python -m {module} "
        f"{moved}. If it is for the script, put -- before the script's flags, or set the "
        "launcher's flag of that name as well, to silence this message"
    )


def _split(words: Sequence[str], wanted: set[str]) -> tuple[list[str], list[str]]:
    """Split arguments into the flags with these names (with their values) and all others.

    Nothing after `--` is a flag.
    """
    flags: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left and left[0] != "--":
        word = left.pop(0)
        if word.partition("=")[0] not in wanted:
            rest.append(word)
            continue
        flags.append(word)
        if "=" not in word and left and not left[0].startswith("--"):
            flags.append(left.pop(0))
    return flags, rest + left
