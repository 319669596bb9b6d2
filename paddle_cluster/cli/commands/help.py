# SPDX-License-Identifier: Apache-2.0
"""`paddle.py help`: lists the pages of the manual; `help NAME` shows a page or explains a name."""

from __future__ import annotations

import html
import re
import shutil
import textwrap
from collections.abc import Sequence

from paddle_cluster.cli.commands import COMMANDS, usage
from paddle_cluster.cli.manual import Page, Row, pages, row_names, rows
from paddle_cluster.config.values import nearest
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.writer import answer
from paddle_cluster.system.installation import PROGRAM
from paddle_node.contract.classes import regex

USAGE = f"""\
{PROGRAM} help [NAME]

Lists the pages of the manual. With NAME: prints that page, or explains a
command, an option, a name in conf.py or a variable: help configuration,
help --env, help HOSTS.
"""
_ONLY_NAMES = regex(r"(`[^`]+`[, ]*)+")  # the first cell of a row that defines names
_MOST_NEAR = 4
WIDEST = 100  # longer lines are hard to read
_MARKS = regex(r"\[([^\]]+)\]\([^)\s]+\)|(?<![\w*])\*\*([^*]+)\*\*(?![\w*])")  # a link, bold text


def run(argv: Sequence[str]) -> ExitCode:
    """Print a page of the manual, an explanation of a name, or the list of pages; return 0.

    Args:
        argv: empty, or one argument: a topic, an option with or without its dashes, or a name.

    Raises:
        UsageError: no page has this topic or name.
    """
    if len(argv) > 1:
        raise UsageError(f"help takes one name, got {len(argv)}; try {PROGRAM} help {argv[0]}")
    width = min(shutil.get_terminal_size((80, 24)).columns, WIDEST)
    found = pages()
    answer(_about(argv[0], found, width) if argv else _contents(found))
    return ExitCode.DONE


def _contents(found: Sequence[Page]) -> str:
    wide = max(len(page.topic) for page in found)
    lines = [f"Pages ({PROGRAM} help TOPIC):", ""]
    lines += [f"  {page.topic:{wide}}  {_inline(page.title)}" for page in found]
    lines += ["", f"Commands ({PROGRAM} COMMAND):", ""]
    lines += [f"  {name:{wide}}  {what}" for name, what in COMMANDS.items()]
    lines += [
        "",
        f"{PROGRAM} help NAME explains an option, a name in conf.py or a variable: help env, help HOSTS",
    ]
    return "\n".join(lines)


def _about(word: str, found: Sequence[Page], width: int) -> str:
    for page in found:
        if page.topic == word:
            return page.text
    if word in COMMANDS:
        return usage(word)
    name = word.lstrip("-").partition("=")[0]
    matches = [row for page in found for row in rows(page, name)]
    if not matches:
        known = {page.topic for page in found}.union(*(row_names(page) for page in found))
        parts = [one for one in sorted(known) if name.lower() in one.lower()] if len(name) > 2 else []
        near = " or ".join(parts[:_MOST_NEAR]) or nearest(name, sorted(known))
        hint = f"did you mean {near}?" if near else f"{PROGRAM} help lists the pages"
        raise UsageError(f"no page describes {word!r}; {hint}")
    lines = []
    for row in [row for row in matches if _ONLY_NAMES.fullmatch(row.cells[0])] or matches:
        lines += [*_entry(row, width), f"    (more: {PROGRAM} help {row.topic})", ""]
    return "\n".join(lines)


def _entry(row: Row, width: int) -> list[str]:
    """Format a table row as a list entry: its first cell, then the other cells with their column names."""
    (_, first), *others = zip(map(_inline, row.header), map(_inline, row.cells), strict=True)
    cells = [(f"    {name}: " if others[1:] else "    ") + cell for name, cell in others if cell]
    return [
        line
        for text, indent in ((first, "  "), *((cell, "    ") for cell in cells))
        for line in textwrap.wrap(
            text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    ]


def _inline(text: str) -> str:
    """Return text without its markup for code, links and bold."""
    parts = re.split(r"`([^`]+)`", text)
    parts[::2] = [html.unescape(_MARKS.sub(lambda found: found[1] or found[2], part)) for part in parts[::2]]
    return "".join(parts)
