# SPDX-License-Identifier: Apache-2.0
"""Formats the output of `paddle.py doctor`: a table of nodes, the facts that they share, then the problems; or JSON.

All functions are pure. A column that does not fit the screen is replaced by lines below the table about the nodes that
differ from most others. docs/doctor.md lists the names in the JSON.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paddle_cluster.nodes import preflight
from paddle_cluster.nodes.checks.network import busy_ports
from paddle_cluster.nodes.checks.reply import Reply
from paddle_cluster.nodes.examination import Examined
from paddle_cluster.nodes.findings import Finding
from paddle_cluster.nodes.preflight import result
from paddle_cluster.text import wrapping
from paddle_cluster.text.sizes import count, counted, duration, size_text
from paddle_cluster.text.wrapping import wrapped
from paddle_node.contract.classes import dataclass
from paddle_node.contract.probed import Disk

ROWS = 16  # up to this many nodes each have a row; beyond it, nodes like most others are only counted


def lines(examined: Examined, took_s: float, width: int) -> list[str]:
    """Format the whole report as lines.

    Args:
        took_s: the duration of the examination in seconds.
        width: the width of the screen in columns.
    """
    replies, judged = examined.replies, examined.result
    answered = [reply for reply in replies if not reply.error]
    said = [f"{len(answered)} of {counted(len(replies), 'node')} answered in {duration(took_s)}"]
    values = {name: {reply.name: fact.read(reply) for reply in answered} for name, fact in FACTS.items()}
    usual = {
        name: Counter(found.values()).most_common(1)[0][0] if found else "" for name, found in values.items()
    }
    bad = {finding.node for finding in judged.found if finding.serious}
    noted = {finding.node for finding in judged.found if not finding.serious}
    listed = _listed(replies, bad | noted, values, usual)
    differing = _columns(listed, values)
    headers = ["node", "result", *differing]
    rows = [
        [reply.name, result(reply, bad, noted), *(values[name].get(reply.name, "") for name in differing)]
        for reply in listed
    ]
    fits = wrapping.fitting(headers, rows, width)
    columns = [headers[at] for at in fits[2:]]
    if listed:
        red = {index for index, reply in enumerate(listed) if reply.name in bad}
        said += wrapping.table([headers[at] for at in fits], [[row[at] for at in fits] for row in rows], red)
    if len(listed) < len(replies):
        said += wrapped(_rest([r for r in answered if r not in listed], bool(listed)), width)
    said += wrapped(_common(answered, values, usual, columns), width)
    for name in differing:
        if name in columns:
            continue
        odd = [(reply.name, values[name][reply.name]) for reply in answered]
        odd = [(node, value) for node, value in odd if value and value != usual[name]]
        if odd and FACTS[name].measure is None:
            texts = "; ".join(f"{node} {value}" for node, value in odd)
            said += wrapped(f"{name}: {usual[name] or 'unknown'} on most; {texts}", width)
    said += wrapped(f"addresses: {examined.choice.why}", width)
    slow = _slowest(answered)
    said += wrapped(slow, width) if slow else []
    for title, found in (("warning", judged.remarks), ("PROBLEM", judged.problems)):
        for text in found:
            said += wrapped(f"{title}: {text}", width)
    said += wrapped(_last(examined), width)
    return said


def _listed(
    replies: Sequence[Reply],
    marked: set[str],
    values: dict[str, dict[str, str]],
    usual: dict[str, str],
) -> list[Reply]:
    if len(replies) <= ROWS:
        return list(replies)

    def differs(reply: Reply) -> bool:
        return any(
            fact.measure is None and values[name].get(reply.name, "") != usual[name]
            for name, fact in FACTS.items()
        )

    return [reply for reply in replies if reply.error or reply.name in marked or differs(reply)]


def _columns(listed: Sequence[Reply], values: dict[str, dict[str, str]]) -> list[str]:
    """Return the columns that differ: first those that should be equal, then the others."""
    differing = [name for name, found in values.items() if len(set(found.values())) > 1]
    differing.sort(key=lambda name: name != "address" and FACTS[name].measure is not None)
    return [name for name in differing if any(values[name].get(reply.name) for reply in listed)]


def _rest(others: Sequence[Reply], some_listed: bool) -> str:
    ranges = [text for name, fact in FACTS.items() if (text := _range(name, fact, others))]
    who = counted(len(others), "other node") if some_listed else f"all {len(others)} nodes"
    return f"{who} {'is' if len(others) == 1 else 'are'} ok with similar values: {', '.join(ranges)}"


def _range(name: str, fact: Fact, replies: Sequence[Reply]) -> str:
    if fact.measure is None:
        return ""
    found = [(number, fact.read(reply)) for reply in replies if (number := fact.measure(reply)) is not None]
    if not found:
        return ""
    least, most = min(found)[1], max(found)[1]
    return f"{name} {least}" if least == most else f"{name} {least} to {most}"


def _common(
    answered: Sequence[Reply],
    values: dict[str, dict[str, str]],
    usual: dict[str, str],
    columns: Sequence[str],
) -> str:
    if not answered:
        return ""
    same = [
        f"{name} {usual[name]}"
        for name, found in values.items()
        if name not in columns and usual[name] and len(set(found.values())) == 1
    ]
    who = "all nodes" if len(answered) > 1 else answered[0].name
    return f"{who}: {'; '.join(same)}" if same else ""


def _slowest(answered: Sequence[Reply]) -> str:
    """Report the longest duration of each step, and its node."""
    slowest: dict[str, tuple[float, str]] = {}
    for reply in answered:
        for name, took_s in reply.answer.steps.items():
            slowest[name] = max(slowest.get(name, (0.0, "")), (took_s, reply.name))
    if not slowest:
        return ""
    ordered = sorted(slowest.items(), key=lambda item: -item[1][0])
    where = f" ({ordered[0][1][1]})" if len(answered) > 1 else ""
    said = [f"{name} {duration(took_s)}" for name, (took_s, _) in ordered]
    return f"slowest checks: {said[0]}{where}, {', '.join(said[1:])}"


def _last(examined: Examined) -> str:
    problems, remarks = examined.result.problems, examined.result.remarks
    job = f"a job with --mode={examined.mode}"
    if problems:
        fits = "; one with --mode=collective would" if examined.fits_any_script else ""
        return f"{counted(len(problems), 'problem')}: {job} would not start (exit 3){fits}"
    noted = f", {counted(len(remarks), 'warning')}" if remarks else ""
    return f"ready for {job}{noted} (exit 0)"


@dataclass(frozen=True)
class Fact:
    """A column of the table: a fact about each node.

    Attributes:
        read: returns the text for a node that answered; empty if unknown.
        measure: returns the number in the text, for facts that differ between nodes anyway: with many nodes, their
            range is reported. None means every difference is reported.
    """

    read: Callable[[Reply], str]
    measure: Callable[[Reply], float | None] | None = None


def _module(name: str) -> Callable[[Reply], str]:
    return lambda reply: (reply.answer.modules.get(name) or "missing") if name in reply.answer.modules else ""


def _limit(name: str, text: Callable[[int], str] = str) -> Callable[[Reply], str]:
    def read(reply: Reply) -> str:
        limits = reply.answer.facts.machine.limits
        if name not in limits:
            return ""
        limit = limits[name]
        return "unlimited" if limit is None else text(limit)

    return read


def _group(reply: Reply) -> str:
    group = reply.answer.facts.machine.cgroup
    cores, memory, pids = (group.get(name) for name in ("cores", "memory_bytes", "pids"))
    said = [f"{cores:g} cores"] if cores else []
    said += [size_text(memory)] if memory else []
    said += [f"{pids:.0f} threads"] if pids else []
    return ", ".join(said) or "no limit"


def _gpus(reply: Reply) -> str:
    gpus = reply.answer.gpus
    if gpus is None or not gpus.count:
        return "none"
    names = f" {', '.join(gpus.names)}" if gpus.names else ""
    return f"{gpus.count}{names}" + (f", driver {gpus.driver}" if gpus.driver else "")


def _memory(reply: Reply) -> str:
    total = reply.answer.facts.machine.memory_bytes
    return size_text(total) if total else ""


def _free(disk: Disk | None) -> str:
    return "" if disk is None else disk.problem or size_text(disk.free_bytes)


def _inodes(reply: Reply) -> str:
    root = reply.answer.facts.root_dir
    return "" if root is None or root.free_inodes is None else count(root.free_inodes)


def _other_disk(reply: Reply) -> Disk | None:
    return next((disk for disk in reply.answer.facts.disks if disk.path == "/tmp"), None)  # noqa: S108 - looked at only


def _root_dir(reply: Reply) -> str:
    root_dir, root = reply.answer.root_dir, reply.answer.facts.root_dir
    if reply.is_local:  # each embedded node has its own folder
        root_dir = root_dir.removesuffix(f"node_{reply.node_id}") + "node_<id>"
    return root_dir + (f" ({root.kind})" if root and root.kind else "")


def _nics(reply: Reply) -> str:
    return ", ".join(dict.fromkeys(one.nic for one in reply.answer.networks))


FACTS: Mapping[str, Fact] = MappingProxyType(
    {
        "login": Fact(lambda reply: duration(reply.login_s), lambda reply: reply.login_s),
        "address": Fact(lambda reply: reply.answer.address, lambda reply: None),
        "clock": Fact(preflight.clock, lambda reply: reply.clock_offset_s),
        "free": Fact(lambda reply: _free(reply.answer.facts.root_dir), lambda reply: reply.answer.free_bytes),
        "inodes": Fact(
            _inodes, lambda reply: root.free_inodes if (root := reply.answer.facts.root_dir) else None
        ),
        "tmp free": Fact(
            lambda reply: _free(_other_disk(reply)),
            lambda reply: disk.free_bytes if (disk := _other_disk(reply)) else None,
        ),
        "load": Fact(
            lambda reply: (
                "" if reply.answer.facts.machine.load is None else f"{reply.answer.facts.machine.load:.2f}"
            ),
            lambda reply: reply.answer.facts.machine.load,
        ),
        "memory free": Fact(
            lambda reply: size_text(reply.answer.facts.machine.memory_free_bytes or 0),
            lambda reply: reply.answer.facts.machine.memory_free_bytes,
        ),
        "own threads": Fact(
            lambda reply: str(reply.answer.facts.machine.threads_of_user),
            lambda reply: reply.answer.facts.machine.threads_of_user,
        ),
        "python": Fact(lambda reply: reply.answer.python_version or "missing"),
        "numpy": Fact(_module("numpy")),
        "zmq": Fact(_module("zmq")),
        "ports": Fact(lambda reply: busy_ports(reply.answer.busy_ports)),
        "ROOT_DIR": Fact(_root_dir),
        "nics": Fact(_nics),
        "cores": Fact(lambda reply: str(reply.answer.facts.machine.cores or "")),
        "memory": Fact(_memory),
        "GPUs": Fact(_gpus),
        "kernel": Fact(lambda r: f"{r.answer.facts.machine.kernel} {r.answer.facts.machine.machine}".strip()),
        "open files": Fact(_limit("nofile")),
        "max threads": Fact(_limit("nproc")),
        "locked memory": Fact(_limit("memlock", size_text)),
        "core files": Fact(_limit("core", size_text)),
        "control group": Fact(_group),
    }
)
"""Name of a column -> how it is read; the first ones differ from node to node anyway."""


def document(examined: Examined, took_s: float) -> str:
    """Return the results of an examination as one indented JSON object; all its numbers are finite."""
    result = examined.result
    found = {
        "ok": not result.problems,
        "mode": examined.mode,
        "fits_collective": not result.problems or examined.fits_any_script,
        "took_s": round(took_s, 3),
        "addresses": examined.choice.why,
        "nodes": [_node(reply, result.found) for reply in examined.replies],
        "ways": [route for reply in examined.replies for route in _routes(examined, reply)],
        "problems": [_finding(one) for one in result.found if one.serious],
        "remarks": [_finding(one) for one in result.found if not one.serious],
    }
    return json.dumps(_finite(found), indent=2)


_ANSWERED = (
    *("python_version", "modules", "root_dir", "free_bytes", "writable", "address", "login_address"),
    *("listen_ports", "busy_ports", "busy_at", "gpus", "has_rdma", "variables", "steps"),
)


def _node(reply: Reply, findings: tuple[Finding, ...]) -> dict[str, Any]:
    mine = [one for one in findings if one.node == reply.name]
    node: dict[str, Any] = {
        "node_id": reply.node_id,
        "name": reply.name,
        "ok": not any(one.serious for one in mine),
        "error": reply.error,
        "login_s": reply.login_s,
        "hostname": reply.hostname,
    }
    if not reply.error:
        node["clock"] = {"offset_s": reply.clock_offset_s, "error_s": reply.clock_error_s}
        facts = reply.answer.facts
        node["answer"] = {
            **{name: getattr(reply.answer, name) for name in _ANSWERED},
            "placed": reply.answer.networks,
            "root": facts.root_dir,
            "disks": facts.disks,
            "machine": facts.machine,
        }
    return node


def _routes(examined: Examined, reply: Reply) -> list[dict[str, Any]]:
    names = {one.node_id: one.name for one in examined.replies}
    return [
        {
            "from": reply.name,
            "to": names.get(route.peer, str(route.peer)),
            "address": route.address,
            "ok": route.ok,
            "text": route.text,
            "seconds": route.seconds,
        }
        for route in reply.routes
    ]


def _finding(one: Finding) -> dict[str, str]:
    return {"node": one.node, "what": one.what, "text": one.text}


def _finite(value: Any) -> Any:
    """Return the value with records as dictionaries and with non-finite numbers removed."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
