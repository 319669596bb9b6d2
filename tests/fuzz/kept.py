# SPDX-License-Identifier: Apache-2.0
"""Examples that found something, each with the entry point that fell."""

from __future__ import annotations

_LINE = {"proc": "trainer-1", "partial": False}
_FILE = {"offset": 0, "reset": True, "eof": True}

KEPT: list[tuple[str, object]] = [
    ("control_requests", b"\0\0\0\x22" + b'{"kind":"attach","lines":Infinity}'),
    ("frames_from_nodes", [(1, ("line", {**_LINE, "t": -1e300}, b"before every clock\n"))]),
    ("frames_from_nodes", [(1, ("line", {**_LINE, "t": 1e9}, b"\xff" * (4 << 20)))]),
    ("frames_from_nodes", [(1, ("file", {**_FILE, "path": "log/" + "n" * 300}, b"x"))]),
    ("frames_from_nodes", [(0, ("file", {**_FILE, "path": "output/" + "d/" * 3000 + "w"}, b"x"))]),
    ("frames_from_nodes", [(1, ("progress", {"proc": "trainer-1", "pass_id": 10**400}, b""))]),
    (
        "report_lines",
        b'{"event":"progress","step":5,"cost":0.3}\n{"event":"progress","cost":' + b"9" * 400 + b"}\n",
    ),
]
