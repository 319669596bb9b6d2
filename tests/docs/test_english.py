# SPDX-License-Identifier: Apache-2.0
"""Phrases that a native engineer would not write stay out of README, pages and messages. The list only grows.

Each phrase is listed with its replacement. In pages, code and blocks are not checked.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.option_tables import messages

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
INSTEAD = {
    r"whoever|whomever|whosoever": "the noun: the trainer, the process",
    r"nobody|somebody|everybody": "the noun; no process, another user",
    r"\bis told\b|\bare told\b|\btells of\b": "is reported",
    r"\bthat is no \b|\bis no (?:option|port|file|word|endpoint)\b": "is not a",
    r"\bgoes on\b|\bgo on\b|\bgoing on\b": "continues",
    r"\bgets on\b|\bget on\b": "makes progress",
    r"\bstrangers?\b": "an unauthenticated peer",
    r"\bso many\b|\bso long\b": "the number: N, the given time",
    r"\bas ever\b|\bas it was\b": "unchanged",
    r"\ball that (?!(?:job|node|time))": "everything that",
    r"\blooks? on\b|\blooked after\b": "watches, monitors",
    r"\bfor whom\b|\bwhom it\b": "the noun",
    r"\bis gone\b|\bare gone\b": "has exited, is unreachable",
    r"\blives on\b": "continues, survives",
    r"\b(?:a line|one login|a row) a (?:host|node|process|sample)\b": "one line per host",
    r"\bsaid so\b|\bsays so\b|\bsay so\b": "reports it, names it",
    r"\bshall\b": "must, should",
    r"\bword of\b|\bwithout a word\b": "name what was reported",
}
_CODE = re.compile(r"^```.*?^```|^    [^\n]*|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its code; lines stay where they are."""
    text = page.read_text(encoding="utf-8")
    return _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)


@pytest.mark.parametrize("phrase", INSTEAD)
def test_a_phrase_is_not_written(phrase: str) -> None:
    found = [
        f"{page.name}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}: write {INSTEAD[phrase]}"
        for page in PAGES
        for text in [prose(page)]
        for hit in re.finditer(phrase, text, re.IGNORECASE)
    ]
    assert found == []


@pytest.mark.parametrize("top", ["paddle_cluster", "runtime", "workspace_template", "examples"])
def test_a_phrase_is_not_in_a_message(top: str) -> None:
    found = [
        f"{path}:{line}: {hit[0]!r}: write {instead}"
        for path, line, text in messages(top)
        for phrase, instead in INSTEAD.items()
        for hit in re.finditer(phrase, text, re.IGNORECASE)
    ]
    assert found == []
