# SPDX-License-Identifier: Apache-2.0
"""The site: built strictly, so that every link and anchor leads somewhere; and nothing of it lies elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 280

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_is_built_strictly_and_has_every_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / f"{page}.html").is_file()} == set()
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    assert "paddle.py checkpoints" in commands
    assert "push_pull" in (site / "reference/pserver.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = {path.name for path in site.rglob("*.html") if _LOADED.search(path.read_text(encoding="utf-8"))}
    assert loads == set()
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not [text for text in styles if re.search(r"url\(['\"]?(?:https?:)?//", text)]
