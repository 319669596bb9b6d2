# SPDX-License-Identifier: Apache-2.0
"""Reports why a job failed: on the screen, and as `failure.json` next to the logs.

The report contains the first cause, the end of its log, and the failures that followed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddle_cluster.config.entry import Entry
from paddle_cluster.config.shell_scripts import started_launchers
from paddle_cluster.errors import ExitCode
from paddle_cluster.job.causes import Conclusion, broken_line, last_error
from paddle_cluster.job.remedies import REMEDIES
from paddle_cluster.job.shell_remedies import SHELL_REMEDIES
from paddle_cluster.nodes.failure import Failure, FailureKind, Incident
from paddle_cluster.system.installation import RUNTIME_DIR
from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import regex

SCHEMA_VERSION = 1
NAME = "failure.json"

TAIL_LINES = 20
LINE_LIMIT = 400
ECHOES = 8
NAMES = 3
LAST_WORDS = 200
_FRAME = regex(r'(?:\[rank\d+\]: ?)?  File "([^"]+)", line (\d+)')  # with PyTorch's prefix
_RANK_OF_NODE = regex(r"init_process_group\(.*\brank ?= ?[^,]*LOCAL_RANK")
_INDENTED = regex(r"(?:\[rank\d+\]: ?)?    ")
_FILE = regex(r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?:\./)?([^/'][^']*)'")
_MODULE = regex(r"^ModuleNotFoundError: No module named '(\w+)'")
_RELATIVE = "ImportError: attempted relative import "
_IN_USE = "ddress already in use"
_COLLECTIVE = regex(r"/torch/distributed/|/mpi4py/")
_CLOSED = regex(r"Connection closed by peer|Connection reset by peer")
_TOGETHER_S = 1.0  # between reports from different nodes
_NO_PROGRAM = "could not be started: [Errno 2]"
_LIBRARY = regex(r"/(?:site|dist)-packages/|/\.paddle/runtime/|/lib/python3\.\d+/|^<frozen ")


def write(
    log_dir: Path,
    *,
    job_id: str,
    code: ExitCode,
    conclusion: Conclusion,
    incidents: Sequence[Incident],
    stacks: Mapping[str, str],
    advice: str = "",
) -> str:
    """Write failure.json; return an error message, or "".

    Args:
        incidents: restarts and losses that the job survived.
        stacks: process name -> its stacks at the time when a different process hung.
        advice: what to do, which takes precedence over general advice.
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "job_id": job_id,
        "exit_code": int(code),
        "first_cause": {
            **_failure(conclusion.cause),
            "log_end": list(conclusion.cause.tail),
            "stacks": conclusion.cause.stacks,
            "advice": advice or remedy(conclusion.cause),
        },
        "same": [_failure(failure) for failure in conclusion.same],
        "failed_too": [{**_failure(failure), "log_end": list(failure.tail)} for failure in conclusion.others],
        "echoes": [
            {**_failure(secondary.failure), "why": secondary.why} for secondary in conclusion.secondary
        ],
        "ended_by_us": [_failure(failure) for failure in conclusion.ended],
        "incidents": [{"time": _time(each.at), "kind": each.kind, "text": each.text} for each in incidents],
        "stacks": dict(stacks),
    }
    path = log_dir / NAME
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{NAME}.{os.getpid()}")
        hidden.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        hidden.replace(path)
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return ""


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "kind": str(failure.kind),
        "node": failure.node,
        "node_id": failure.node_id,
        "role": failure.role,
        "rank": failure.rank,
        "process": failure.process,
        "what": failure.what,
        "code": failure.code,
        "signal": failure.signal,
        "time": _time(failure.at),
        "error": last_error(failure),
        "log": failure.log,
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def headline(cause: Failure) -> str:
    """Return one line about the first failure: the process, its node, how it failed, and its last error."""
    return ": ".join(filter(None, (cause.headline(), last_error(cause) or _last_output(cause))))


def _last_output(cause: Failure) -> str:
    if cause.kind is not FailureKind.EXIT or cause.signal:
        return ""
    written = [line.strip() for line in cause.tail if line.strip()]
    return f"last line: {_cut(written[-1], LAST_WORDS)}" if written else "it printed nothing"


