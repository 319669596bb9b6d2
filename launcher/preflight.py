# SPDX-License-Identifier: Apache-2.0
"""Judges what the nodes answered to `probe` and `reach`, before anything is changed anywhere.

Pure: replies in, one table and the list of problems out. A problem stops the job, a remark does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.options import Mode

OLDEST_PYTHON = (3, 11)
RUNTIME_MODULES = ("numpy", "zmq")
CLOCK_REMARK_S = 5.0
HEADERS = ("node", "login", "python", "modules", "address", "ports", "free", "clock", "result")


@dataclass(frozen=True)
class Reply:
    """What is known of one node after preflight.

    Attributes:
        error: why the node could not be asked, or empty.
        probed: the fields of its `probed` answer.
        unreachable: "node: reason" for every peer it could not reach.
        clock_offset_s: the node's clock minus ours.
        login_s: seconds from the start of the connection to the agent's first word.
        hostname: what the node calls itself.
    """

    name: str
    error: str = ""
    probed: Mapping[str, Any] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
    clock_offset_s: float = 0.0
    login_s: float = 0.0
    hostname: str = ""


@dataclass(frozen=True)
class Demands:
    """What every node has to offer.

    Attributes:
        modules: what the job's Python must be able to import; with any, it must be 3.11 or newer.
        port_is_explicit: a busy port is then a problem, not a reason to take the next one.
        allow_mismatch: let nodes differ in Python and module versions.
    """

    modules: tuple[str, ...]
    port_is_explicit: bool
    allow_mismatch: bool
    python: str


@dataclass(frozen=True)
class Verdict:
    """The table, and what is wrong: rows in `red` have a problem."""

    rows: tuple[tuple[str, ...], ...]
    red: frozenset[int]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def needed_modules(mode: Mode) -> tuple[str, ...]:
    """What a job's Python must have; a collective job may be any script."""
    return () if mode is Mode.COLLECTIVE else RUNTIME_MODULES


def judge(replies: Sequence[Reply], demands: Demands) -> Verdict:
    """Judge all nodes together; versions are compared with what most nodes have."""
    usual = _usual_versions(replies)
    twins = _twins(replies)
    rows, red, problems, remarks = [], set(), [], []
    for index, reply in enumerate(replies):
        wrong = [*twins.get(index, ()), *_problems(reply, demands, usual)]
        said = _remarks(reply, demands)
        rows.append(_row(reply, wrong))
        problems += [f"{reply.name}: {text}" for text in wrong]
        remarks += [f"{reply.name}: {text}" for text in said]
        if wrong:
            red.add(index)
    return Verdict(tuple(rows), frozenset(red), tuple(problems), tuple(remarks))


def _twins(replies: Sequence[Reply]) -> dict[int, tuple[str]]:
    """What is wrong with the nodes that are an earlier one under another name: they would share its job directory."""
    first: dict[tuple[str, ...], str] = {}
    found: dict[int, tuple[str]] = {}
    for index, reply in enumerate(replies):
        place = (reply.hostname, *(str(reply.probed.get(what) or "") for what in ("address", "root_dir")))
        if reply.error or not all(place):
            continue
        name = first.setdefault(place, reply.name)
        if name != reply.name:
            found[index] = (f"host: the same machine as {name}; list every machine once in HOSTS",)
    return found


def _problems(reply: Reply, demands: Demands, usual: Mapping[str, str]) -> list[str]:
    if reply.error:
        return [reply.error]
    probed = reply.probed
    wrong = [f"{what}: {text}" for what, text in probed.get("problems", ())]
    if not wrong and demands.modules:
        wrong += _version_problems(probed, demands, usual)
    root_dir = probed.get("root_dir", "ROOT_DIR")
    free = probed.get("free_bytes") or 0
    if not probed.get("writable", False) and not any(
        what == "root_dir" for what, _ in probed.get("problems", ())
    ):
        wrong.append(
            f"root_dir: {root_dir} is not writable ({megabytes(free)} free); set ROOT_DIR in conf.py"
        )
    if demands.port_is_explicit:
        wrong += [f"port: {port} is in use by {owner}" for port, owner in probed.get("busy_ports", ())]
    wrong += [f"route: cannot reach {peer}" for peer in reply.unreachable]
    return wrong


def _version_problems(probed: Mapping[str, Any], demands: Demands, usual: Mapping[str, str]) -> list[str]:
    wrong = []
    version = probed.get("python_version") or ""
    if _numbers(version) < OLDEST_PYTHON:
        wrong.append(
            f"python: {demands.python} is {version or 'missing'}, the job needs 3.11 or newer (PYTHON in conf.py)"
        )
    modules = probed.get("modules") or {}
    for module in demands.modules:
        if not modules.get(module):
            package = "pyzmq" if module == "zmq" else module
            wrong.append(
                f"modules: {demands.python} cannot import {module}; install {package} there, or set PYTHON in conf.py"
            )
    if wrong or demands.allow_mismatch:
        return wrong
    for what, have in _versions(probed).items():
        if have != usual[what]:
            wrong.append(
                f"versions: {what} is {have}, most nodes have {usual[what]} (--allow_mismatch goes on)"
            )
    return wrong


def _remarks(reply: Reply, demands: Demands) -> list[str]:
    if reply.error:
        return []
    said = []
    if not demands.port_is_explicit:
        said += [
            f"port {port} is in use by {owner}; the next free ones are taken and published"
            for port, owner in reply.probed.get("busy_ports", ())
        ]
    if abs(reply.clock_offset_s) > CLOCK_REMARK_S:
        said.append(f"its clock is {reply.clock_offset_s:+.0f} s off ours; log times differ by that")
    return said


def _usual_versions(replies: Sequence[Reply]) -> dict[str, str]:
    counts: dict[str, Counter[str]] = {}
    for reply in replies:
        for what, version in _versions(reply.probed).items():
            counts.setdefault(what, Counter())[version] += 1
    return {what: counter.most_common(1)[0][0] for what, counter in counts.items()}


def _versions(probed: Mapping[str, Any]) -> dict[str, str]:
    """Python by major.minor, modules by their full version."""
    found = {}
    if probed.get("python_version"):
        found["python"] = ".".join(str(probed["python_version"]).split(".")[:2])
    for module in RUNTIME_MODULES:
        version = (probed.get("modules") or {}).get(module)
        if version:
            found[module] = str(version)
    return found


def _row(reply: Reply, wrong: Sequence[str]) -> tuple[str, ...]:
    if reply.error:
        return (reply.name, "failed", *[""] * 6, reply.error)
    probed = reply.probed
    modules = ", ".join(
        f"{name} {version or 'missing'}" for name, version in (probed.get("modules") or {}).items()
    )
    busy = ", ".join(str(port) for port, _ in probed.get("busy_ports", ()))
    return (
        reply.name,
        f"{reply.login_s:.2f} s",
        str(probed.get("python_version") or "missing"),
        modules,
        str(probed.get("address") or ""),
        f"busy: {busy}" if busy else "free",
        megabytes(probed.get("free_bytes") or 0),
        f"{reply.clock_offset_s:+.1f} s",
        "; ".join(wrong) or "ok",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def megabytes(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / (1 << 30):.1f} GB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MB"
