# SPDX-License-Identifier: Apache-2.0
"""Formats the output of `paddle.py doctor --json`. docs/doctor.md lists its names."""

from __future__ import annotations

import json
import math
from typing import Any

from paddle_cluster.nodes.checks.reply import Reply
from paddle_cluster.nodes.examination import Examined
from paddle_cluster.nodes.findings import Finding


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
