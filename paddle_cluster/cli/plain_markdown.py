# SPDX-License-Identifier: Apache-2.0
"""Markdown as plain text of a given width: what the pages of docs/ use, and nothing else of the language.

Headings are underlined, paragraphs and list items filled, code left alone. A table whose rows fit becomes columns;
a wider one becomes a list, one entry a row.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator, Sequence

from paddle_cluster.cli.manual import split_row

LEAST_WIDTH = 40
_LIST_ITEM = re.compile(r"(\s*)([-*]|\d+\.) +(.*)")
_RULE = re.compile(r"\|[\s:|-]+\|?\s*")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_EMPHASIS = re.compile(r"(?<![\w*])\*\*([^*]+)\*\*(?![\w*])")
_CODE = re.compile(r"(`[^`]+`)")


def plain(text: str, width: int) -> str:
    """A page as lines of at most `width` characters; only code and words that are longer stick out."""
    width = max(width, LEAST_WIDTH)
    lines: list[str] = []
    for block in _blocks(text.splitlines()):
        rendered = _render(block, width)
        if rendered:
            lines += [*rendered, ""]
    return "\n".join(lines)


def inline(text: str) -> str:
    """One run of text without the marks for code, links and bold."""
    parts = _CODE.split(text)
    for index, part in enumerate(parts):
        if index % 2:
            parts[index] = part.strip("`")
        else:
            parts[index] = html.unescape(_EMPHASIS.sub(r"\1", _LINK.sub(_link, part)))
    return "".join(parts)


def _link(match: re.Match[str]) -> str:
    text, target = match.groups()
    topic = re.fullmatch(r"([\w-]+)\.md(#.*)?", target)
    return f"{text} (help {topic[1]})" if topic else text


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Runs of lines that belong together: a heading, a table, code, or a paragraph with its list items."""
    block: list[str] = []
    fenced = False
    for line in lines:
        if line.startswith("```"):
            if block and not fenced:
                yield block
                block = []
            block.append(line)
            if fenced:
                yield block
                block = []
            fenced = not fenced
        elif fenced:
            block.append(line)
        elif not line.strip():
            if block:
                yield block
            block = []
        elif line.startswith("#"):
            if block:
                yield block
            yield [line]
            block = []
        else:
            block.append(line)
    if block:
        yield block


def _render(block: list[str], width: int) -> list[str]:
    first = block[0]
    if first.startswith("```"):
        return [f"    {line}".rstrip() for line in block[1:] if not line.startswith("```")]
    if first.startswith("#"):
        return _heading(first)
    if first.startswith("|"):
        return _table(block, width)
    if first.startswith("    "):
        return [line.rstrip() for line in block]
    return _paragraphs(block, width)


def _heading(line: str) -> list[str]:
    marks, _, title = line.partition(" ")
    title = inline(title)
    return [title, ("=" if len(marks) == 1 else "-") * len(title)] if len(marks) <= 2 else [title]


def _paragraphs(block: Sequence[str], width: int) -> list[str]:
    """Paragraphs and list items of one block, each filled with its own indent."""
    items: list[tuple[str, str, list[str]]] = []
    for line in block:
        item = _LIST_ITEM.fullmatch(line)
        if item is not None:
            lead = f"{item[1]}{item[2]} "
            items.append((lead, " " * len(lead), [item[3]]))
        elif items:
            items[-1][2].append(line.strip())
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            items.append((indent, indent, [line.strip()]))
    return [
        line for lead, indent, texts in items for line in _fill(inline(" ".join(texts)), width, lead, indent)
    ]


def _table(block: Sequence[str], width: int) -> list[str]:
    header, *rows = [
        [inline(cell) for cell in split_row(line)] for line in block if not _RULE.fullmatch(line)
    ]
    table = [header, *rows]
    widths = [max((len(row[at]) for row in table if at < len(row)), default=0) for at in range(len(header))]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        lines = [
            "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False)) for row in table
        ]
        lines.insert(1, "  ".join("-" * size for size in widths))
        return [line.rstrip() for line in lines]
    return [line for row in rows for line in row_lines(header, row, width)]


def row_lines(header: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """One row of a table as an entry of a list: its first cell, then the others below, with their names."""
    cells = [(name, cell) for name, cell in zip(header[1:], row[1:], strict=False) if cell]
    lines = _fill(row[0], width, "", "  ")
    for name, cell in cells:
        lead = "" if len(header) == 2 else f"{name}: "
        lines += _fill(lead + cell, width, "    ", "    ")
    return lines


def _fill(text: str, width: int, lead: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=lead,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
