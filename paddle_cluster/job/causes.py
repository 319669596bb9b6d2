# SPDX-License-Identifier: Apache-2.0
"""Finds the failure that caused all other failures (root cause analysis). All functions are pure.

When one process dies or freezes, other processes also fail, because their connections to it break or time out. Failures
that arrive together are therefore ordered by cause first, and by arrival second. A process whose last output reports a
broken connection to a failed peer is a secondary failure (echo). A process that ends after the launcher began to stop
the job was stopped by the launcher, unless its last output is that of a consequence or of the cause.

When one process of a synchronous job hangs, no process makes progress, and any of them can be reported first. A process
whose stacks show that it waits for its peers is an echo of a process that does not wait.

A rank of a collective job that exits early with code 0 is not a failure by itself. It is the cause if all failed ranks
waited for it: their last output names its rank or address, or they hung.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from paddle_cluster.nodes.failure import Failure, FailureKind
from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import dataclass, regex

_LAST_LINES = 12
_LINE_END = 500  # characters of a line that are searched; hundreds of processes may fail simultaneously
_QUOTE = 160
_BROKEN = regex(
    r"connection ?(was )?(reset|refused|aborted|closed|lost|broken?)|ConnectionError|broken ?pipe|timed? ?out|"
    r"did not answer|PserverLost|gave up waiting|no route to host|host unreachable|remote process exited|"
    r"peer (was )?closed|socket closed|endpoint is not connected|failed to (recv|send), got|"
    r"NCCL.*(remote|unhandled system) error|"
    r"left before it initialized the parameters|has left after \d+ operations|rank \d+ \(\S+\) was lost",
    re.IGNORECASE,
)
_NO_TRACEBACK = regex(r"(?:SyntaxError|IndentationError|TabError|[\w.-]+: error): ")
_TRACEBACK = "Traceback (most recent call last)"
_ENDED = regex(r"Exception in thread |Process \S+:$")
_SHELL_ERROR = regex(
    r"\S*python[\d.]*: can't open file |\S+: line (\d+): .*: (?:command not found|No such file or directory)$"
)
_EXPECTED = regex(r"\|\||&&|\bif\b|\bwhile\b|\bfor\b|!")
_JOB_DIR = regex(r"/\S*/JOB\d{14}-\w+/")
_MOST_NAMED = 8
_MOST_AFTER = 2  # lines
_THROWN = ("what():", "terminate called without")  # of an uncaught C++ exception, or a thread at exit
_RANK_PREFIX = regex(r"\[rank\d+\]: ?")  # PyTorch's, once a process group exists
_NUMBER = regex(r"0x[0-9a-f]+|\d+")  # ranks, ports, addresses
_MAIN_THREAD = regex(r"^Current thread 0x.*\n((?:  .*(?:\n|\Z))*)", re.MULTILINE)
_PEERS = regex(r"/paddle/(pserver/(client|transports|reader)|collective)/|/torch/distributed/|/mpi4py/")
_FRAME = regex(r'^  File "(.*)", line (\d+) in (.*)', re.MULTILINE)
_LIBRARY = regex(r"/lib(?:64)?/python\d|/(?:site|dist)-packages/|/paddle/\w+/|^<")
_RANK = regex(r"\brank (\d+) (?:\(\S+\) )?(?:was lost|has left)")
_TOGETHER_S = 1.0  # between reports from different nodes
_ADDRESS = regex(
    r"\[?(?:::ffff:)?((?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F]*:[0-9a-fA-F:]+:[0-9a-fA-F]+)\]?(?::(\d{1,5}))?"
)


@dataclass(frozen=True)
class SecondaryFailure:
    """A failure that was caused by another failure, and the reason for this conclusion.

    Attributes:
        why: the reason, as in "connection to 10.0.0.7:7164 lost".
    """

    failure: Failure
    why: str


@dataclass(frozen=True)
class Conclusion:
    """The first cause of a failed job, and its consequences.

    Attributes:
        same: failures with the same last output as the cause, except for numbers.
        echoes: failures that followed from the cause.
        others: independent failures.
        ended: processes that ended because the job was stopped.
    """

    cause: Failure
    same: tuple[Failure, ...]
    secondary: tuple[SecondaryFailure, ...]
    others: tuple[Failure, ...]
    ended: tuple[Failure, ...]


def first_cause(failures: Sequence[Failure]) -> Failure:
    """Return the failure that best explains all other failures, given one or more failures in order of arrival."""
    early = [failure for failure in failures if not failure.late] or list(failures)
    return min(early, key=_rank)


def judge(failures: Sequence[Failure]) -> Conclusion:
    """Separate the first cause from its consequences and from independent failures; see `first_cause`."""
    cause = first_cause(failures)
    same, secondary, others, ended = [], [], [], []
    failed: dict[str, list[Failure]] = {}
    for failure in failures:
        if not failure.late and not broken_line(failure):
            for address in failure.addresses:
                failed.setdefault(address, []).append(failure)
    for failure in failures:
        why = _why_secondary(failure, cause, failed)
        if failure is cause:
            continue
        if _has_same_end(failure, cause):
            same.append(failure)
        elif why:
            secondary.append(SecondaryFailure(failure, why))
        elif failure.late:
            ended.append(failure)
        else:
            others.append(failure)
    return Conclusion(cause, tuple(same), tuple(secondary), tuple(others), tuple(ended))


def broken_line(failure: Failure) -> str:
    """Return the last of a process's final lines that reports a broken connection, or ""."""
    if failure.kind is not FailureKind.EXIT or failure.signal:
        return ""
    for line in reversed(failure.tail[-_LAST_LINES:]):
        if _BROKEN.search(line[-_LINE_END:]):
            return line.strip()
    return ""


