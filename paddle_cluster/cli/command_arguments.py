# SPDX-License-Identifier: Apache-2.0
"""Parses the arguments of a command: the options that its usage text lists, and at most one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle_cluster.config.arguments import OF_JOBS
from paddle_cluster.config.values import nearest
from paddle_cluster.errors import UsageError
from paddle_cluster.system.installation import PROGRAM
from paddle_node.contract.classes import dataclass, field, regex

_OPTION = regex(r"(?<![\w-])(--[a-z]\w*=?|-[a-z]\b(?: (?=[A-Z]))?)")
_PROCESS = regex(r"(?:trainer|pserver)-\d+")
_SYNONYMS = {
    "--tail": "--lines",
    "-n": "--lines",
    "--rank": "--proc",
    "--host": "--hosts",
    "--format": "--json",
    "-o": "--json",
    "-a": "--all",
    "-9": "--force",
    "--now": "--force",
    "--kill": "--force",
    "-F": "-f",
}
"""Other programs' names of options -> the names here."""
_ADVICE = {
    "clean": (
        "all a force f yes y",
        "it removes the directories of all ended jobs, without asking",
    ),
    "status": ("watch w follow f", f"`{PROGRAM} attach` follows a job, `{PROGRAM} dashboard` all jobs"),
    "checkpoints": ("delete rm clean", "to delete a checkpoint, remove its directory on the nodes"),
    "dashboard": (
        "host bind address",
        "it listens on 127.0.0.1; from elsewhere: ssh -L PORT:127.0.0.1:PORT",
    ),
}
"""Command -> options that other programs have, and how to do the same here."""
_OF_NODES = ("--hosts", "--hostfile", "--conf")
_JOB = ("--job", "--job_id", "--id", "--name")


@dataclass(frozen=True)
class CommandArguments:
    """The parsed arguments of a command.

    Attributes:
        job: the argument that is not an option, or None.
        values: the options with a value; if repeated, the last value.
        switches: the options without a value.
    """

    job: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()


def options(usage: str) -> dict[str, bool]:
    """Return the options in the first paragraph of a usage text, such as "--conf" -> whether it takes a value."""
    return {one.rstrip("= "): one[-1] in "= " for one in _OPTION.findall(usage.partition("\n\n")[0])}


def read(command: str, argv: Sequence[str], usage: str) -> CommandArguments:
    """Parse the arguments of a command.

    Raises:
        UsageError: an unknown option, an option without its value, or more than one job.
    """
    known = options(usage)
    jobs: list[str] = []
    given: dict[str, str] = {}
    on: set[str] = set()
    rest = list(argv)
    while rest:
        token = rest.pop(0)
        name, equals, value = token.partition("=")
        if known.get(name):
            if not equals and rest:
                value = rest.pop(0)
            if not value:
                raise UsageError(f"{command}: {name} needs a value")
            given[name] = value
        elif token in known and not known[token]:
            on.add(token)
        elif name in OF_JOBS and "[JOB]" in usage and (value or rest):
            jobs.append(value or rest.pop(0))  # answered with the job of this directory
        elif name in OF_JOBS:
            raise UsageError(
                f"{command}: unknown option {name}. Give the job's id as `{PROGRAM} status` shows it, or omit it"
            )
        elif name in _JOB and "[JOB]" in usage:
            raise UsageError(
                f"{command}: unknown option {name}; give the job alone: {PROGRAM} {command} {value or 'JOB'}"
            )
        elif token.startswith("-"):
            near = _SYNONYMS.get(name) if _SYNONYMS.get(name) in known else nearest(name, tuple(known))
            if near and name in _SYNONYMS and known[near]:
                following = rest[0] if rest and not rest[0].startswith("-") else "..."
                near += "=" + "trainer-" * (name == "--rank") + (value or following)
            hint = f"did you mean {near}?" if near else f"its options are {', '.join(known)}"
            names, advice = _ADVICE.get(command, ("", ""))
            hint += f"; {advice}" * (name.lstrip("-") in names.split())
            raise UsageError(f"{command}: unknown option {token!r}; {hint}")
        else:
            jobs.append(token)
    alone = next((name for name in _OF_NODES if name in given), "") if "--nodes" in known.keys() - on else ""
    if alone and (command, alone) != ("stop", "--conf"):  # which stop queries for a job unknown here
        raise UsageError(f"{command}: {alone} has no effect without --nodes, which queries these nodes")
    if len(jobs) > 1 and "--proc" in known and _PROCESS.fullmatch(jobs[1]):
        raise UsageError(f"{jobs[1]} is a process: give {PROGRAM} {command} {jobs[0]} --proc={jobs[1]}")
    if len(jobs) > 1:
        each = "; ".join(f"{PROGRAM} {command} {job}" for job in jobs)
        raise UsageError(f"{command} takes a single job, got {' '.join(jobs)}; run it for each one: {each}")
    return CommandArguments(jobs[0] if jobs else None, given, frozenset(on))


def whole_number(command: str, given: CommandArguments, name: str, default: int) -> int:
    """Return an option's value as a non-negative integer.

    Raises:
        UsageError: the value is not a non-negative integer.
    """
    text = given.values.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{command}: {name}: expected a whole number, got {text!r}")
    return int(text)
