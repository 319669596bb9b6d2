# SPDX-License-Identifier: Apache-2.0
"""Reads status.json as far as it is one: anything may have written it, and everything that shows it trusts this.

What has another type than `job_status` writes is left out; a number is finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from paddle_cluster.control import cost_history
from paddle_cluster.control.job_status import VERSION
from paddle_cluster.system.installation import PROGRAM

_TEXT, _WHOLE, _NUMBER = (str,), (int,), (int, float)
_LARGEST = 1 << 63
_ROWS = 200
_NODE_BYTES = ("memory_bytes", "memory_total_bytes", "gpu_memory_bytes", "gpu_memory_total_bytes")

_FIELDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "version": _WHOLE,
        "job_id": _TEXT,
        "phase": _TEXT,
        "exit_code": _WHOLE,
        "updated_at": _NUMBER,
        "ended_at": _NUMBER,
    }
)
_LISTS: Mapping[str, Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {
        "nodes": {
            **dict.fromkeys(("node_id", "gpus", *_NODE_BYTES), _WHOLE),
            **dict.fromkeys(("heard_at", "cpu_percent", "gpu_percent"), _NUMBER),
            **dict.fromkeys(("received_bytes_per_s", "sent_bytes_per_s"), _NUMBER),
            **dict.fromkeys(("name", "state", "hostname", "job_dir", "error"), _TEXT),
        },
        "processes": {
            **dict.fromkeys(("rank", "node_id", "pid", "pass_id", "batch_id", "code", "signal"), _WHOLE),
            **dict.fromkeys(("pushed", "discarded", "lag", "memory_bytes"), _WHOLE),
            **dict.fromkeys(("version", "requests", "waiting"), _WHOLE),
            **dict.fromkeys(("started_at", "cost", "samples_per_s", "cpu_percent", "waited_s"), _NUMBER),
            **dict.fromkeys(("name", "role", "node", "state", "log", "last_line", "missing"), _TEXT),
        },
        "failures": dict.fromkeys(("node", "process", "what", "log"), _TEXT),
    }
)
_LINES = ("left", "why")


def read(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a status file says; nothing where there is none."""
    if fields is None:
        return {}
    if fields.get("version", VERSION) != VERSION:
        return {"phase": f"unknown (another version of {PROGRAM} wrote its status)"}
    found = _typed(fields, _FIELDS)
    for name, types in _LISTS.items():
        if isinstance(fields.get(name), list):
            found[name] = [_typed(one, types) for one in fields[name] if isinstance(one, dict)]
    for name in _LINES:
        if isinstance(fields.get(name), list):
            found[name] = [line for line in fields[name] if isinstance(line, str)]
    if isinstance(fields.get("preflight"), dict):
        found["preflight"] = _table(fields["preflight"])
    if "curve" in fields:
        found["curve"] = cost_history.read(fields["curve"])
    return found


def _table(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A table of texts, of which the first rows are wrong."""
    headers, rows = _texts(fields.get("headers")), fields.get("rows")
    told = [_texts(row) for row in rows[:_ROWS]] if isinstance(rows, list) else []
    wrong = fields.get("wrong")
    return {
        "headers": headers,
        "rows": [row for row in told if len(row) == len(headers)],
        "wrong": wrong if isinstance(wrong, int) and _is(wrong, _WHOLE) else 0,
    }


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _typed(fields: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in types and _is(value, types[name])}


def _is(value: object, types: tuple[type, ...]) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, types):
        return False
    return not isinstance(value, float) or abs(value) < _LARGEST  # whole numbers have 64 bits at most
