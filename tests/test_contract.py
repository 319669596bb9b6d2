# SPDX-License-Identifier: Apache-2.0
"""The names both halves use without importing each other: messages, the environment of a process."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from paddle_node.contract.facts import REPORTS
from paddle_node.contract.frames import Decoder, encode
from paddle_node.contract.records import plan
from paddle_node.contract.to_agent import TO_AGENT
from paddle_node.contract.to_launcher import TO_LAUNCHER

ROOT = Path(__file__).resolve().parent.parent


def strings(folder: str) -> set[str]:
    """Every string constant in a folder's modules."""
    return {
        node.value
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_a_frame_of_the_launcher_is_read_by_the_agent() -> None:
    frame = encode("start", {"argv": ["a b", "$(id)", "\udcff"], "proc": "trainer-0"}, b"\x00\xff")
    (message,) = Decoder("launcher", TO_AGENT).feed(frame)
    assert message.kind == "start"
    assert message.fields == {"argv": ["a b", "$(id)", "\udcff"], "proc": "trainer-0"}
    assert message.body == b"\x00\xff"


def rows(part: str) -> dict[str, str]:
    """Kind -> fields, as the tables of the page have them."""
    cells = [line.split("|") for line in part.splitlines() if line.startswith("| ")]
    return {row[1].strip(): row[2].strip() for row in cells}


def field_names(cell: str) -> set[str]:
    """The names in a cell of the page, without the forms of their values."""
    while (bare := re.sub(r"\[[^][]*\]|\{[^{}]*\}|\([^()]*\)", "", cell)) != cell:
        cell = bare
    words = [re.match(r"\s*(?:proc or )?(\w+)", part) for part in re.split(r"[,;]| and | or ", cell)]
    return {word[1] for word in words if word is not None and word[1] != "body"}


def test_the_page_of_messages_has_a_row_for_each_with_the_fields_of_its_record() -> None:
    page = (ROOT / "docs" / "agent-messages.md").read_text(encoding="utf-8")
    parts = page.split("\n## Agent to launcher\n")
    for part, records, others in (
        (parts[0], TO_AGENT, {"modules", "reconnect"}),
        (parts[1], TO_LAUNCHER, {"reconnected"}),
    ):
        said = {kind: cell for kind, cell in rows(part).items() if kind != "kind"}
        assert said.keys() == records.keys() | others
        named = {kind: field_names(said[kind]) for kind in records}
        ours = {kind: set(plan(record).names) for kind, record in records.items()}
        assert named == {
            kind: names | ({"proc"} if kind in REPORTS else set()) for kind, names in ours.items()
        }


def test_every_variable_the_runtime_reads_is_one_the_launcher_or_agent_sets() -> None:
    read = {text for text in strings("runtime/paddle") if text.startswith("PADDLE_") and text.isupper()}
    read -= strings("runtime/paddle/distributed")  # which starts processes itself
    by_hand = {  # set by users
        "PADDLE_COLLECTIVE_TIMEOUT_S",
        "PADDLE_COLLECTIVE_WAY",
        "PADDLE_DATA_HOME",
        "PADDLE_NO_STAT",
        "PADDLE_PSERVER_METRICS_PORT",
        "PADDLE_SERVE_TOKEN",
        "PADDLE_TRAINER_IPS",
    }
    written = strings("paddle_cluster") | strings("runtime/paddle_node")
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
    assert names - (strings("paddle_cluster") | strings("runtime/paddle_node")) == set()
