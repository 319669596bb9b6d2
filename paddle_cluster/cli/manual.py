# SPDX-License-Identifier: Apache-2.0
"""The manual that `paddle.py help` shows: finds pages of docs/ by topic, and rows of their tables by name.

A page's topic is its file name without the extension. If the first cell of a table row begins with a name in
backquotes, the row can be looked up by that name: an option, a name of conf.py, a variable.
"""

from __future__ import annotations

import re
from pathlib import Path

from paddle_cluster.cli.commands import COMMANDS
from paddle_cluster.errors import UsageError
from paddle_cluster.system.installation import COMMAND, DOCS_DIR, PROGRAM
from paddle_node.contract.classes import dataclass, regex

# Pages for users come first; pages not listed here follow, sorted by name.
_FIRST = (
    "quick-start",
    "concepts",
    "any-script",
    "progress",
    "command-line",
    "configuration",
    "operations",
    "data",
    "v2-api",
    "parameter-server",
    "docker-cluster",
)
_LANDING = "index"  # of the site: it only links to the other pages
_CALLED = regex(rf"(?:[\w./]*python )?\bpaddle\.py(?= -| (?:{'|'.join(COMMANDS)})\b)")
_NAMES = regex(r"`-{0,2}([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Page:
    """A page of the manual: its topic, its title, and its Markdown text."""

    topic: str
    title: str
    text: str


@dataclass(frozen=True)
class Row:
    """A row of a table on a manual page.

    Attributes:
        header: the cells of the table's header row.
        cells: the cells of the row, as Markdown; one per header cell.
    """

    topic: str
    header: tuple[str, ...]
    cells: tuple[str, ...]


def pages() -> tuple[Page, ...]:
    """Return all manual pages, user pages first.

    Raises:
        UsageError: no pages are installed.
    """
    found = {path.stem: path for path in DOCS_DIR.glob("*.md") if path.stem != _LANDING}
    order = [topic for topic in _FIRST if topic in found] + sorted(set(found) - set(_FIRST))
    if not order:
        raise UsageError(
            f"{DOCS_DIR} contains no pages; restore the docs folder of this version of {PROGRAM}"
        )
    return tuple(_read(topic, found[topic]) for topic in order)


def rows(page: Page, name: str) -> tuple[Row, ...]:
    """Return the rows of a page's tables that describe this name."""
    found = []
    header: tuple[str, ...] = ()
    for line in page.text.splitlines():
        if not line.startswith("|"):
            header = ()
            continue
        cells = split_row(line)
        if not header:
            header = cells
        elif name in _NAMES.findall(cells[0]) and len(cells) == len(header):
            found.append(Row(page.topic, header, cells))
    return tuple(found)


def row_names(page: Page) -> frozenset[str]:
    """Return all names for which `rows` finds a row on this page."""
    first_cells = (split_row(line)[0] for line in page.text.splitlines() if line.startswith("|"))
    return frozenset(name for cell in first_cells for name in _NAMES.findall(cell))


def split_row(line: str) -> tuple[str, ...]:
    """Split a row of a Markdown table into its cells."""
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return tuple(cell.strip().replace("\\|", "|") for cell in cells)


def _read(topic: str, path: Path) -> Page:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if COMMAND == PROGRAM:
        text = _CALLED.sub(PROGRAM, text)
    title = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), topic)
    return Page(topic, title, text)