def left_early(failures: Sequence[Failure], ended: Sequence[Failure]) -> list[Failure]:
    """Return the ranks that exited with code 0 while all failed processes were waiting for them, ordered by exit time.

    Args:
        failures: one failure or more.
        ended: trainers that ended with exit code 0, as failures of the kind LEFT.
    """
    early = [failure for failure in failures if not failure.late]
    ranks, addresses, is_any = set[int](), set[str](), False
    for failure in early:
        line = broken_line(failure)
        if not (line or waits(failure)):
            return []
        rank, named = _RANK.search(line), {found[1] for found in _ADDRESS.finditer(line)}
        if rank is not None:
            ranks.add(int(rank[1]))
        elif named:
            addresses |= named
        else:  # a connection between ranks, not to a database, for example
            is_any = is_any or not line or any(map(_PEERS.search, failure.tail))
    last = min((failure.at for failure in early), default=0.0) + _TOGETHER_S
    found = [
        one for one in ended if one.at <= last and (is_any or one.rank in ranks or one.addresses & addresses)
    ]
    return sorted(found, key=lambda one: one.at)


def waits_for_peers(stacks: str) -> bool:
    """Return whether stacks show that the main thread of a process was waiting for servers or other ranks."""
    found = _MAIN_THREAD.search(stacks)  # a process reports its own stacks before those of its children
    return found is not None and _PEERS.search(found[1]) is not None


def place(stacks: str, job_id: str) -> str:
    """Return the innermost line of the user's code, such as "train.py:8 in main, which waits for its peers"."""
    found = _MAIN_THREAD.search(stacks)
    frames = _FRAME.findall(found[1]) if found is not None else []
    if not frames:
        return stacks.partition("\n")[0]
    own = next((at for at, one in enumerate(frames) if not _LIBRARY.search(one[0])), 0)
    path, line, function = frames[own]
    call = next((one[2] for one in reversed(frames[:own]) if one[2] != "wrapper"), "")
    peers = f", which waits for its peers in {call}()" if call and waits_for_peers(stacks) else ""
    return f"{path.rpartition(f'/{job_id}/')[2]}:{line} in {function}{peers}"


def waits(failure: Failure) -> bool:
    """Return whether a process's stacks show that it hung because of another process."""
    return failure.kind is FailureKind.HUNG and waits_for_peers(failure.stacks)


def last_error(failure: Failure) -> str:
    """Return the last line of the Python traceback at the end of its log, or "".

    Syntax errors of the script, errors of argparse and uncaught C++ exceptions have no traceback.
    """
    tail = [line[found.end() :] if (found := _RANK_PREFIX.match(line)) else line for line in failure.tail]
    if _TRACEBACK not in "".join(tail):
        thrown = (
            line.strip().removeprefix("what():").strip() for line in tail if line.strip().startswith(_THROWN)
        )
        return next(thrown, next((line for line in tail[-1:] if _NO_TRACEBACK.match(line)), ""))
    return last_traceback(tail)


