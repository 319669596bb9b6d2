# SPDX-License-Identifier: Apache-2.0
"""Asks agents on this machine what a launcher asks before a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.runtime.paddle_node.agent.driven_node import Node


def probe(node: Node, **fields: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "nic": None,
        "address": "127.0.0.1",
        "ports": [],
        "modules": [],
        "need_bytes": 0,
        "workspace": None,
    }
    node.link.send("probe", **{**asked, **fields})
    return node.expect("probed").fields


def what(found: dict[str, Any]) -> list[str]:
    return [name for name, _ in found["problems"]]


def fake_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + script)
    (folder / name).chmod(0o755)
