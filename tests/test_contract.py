# SPDX-License-Identifier: Apache-2.0
"""The names both halves use without importing each other: messages, flags, the environment of a process."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import paddle.env
import paddle.flags
from paddle_cluster.config import flags
from paddle_cluster.connection import protocol

ROOT = Path(__file__).resolve().parent.parent


def agent_protocol() -> ModuleType:
    """The agent's twin, loaded by path: on nodes it is imported from memory, never from a directory."""
    path = ROOT / "runtime" / "paddle_node" / "agent" / "link" / "protocol.py"
    spec = importlib.util.spec_from_file_location("agent_protocol_twin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def strings(folder: str) -> set[str]:
    """Every string constant in a folder's modules."""
    return {
        node.value
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_both_sides_name_the_same_messages() -> None:
    twin = agent_protocol()
    assert protocol.LAUNCHER_KINDS == twin.LAUNCHER_KINDS
    assert protocol.AGENT_KINDS == twin.AGENT_KINDS
    assert protocol.PROTOCOL_VERSION == twin.PROTOCOL_VERSION
    assert (protocol.MAX_HEADER, protocol.MAX_BODY) == (twin.MAX_HEADER, twin.MAX_BODY)


@pytest.mark.parametrize("size", [0, 1, 1 << 16])
def test_both_sides_count_the_same_bytes_of_a_window(size: int) -> None:
    twin = agent_protocol()
    assert (protocol.WINDOW, protocol.cost(bytes(size))) == (twin.WINDOW, twin.cost(bytes(size)))


def test_a_frame_of_the_launcher_is_read_by_the_agent() -> None:
    frame = protocol.encode("start", {"argv": ["a b", "$(id)", "\udcff"], "proc": "trainer-0"}, b"\x00\xff")
    (message,) = agent_protocol().Decoder().feed(frame)
    assert message.kind == "start"
    assert message.fields == {"argv": ["a b", "$(id)", "\udcff"], "proc": "trainer-0"}
    assert message.body == b"\x00\xff"


def test_the_design_page_has_a_row_for_every_message() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = design.split("## 3.")[1].split("## 4.")[0]
    to_agent, to_launcher = (
        set(re.findall(r"^\| (\w+) \|", part, re.MULTILINE)) - {"kind"}
        for part in section.split("\nAgent -> launcher:")
    )
    assert to_agent == protocol.LAUNCHER_KINDS | {"modules", "reconnect"}
    assert to_launcher == protocol.AGENT_KINDS | {"reconnected"}


def test_both_sides_know_the_same_flags_of_paddle_init() -> None:
    assert set(flags.INIT_FLAGS) == set(paddle.flags.INIT_FLAGS)


def test_both_sides_know_the_same_flags_of_the_pserver() -> None:
    assert set(flags.PSERVER_FLAGS) == set(paddle.flags.PSERVER_FLAGS)


def test_every_variable_the_runtime_reads_is_one_the_launcher_or_agent_sets() -> None:
    read = {text for text in strings("runtime/paddle") if text.startswith("PADDLE_") and text.isupper()}
    read -= strings("runtime/paddle/distributed")  # which starts processes itself
    by_hand = {  # set by users
        "PADDLE_COLLECTIVE_TIMEOUT_S",
        "PADDLE_COLLECTIVE_WAY",
        "PADDLE_DATA_HOME",
        "PADDLE_NO_STAT",
        "PADDLE_PSERVER_METRICS_PORT",
    }
    written = strings("paddle_cluster") | strings("runtime/paddle_node/agent")
    prefixes = tuple(text for text in read if text.endswith("_"))
    assert {text for text in read - by_hand if text not in prefixes} <= written


def test_every_variable_of_the_design_page_is_set_by_the_launcher_or_agent() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = design.split("## 4.")[1].split("## 5.")[0].replace("COMM_WORLD_RANK/SIZE", "COMM_WORLD_RANK")
    names = set(re.findall(r"(?<![\w{])(?:[A-Z]+_)+[A-Z]+(?![\w{])", section))
    for prefix, endings in re.findall(r"([A-Z_]+_)\{([A-Z_, ]+)\}", section):
        names -= set(endings.split(", "))
        names |= {prefix + ending for ending in endings.split(", ")}
    assert len(names) > 30
    assert names - (strings("paddle_cluster") | strings("runtime/paddle_node/agent")) == set()