def last_traceback(lines: Sequence[str]) -> str:
    """Return the error of the last Python traceback in some lines, or "" without one."""
    begun = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    after = lines[begun[-1] + 1 :] if begun else []
    return next((line for line in after if line and not line[0].isspace()), "")


def hidden_errors(ended: Iterable[tuple[str, Sequence[str]]], script: Sequence[str] = ()) -> list[str]:
    """Return a warning for each error at the end of the logs of processes that exited with code 0.

    Args:
        ended: the name and the last lines of each of these processes.
        script: the lines of the shell script that they run, if it is one.
    """
    found: dict[str, list[str]] = {}
    in_shell: dict[str, list[str]] = {}
    for name, lines in ended:
        for line in (line for line in lines if _fails(line, script)):
            in_shell.setdefault(_JOB_DIR.sub("", line), []).append(name)
        ignored = any(
            line.startswith("Exception ignored in") for line in lines
        )  # by the interpreter at its exit
        if not ignored and (error := last_traceback(lines)) and _is_final(error, lines):
            found.setdefault(error, []).append(name)
    return [
        f"WARNING: {some(names, _MOST_NAMED)} exited with code 0, but its log ends with an error: {error}. An error "
        "in a thread or a child process, or one that a try statement catches, does not set the exit code: raise it, "
        "or end with sys.exit(1); in a shell script, begin with `set -eo pipefail`"
        for error, names in found.items()
    ] + [
        f"WARNING: {some(names, _MOST_NAMED)} exited with code 0, but a command failed: {error}. Begin the shell "
        "script with `set -e`, which ends it at the first error"
        for error, names in in_shell.items()
    ]


def _fails(line: str, script: Sequence[str]) -> bool:
    """Return whether a line of a log is the error of a shell script's command, whose failure the script expects not."""
    found = _SHELL_ERROR.match(line)
    if found is None:
        return False
    name = line.rpartition("/")[2].partition("'")[0]  # of Python's message, which has no number
    lines = script[int(found[1]) - 1 : int(found[1])] if found[1] else [one for one in script if name in one]
    return bool(lines) and not any(map(_EXPECTED.search, lines))


def _is_final(error: str, lines: Sequence[str]) -> bool:
    """Return whether a thread or process ended with an error, or almost no output follows it, as after a retry."""
    begun = max(i for i, line in enumerate(lines) if _TRACEBACK in line)
    if begun and _ENDED.match(lines[begun - 1]):
        return True
    return sum(bool(line.strip()) for line in lines[lines.index(error, begun) + 1 :]) <= _MOST_AFTER


def _rank(failure: Failure) -> int:
    if failure.kind is FailureKind.NODE_LOST:
        return 0
    if failure.kind in (FailureKind.STALLED, FailureKind.CUT_OFF):
        return 4
    if failure.kind is FailureKind.FROZEN:
        return 1
    if failure.role != "trainer":
        return 2
    if failure.kind is FailureKind.HUNG:
        return 7 if waits(failure) else 5
    if failure.kind is FailureKind.LEFT:
        return 5
    return 6 if broken_line(failure) else 3


def _why_secondary(failure: Failure, cause: Failure, failed: Mapping[str, Sequence[Failure]]) -> str:
    """Return why a failure follows from another, or "".

    Args:
        failed: independent failures by address.
    """
    if cause.kind is FailureKind.NODE_LOST and failure.node_id == cause.node_id and failure.process:
        return "it ran on the lost node"
    if waits(failure):
        return "it waits for its peers"
    line = broken_line(failure)
    if not line:
        return ""
    named = [found for found in _ADDRESS.finditer(line) if found[1] not in failure.addresses]
    named = named or list(_ADDRESS.finditer(line))
    if not named:
        return _quoted(line)
    address = next((found for found in named if found[1] in failed), named[0])
    if failed and address[1] not in failed:
        return ""
    owners = [one for one in failed.get(address[1], ()) if one.kind is not FailureKind.CUT_OFF]
    owner = f" ({owners[0].name()})" if len(owners) == 1 else ""
    return f"connection to {address[0]}{owner} lost"


def _has_same_end(failure: Failure, cause: Failure) -> bool:
    if failure.kind is not FailureKind.EXIT or (failure.code, failure.signal) != (cause.code, cause.signal):
        return False
    error = last_error(cause)
    return bool(error) and _NUMBER.sub("", last_error(failure)) == _NUMBER.sub("", error)


def _quoted(line: str) -> str:
    return line if len(line) <= _QUOTE else line[:_QUOTE] + " ..."