def remedy(cause: Failure) -> str:
    """Return advice for a common cause, or ""."""
    error = last_error(cause)
    if error.startswith("IndexError") and any(
        "sys.argv" in line for line in cause.tail[-3:]
    ):  # its line of code
        error += " (sys.argv)"
    if any(_RANK_OF_NODE.search(line) for line in cause.tail):
        error += " (LOCAL_RANK)"
    what = cause.what
    if cause.signal == signal.SIGABRT and any("Traceback (most recent" in line for line in cause.tail):
        what = ""  # a Python error ended it, and its threads aborted at the exit
    last = "".join(cause.tail[-1:]).rstrip() if cause.kind is FailureKind.EXIT else ""
    found = next(
        filter(None, (_advice(REMEDIES, one) for one in (error, what, broken_line(cause), last))), ""
    )
    return found or ("; ".join(_shell_advice(cause.tail)) if last else "")


def _advice(table: Iterable[tuple[re.Pattern[str], str]], line: str) -> str:
    matches = ((text, pattern.search(line)) for pattern, text in table)
    return next((text.format(*filter(None, found.groups())) for text, found in matches if found), "")


def _shell_advice(tail: Sequence[str]) -> list[str]:
    """Return advice for the errors of a shell script's commands at the end of a log, in their order."""
    found = itertools.takewhile(bool, (_advice(SHELL_REMEDIES, line.rstrip()) for line in reversed(tail)))
    return list(dict.fromkeys([*found][::-1]))


def report(conclusion: Conclusion, history: Sequence[str] = (), advice: str = "") -> list[str]:
    """Format the failure report for the screen, as lines.

    Args:
        history: restarts and losses that the job survived before, one line each.
        advice: what to do, which takes precedence over general advice.
    """
    cause = conclusion.cause
    lines = [f"FIRST ERROR: {cause.headline()}"]
    if cause.stacks:
        lines += ["  its stacks:", *_indented(cause.stacks.splitlines()[:TAIL_LINES])]
    if cause.tail:
        lines += ["  the end of its log:", *_indented(_without_libraries(cause.tail)[-TAIL_LINES:])]
    if cause.log:
        lines.append(f"  full log: {cause.log}")
    if advice := advice or remedy(cause):
        lines.append(f"  try: {advice}")
    if conclusion.same:
        lines.append(f"  and {len(conclusion.same)} more with the same last line: {_names(conclusion.same)}")
    lines += [f"  also failed: {failure.headline()}" for failure in conclusion.others[:ECHOES]]
    lines += [
        f"  consequence: {secondary.failure.headline()}: {secondary.why}"
        for secondary in conclusion.secondary[:ECHOES]
    ]
    for what, count in (("failures", len(conclusion.others)), ("consequences", len(conclusion.secondary))):
        if count > ECHOES:
            lines.append(f"  and {count - ECHOES} more {what}")
    if conclusion.ended:
        lines.append(f"  stopped by the launcher: {_names(conclusion.ended)}")
    return lines + [f"  earlier: {line}" for line in history[-ECHOES:]]


def _without_libraries(tail: Sequence[str]) -> Sequence[str]:
    """Return the end of a log; from a long one, calls within libraries are left out of its tracebacks."""
    if len(tail) <= TAIL_LINES:
        return tail
    kept, left_out = list[str](), 0
    is_library = False
    for line in tail:
        if frame := _FRAME.match(line):
            is_library = _LIBRARY.search(frame[1]) is not None
            left_out += is_library
        elif not _INDENTED.match(line):
            is_library = False
            if left_out:
                kept.append(f"    ... {left_out} calls within libraries: see the full log")
            left_out = 0
        if not is_library:
            kept.append(line)
    return kept


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {_cut(line, LINE_LIMIT)}" for line in lines]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + " ..."


def _names(failures: Sequence[Failure]) -> str:
    return some([failure.name() for failure in failures], NAMES)


