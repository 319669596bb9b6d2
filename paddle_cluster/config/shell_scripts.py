# SPDX-License-Identifier: Apache-2.0
"""What the lines of a shell script tell: which launchers it starts, and whether it reads its arguments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddle_cluster.config import entry as entries
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.workspace import options_for
from paddle_node.contract.classes import regex

_STARTS = regex(  # where a command can begin
    r"(?:^|[;&|({]|\b(?:if|then|do|else|while)\s|!)\s*"
    r"(?:(?:exec|time|nohup|command|env|timeout\s+\S+|numactl(?:\s+-\S+)+|\w+=\S*)\s+)*"
    r"(?:\S*/)?(torchrun|accelerate[ -]launch|deepspeed|mpirun|mpiexec(?:\.hydra)?|srun"
    r"|\S*(?:python[\d.]*|PYTHON\b\}?\"?)\s(?:\s*-[uOB]+\s)*\s*-m\s*torch\.distributed\.(?:run|launch))"
    r"\s+(?!(?:-h|-V|--help|--version)\b)([^;&|<>]+)"
)
_COMMENT = regex(r"(?:^|\s)#.*")
_MEETS = regex(  # the launchers of all nodes form one job
    r"rdzv[-_]endpoint|(?=.*(?:(?:node|machine)[-_]rank|\$\{?(?:PADDLE_TRAINER_ID|(?:NODE_)?RANK)\b))"
    r".*(?:master[-_]addr|main_process_ip)"
)
_IS_CHOSEN = regex(r"PET_|RANK|NODE_ID|TRAINER_ID|<<")
_NNODES = regex(r"\$\{?NNODES(?!\w|:?[-+?=])")
_SETS_NNODES = regex(r"\bNNODES=|(?:^|[\s;&])(?:\.|source)\s(?!\S*activate)")
_TORCH = ("torchrun", ".run", ".launch")
_COUNTS = regex(r"nproc|num_gpus|num_processes")
_ONE = regex(r"(?:nproc\w*|nproc-\S+?|num_gpus|num_processes)[= ]1(?:\s|$)")
_MODULE_OR_FILE = regex(r"\S\.py(?:[\s\"']|$)|\s--?m(?:odule)?[\s=]")
_READS_ARGUMENTS = regex(
    r"\$\{?[#!]?[@*\d#]|\bshift\b|\bgetopts?\b|BASH_ARGV|\bset\s+--|\beval\b|<<|\$\{?0|\bfor\s+\w+\s*(?:;|\n|do\b)"
    r"|(?:[\n;&|({]|\b(?:then|do|else)\s)\s*(?:\.|source)\s|BASH_SOURCE|/proc/|\bselect\b|\bps\s"
)


def reads_no_arguments(entry: Entry, package: Path) -> bool:
    """Return whether an entry is a shell script that certainly does not read its arguments."""
    lines = entries.shell_lines(entry, package)
    return bool(lines) and not _READS_ARGUMENTS.search("\n".join(lines))


def started_launchers(entry: Entry, package: Path, nodes: int = 1) -> Iterator[tuple[str, str]]:
    """Yield "FILE:LINE" and a warning for each line of a shell script that starts another launcher in each process.

    A line that connects the launchers of all nodes is correct.
    """
    lines = entries.shell_lines(entry, package)
    whole = "\n".join(lines)
    for number, line in _joined(lines) if "<<" not in whole else ():
        found = _STARTS.search(line)
        if found is None:
            continue
        is_torch = found[1].endswith(_TORCH)
        if not _MEETS.search(line) and (is_torch or not _IS_CHOSEN.search(whole)):
            yield f"{package / entry.path}:{number}", _instead(found[1], found[2], nodes if is_torch else 0)
        elif _NNODES.search(line) and not _SETS_NNODES.search(whole):
            yield f"{package / entry.path}:{number}", "NNODES is not set in a job: write the number of nodes"


def _joined(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the number of each command's first line, and its text without comments."""
    start, text = 0, ""
    for number, line in enumerate(lines, 1):
        start = start if text else number
        text += _COMMENT.sub("", line)
        if text.endswith("\\"):
            text = f"{text[:-1]} "
            continue
        yield start, text
        text = ""


def _instead(command: str, line: str, nodes: int) -> str:
    """Return the warning for a command of another launcher.

    Args:
        nodes: the number of the job's nodes if each launcher forms a job of its own unless options name the others.
    """
    name = command.rpartition("-m")[2].strip()
    alone = nodes > 1 and ("standalone" in line or "nnodes" not in line)
    text = f"starts {name}, " + "so each node trains a model of its own, " * alone
    text += "but the launcher starts the processes itself: "
    try:
        words = shlex.split(line)
    except ValueError:  # an open quote
        words = line.split()
    if not _MODULE_OR_FILE.search(line):
        return f"{text}leave {name} out"
    options = options_for([word for word in words if "$" not in word], max(nodes, 1))[1:]
    if not any(option.startswith("--nproc") for option in options) and _COUNTS.search(line):
        count = "1" if _ONE.search(line) else "N"
        options.insert(1, f"--nproc_per_node={count}")
    return f"{text}give {shlex.join(options)}"
