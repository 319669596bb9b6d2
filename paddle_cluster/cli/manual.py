# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ as `paddle.py help` shows them: by topic, or by a name in one of their tables.

A page's topic is its file's name without the ending. A row of a page's tables whose first cell begins with a
name in backquotes can be asked for by that name: an option, a name of conf.py, a variable.
"""

from __future__ import annotations

import re
from pathlib import Path

from paddle_cluster.cli.commands import COMMANDS
from paddle_cluster.errors import UsageError
from paddle_cluster.system.installation import COMMAND, DOCS_DIR, PROGRAM
from paddle_node.contract.classes import dataclass

# What a user needs comes first; a page that is not named here follows by its name.
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
_LANDING = "index"  # of the site: it leads to the others
_CALLED = re.compile(rf"(?:[\w./]*python )?\bpaddle\.py(?= -| (?:{'|'.join(COMMANDS)})\b)")
_NAMES = re.compile(r"`-{0,2}([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Page:
    """One page of the manual: Markdown."""

    topic: str
    title: str
    text: str


@dataclass(frozen=True)
class Row:
    """One row of a table of a page.

    Attributes:
        header: the cells of the table's first row.
        cells: as Markdown, as many as the header has.
    """

    topic: str
    header: tuple[str, ...]
    cells: tuple[str, ...]


def pages() -> tuple[Page, ...]:
    """All pages, those that users need first.

    Raises:
        UsageError: there are none.
    """
    found = {path.stem: path for path in DOCS_DIR.glob("*.md") if path.stem != _LANDING}
    order = [topic for topic in _FIRST if topic in found] + sorted(set(found) - set(_FIRST))
    if not order:
        raise UsageError(
            f"{DOCS_DIR} contains no pages; restore the docs folder of this version of {PROGRAM}"
        )
    return tuple(_read(topic, found[topic]) for topic in order)


def rows(page: Page, name: str) -> tuple[Row, ...]:
    """The rows of a page's tables that are about this name."""
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
    """Every name that `rows` finds something for."""
    first_cells = (split_row(line)[0] for line in page.text.splitlines() if line.startswith("|"))
    return frozenset(name for cell in first_cells for name in _NAMES.findall(cell))


def split_row(line: str) -> tuple[str, ...]:
    """The cells of one row of a Markdown table."""
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return tuple(cell.strip().replace("\\|", "|") for cell in cells)


def _read(topic: str, path: Path) -> Page:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if COMMAND == PROGRAM:
        text = _CALLED.sub(PROGRAM, text)
    title = next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), topic)
    return Page(topic, title, text)