def early_exits_advice(cause: Failure, left: Iterable[tuple[int, float]]) -> str:
    """Return advice for a collective call that failed after other ranks had exited with code 0; "" for other failures.

    Args:
        left: rank of each trainer that exited with code 0, and when.
    """
    ranks = [f"trainer {rank}" for rank, at in left if at <= cause.at + _TOGETHER_S]
    if not ranks or not _CLOSED.search(last_error(cause)) or not any(map(_COLLECTIVE.search, cause.tail)):
        return ""
    frames = [found.groups() for found in map(_FRAME.match, cause.tail) if found]
    own = [f" ({path.rpartition('/')[2]}:{line})" for path, line in frames if not _LIBRARY.search(path)]
    return (
        f"{some(ranks, NAMES)} had ended with code 0: all ranks must call the same collectives{''.join(own[-1:])}. "
        "One under `if rank == 0:`, or more batches on this rank, are common causes"
    )


def local_advice(
    error: str, entry: Entry, package: Path | None, written: Iterable[tuple[str, str]] = ()
) -> str:
    """Return advice for the last error of a process, or for how it ended; "" if no file explains it.

    Args:
        written: new files and directories in the job directories of other nodes, each with its node.
    """
    folder = (
        (entry.path.rpartition("/")[0] or entry.module.rpartition(".")[0].replace(".", "/"))
        if package
        else ""
    )
    found = _FILE.match(error)
    for name, node in written:
        if found and f"{found[1]}/".startswith(f"{name.rstrip('/')}/"):
            return (
                f"{found[1]} was written on {node} during the job, but each node has its own job directory: let one "
                "process of each node (LOCAL_RANK 0) write it, or broadcast the values to all ranks"
            )
    if package and folder and entry.path and found and (package / folder / found[1]).is_file():
        return (
            f"{found[1]} is in {folder}/ of the workspace, but a script starts in the job's directory: open "
            f"{folder}/{found[1]}, or os.path.join(os.path.dirname(__file__), {found[1]!r})"
        )
    if package and _IN_USE in error and (starts := next(started_launchers(entry, package), None)):
        return " ".join(starts)
    if error.startswith(_RELATIVE):
        how = f"run it as a module: --entry=-m{_dotted(entry.path)}" if folder else "import without the dot"
        return f"a script is not part of a package: {how}"
    if package and error.startswith(_NO_PROGRAM) and (named := _interpreter(package / entry.path)):
        return f"that node has no {named}, which the first line of {entry.path} names: install it, or correct the line"
    module = _MODULE.match(error)
    if module and package and (advice := _module_advice(module[1], entry, folder, package)):
        return advice
    place = next((one for one in map(Path, sys.path) if module and _has(one, module[1])), None)
    if module is None or place is None:
        return ""
    return (
        f"{module[1]} is in {place.absolute()}, where only this machine's Python finds it (PYTHONPATH): copy it into "
        "the workspace or, if the nodes have that directory too, give --env=PYTHONPATH"
    )


def _module_advice(name: str, entry: Entry, folder: str, package: Path) -> str:
    """Return advice for a module that is in the workspace, or beside it, but that Python does not search there."""
    above = package.absolute().parent
    if entry.path and folder and _has(package, name):
        return (
            f"{name} is in {package}, but Python searches only {folder}/, the directory of the script: give "
            f"--env=PYTHONPATH=., or run the script as a module: --entry=-m{_dotted(entry.path)}"
        )
    if entry.module and folder and _has(package / folder, name):
        return (
            f"{name} is in {folder}/, which Python does not search for a module: import "
            f"{_dotted(f'{folder}/{name}')}, or give --entry={entry.module.replace('.', '/')}.py"
        )
    if entry.path and not folder and _has(above, name):
        inner = f"{package.absolute().name}/{entry.path}"
        return f"{above / name} is not in the workspace: give -p {above} --entry=-m{_dotted(inner)}"
    return ""


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _interpreter(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            first = opened.readline(200)
    except OSError:
        return ""
    return first[2:].decode("utf-8", "replace").strip() if first.startswith(b"#!") else ""


def _has(place: Path, name: str) -> bool:
    """Return whether a directory that the user added to the path of modules has one of this name."""
    if place.name in ("site-packages", "dist-packages") or place.is_relative_to(sys.base_prefix):
        return False
    is_ours = RUNTIME_DIR.is_relative_to(place.absolute())
    return not is_ours and ((place / f"{name}.py").is_file() or any((place / name).glob("*.py")))
