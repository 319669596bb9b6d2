# SPDX-License-Identifier: Apache-2.0
"""What pages promise their readers: bounded length, short changelog lines, and links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MOST_WORDS = 30_000  # of all pages for users
MOST_CHARACTERS = 200  # of a line of the changelog
OUTSIDE = tuple(  # pages that are not part of the site
    path
    for path in (
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
        *sorted((ROOT / "examples").rglob("README.md")),
        *(ROOT / folder / "README.md" for folder in ("docker_cluster", "workspace_template")),
    )
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def nav(part: str) -> list[str]:
    """The pages of one part of the site's navigation, those that are generated left out."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = re.search(rf"^  - {part}:\n(.*?)(?=^  - |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return [page for page in re.findall(r": (\S+\.md)$", found[1], re.MULTILINE) if (DOCS / page).exists()]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and GitHub make them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def dead_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{page.relative_to(ROOT)}: {link}"


def test_pages_for_users_have_a_bounded_number_of_words() -> None:
    pages = [page for part in ("Start", "Guides", "Reference") for page in nav(part)]
    assert len(pages) > 30
    assert sum(len((DOCS / page).read_text(encoding="utf-8").split()) for page in pages) <= MOST_WORDS


def test_every_page_is_in_the_navigation() -> None:
    listed = {page for part in ("Start", "Guides", "Reference", "Inside") for page in nav(part)}
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} == listed


def test_a_change_is_one_short_line_of_the_changelog() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > MOST_CHARACTERS] == []
    assert [line for line in lines if line.startswith(" ")] == []


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_the_animation_starts_with_its_last_frame_and_stays_there_for_readers_who_avoid_motion() -> None:
    drawn = (DOCS / "run.svg").read_text(encoding="utf-8")
    last, resting = re.findall(r"transform: ?(translateY\(-\d+px\))", drawn)[-2:]
    assert last == resting
    assert re.search(r"animation-delay: -\d+ms", drawn)
    assert re.search(r"prefers-reduced-motion: reduce\) \{\s*#screen_view \{animation: none\}", drawn)
